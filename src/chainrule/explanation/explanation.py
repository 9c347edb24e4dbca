"""`Explanation`: the prediction of one token by a trained model, explained."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.arrays import Array, to_numpy
from chainrule.contract.lm import LanguageModel
from chainrule.explanation.reading import word, words

TOP = 5
"""The number of most likely tokens that an explanation lists."""


@dataclass(frozen=True)
class Explanation(ABC):
    """How a model predicts one token, the target: -ln p(target | tokens)."""

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
        """The steps that lead to the probability, as entries of `record`."""

    def record(self) -> dict[str, Any]:
        """The whole explanation as a dictionary that can be written as JSON."""
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


def common_fields(lm: LanguageModel, first: int, ids: list[int], target: int, nats: float) -> dict[str, Any]:
    """The fields that all explanations share, for a model that starts with the token `first` and reads the ids."""
    state = lm.extend(lm.start(1), np.asarray([ids], dtype=np.int64).reshape(1, -1))
    return {
        "kind": lm.kind,
        "tokens": words(lm.tokenizer, [first, *ids]),
        "target": word(lm.tokenizer, target),
        "nats": nats,
        "likely": most_likely(lm, lm.next_log_probs(state)[0]),
    }


def most_likely(lm: LanguageModel, log_probs_V: Array) -> tuple[tuple[str, float], ...]:
    """The most likely tokens and their probabilities, by ln p of every token."""
    p_V = np.exp(to_numpy(log_probs_V).astype(np.float64))
    best = np.argsort(-p_V, kind="stable")[:TOP]
    return tuple((word(lm.tokenizer, int(i)), float(p_V[i])) for i in best)
