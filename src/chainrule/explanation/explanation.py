"""`explain`: how a model predicts one token, in the way that the model declares.

A model declares the function that explains it as `explained_by`, a path MODULE:NAME. The function takes the model,
the ids that it reads, the id that it predicts, the number of `last` tokens that a graph covers, and a `Progress`,
and returns an `Explanation`. A model of a plug-in declares its own.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.arrays import Array, to_numpy
from chainrule.contract.lm import LanguageModel
from chainrule.errors import DiagnosisError, ModelError
from chainrule.explanation.reading import ids_and_target, word, words
from chainrule.system.display import Part, number, to_html
from chainrule.system.plugins import import_object
from chainrule.system.progress import Reports, as_progress

TOP = 5
"""The number of most likely tokens that an explanation lists."""
LAST = 3
"""The default number of tokens, the last ones, that the graph of a recurrent network covers."""


@dataclass(frozen=True, repr=False)
class Explanation(ABC):
    """How a model predicts one token, the target: -ln p(target | tokens). It shows itself in a notebook."""

    kind: str
    tokens: tuple[str, ...]
    """The tokens read before the target, beginning with <s> (for a network of a stream, </s>)."""
    target: str
    nats: float
    """-ln p of the target; infinite if it is impossible."""
    likely: tuple[tuple[str, float], ...]
    """The most likely tokens and their probabilities."""

    @property
    @abstractmethod
    def title(self) -> str:
        """The token that is predicted, and its probability or loss, in one line."""

    @property
    def is_probability(self) -> bool:
        """True if e^-nats is a probability, and not only a score."""
        return True

    @abstractmethod
    def steps(self) -> dict[str, Any]:
        """Return the steps that lead to the probability, as entries of `record`."""

    def parts(self) -> list[Part]:
        """Return the explanation as sentences and tables, for a terminal and for a notebook."""
        likely = ", ".join(f"{token} {number(chance)}" for token, chance in self.likely)
        return [*self.details(), f"most likely: {likely}"]

    def details(self) -> list[Part]:
        """Return the parts before the most likely tokens; a kind of explanation adds its tables."""
        return [f"{self.title}, {number(self.nats)} nats = {self._bits}"]

    @property
    def _bits(self) -> str:
        return f"{self.nats / math.log(2):.4g} bits"

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.title}>"

    def _repr_html_(self) -> str:
        return to_html(self.parts())

    def record(self) -> dict[str, Any]:
        """Return the whole explanation as a dictionary that can be written as JSON."""
        name = "probability" if self.is_probability else "score"
        return {
            "kind": self.kind,
            "tokens": list(self.tokens),
            "target": self.target,
            "nats": self.nats,
            "bits": self.nats / math.log(2),
            name: math.exp(-self.nats),
            "likely": [{"token": token, name: p} for token, p in self.likely],
            **self.steps(),
        }


def explain(
    lm: LanguageModel,
    text: str,
    *,
    next_word: str | None = None,
    after: bool = False,
    token: int | None = None,
    last: int = LAST,
    progress: Reports = False,
) -> Explanation:
    """Explain how a model predicts the last token of a text, the `token`-th, or `next_word` after the text.

    With `after` and without a next word, the most likely token after the text is predicted.

    An n-gram model gives an `NgramExplanation`: contexts, weights, and the product or sum that they make. A mixture
    gives a `MixtureExplanation`: the weight of each of its models, and the probability by each of them. A network
    gives a `NetworkExplanation` with its graph, which for a recurrent network and a bag of words covers the `last`
    tokens before the target, and for other networks all tokens that they read.

    >>> import chainrule as cr
    >>> texts = ["i love cats", "i love dogs"]
    >>> lm = cr.train("ngram", texts, order=2, smoothing="mle", tokenizer="word")
    >>> print(explain(lm, "i love cats").title)
    p(cats | … love) = 0.5
    """
    if last < 1:
        raise DiagnosisError(f"the last tokens of the graph should be at least 1, not {last}")
    LanguageModel.expect(lm)
    reports = as_progress(progress)
    if not is_explained(lm):
        raise ModelError(f"a model of the kind {lm.kind} cannot be explained: it declares no `explained_by`")
    ids, target = ids_and_target(lm, text, reports, next_word=next_word, after=after, token=token)
    explained: Explanation = import_object(lm.explained_by)(lm, ids, target, last, reports)  # type: ignore[attr-defined]
    return explained


def is_explained(lm: LanguageModel) -> bool:
    """Return True if a model declares the function that explains it."""
    return hasattr(lm, "explained_by")


def common_fields(lm: LanguageModel, first: int, ids: list[int], target: int, nats: float) -> dict[str, Any]:
    """Return the fields of all explanations, for a model that starts with the token `first` and reads the ids."""
    state = lm.extend(lm.start(1), np.asarray([ids], dtype=np.int64).reshape(1, -1))
    return {
        "kind": lm.kind,
        "tokens": words(lm.tokenizer, [first, *ids]),
        "target": word(lm.tokenizer, target),
        "nats": nats,
        "likely": most_likely(lm, lm.next_log_probs(state)[0]),
    }


def most_likely(lm: LanguageModel, log_probs_V: Array) -> tuple[tuple[str, float], ...]:
    """Return the most likely tokens and their probabilities, by ln p of every token."""
    p_V = np.exp(to_numpy(log_probs_V).astype(np.float64))
    best = np.argsort(-p_V, kind="stable")[:TOP]
    return tuple((word(lm.tokenizer, int(i)), float(p_V[i])) for i in best)
