"""The attention of one token by one head, number by number: query, keys, scores, weights, values and their mean."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.errors import DiagnosisError
from chainrule.explanation.following import Attended
from chainrule.system.display import Part, ResultTable
from chainrule.system.pictures import Cells, cells_picture

SHOWN = 4
"""The number of features of a vector that a table shows."""


@dataclass(frozen=True, eq=False, repr=False)
class HeadOfToken:
    """What one head does for the last of the tokens: a = Σ_t softmax(q·k_t / sqrt(K))_t v_t."""

    layer: int
    head: int
    tokens: tuple[str, ...]
    query_K: np.ndarray
    keys_TK: np.ndarray
    values_TK: np.ndarray
    scores_T: np.ndarray
    """q·k_t / sqrt(K), with the bias of positions if there is one."""
    weights_T: np.ndarray
    taken_K: np.ndarray
    """The mean of the values by the weights."""

    @property
    def title(self) -> str:
        return f"layer {self.layer}, head {self.head}: attention of {self.tokens[-1]!r}"

    def _by_token(self) -> Iterator[tuple[str, np.ndarray, float, float, np.ndarray]]:
        """Yield each token with its key, score, weight and value."""
        return zip(self.tokens, self.keys_TK, self.scores_T, self.weights_T, self.values_TK, strict=True)

    def record(self) -> dict[str, Any]:
        """Return the numbers as a dictionary that can be written as JSON, rounded to six decimals."""
        return {
            "layer": self.layer,
            "head": self.head,
            "token": self.tokens[-1],
            "query": rounded(self.query_K),
            "tokens": [
                {"token": token, "key": rounded(k), "score": float(s), "weight": float(w), "value": rounded(v)}
                for token, k, s, w, v in self._by_token()
            ],
            "mean": rounded(self.taken_K),
        }

    def parts(self) -> list[Part]:
        """Return the numbers as sentences and a table; of each vector the first features."""
        rows = [
            [token, _vector(k), f"{score:.4f}", f"{weight:.4f}", _vector(v)]
            for token, k, score, weight, v in self._by_token()
        ]
        return [
            f"{self.title}, with the query q = {_vector(self.query_K)}",
            ResultTable(["token", "key k", "score q·k / √d", "weight", "value v"], rows, left=[1, 4]),
            f"the mean of the values by the weights: {_vector(self.taken_K)}",
        ]

    def svg(self) -> str:
        """Return the picture: the weights, and the query, the keys and the values as cells."""
        features = [str(number) for number in range(len(self.query_K))]
        largest = float(max(np.abs(one).max() for one in (self.query_K, self.keys_TK)))
        cells = 12 if len(features) > 40 else 18
        return cells_picture(
            self.title,
            [
                Cells(
                    f"{self.title}: weight of each token", self.weights_T[None], ["weight"], self.tokens, full=1.0
                ),
                Cells("scores q·k / √d", self.scores_T[None], ["score"], self.tokens),
                Cells("query q, by feature", self.query_K[None], [self.tokens[-1]], size=cells, full=largest),
                Cells("keys k, by feature", self.keys_TK, self.tokens, size=cells, full=largest),
                Cells("values v, by feature", self.values_TK, self.tokens, size=cells),
                Cells("mean of the values by the weights", self.taken_K[None], [self.tokens[-1]], size=cells),
            ],
        )

    def _repr_svg_(self) -> str:
        return self.svg()


def head_of_token(layers: Sequence[Attended], tokens: tuple[str, ...], layer: int, head: int) -> HeadOfToken:
    """Return what one head of one layer does for the last token; both count from 0."""
    if not layers:
        raise DiagnosisError("this network has no attention: queries, keys and values are parts of a Transformer")
    heads = len(layers[0].query_HK)
    if not (0 <= layer < len(layers) and 0 <= head < heads):
        raise DiagnosisError(
            f"there is no head {layer}.{head}: the layers are 0 to {len(layers) - 1}, "
            f"the heads of each 0 to {heads - 1}"
        )
    one = layers[layer]
    every = one.query_HK, one.keys_HTK, one.values_HTK, one.scores_HT, one.weights_HT
    q_K, k_TK, v_TK, scores_T, weights_T = (of_heads[head] for of_heads in every)
    return HeadOfToken(layer, head, tokens, q_K, k_TK, v_TK, scores_T, weights_T, weights_T @ v_TK)


def _vector(values_K: np.ndarray) -> str:
    shown = ", ".join(f"{value:.3f}" for value in values_K[:SHOWN])
    return f"({shown}{', …' if len(values_K) > SHOWN else ''})"


def rounded(values: np.ndarray) -> list[float]:
    """Return numbers as JSON has them, with six decimals."""
    found: list[float] = np.round(values, 6).tolist()
    return found
