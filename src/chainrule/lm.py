"""The contract: what a language model is, whatever is inside.

A language model gives every sequence of tokens a probability, one token at a time:

    ln p(x) = Σ_t ln p(x_t | <s>, x_<t)

Training, decoding, evaluation and serving know this file and nothing else of a model.

Arrays follow the Python Array API standard: an n-gram model computes in NumPy, a neural one in torch on its
own device, and what is written over the contract serves both. A batch of sequences is one integer array
`ids_BT`; rows shorter than the longest are filled up at the right with PAD, which is no token. A model takes
integer arrays of either library and answers in its own.

Axes in names: B batch, T time, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

import numpy as np

from chainrule.arrays import Array, batches, checked, pad, to_numpy
from chainrule.tokens.base import Tokenizer, line_bounds, utf8

Context: TypeAlias = Literal["line", "stream"]
"""Where a sequence ends: at each line, or never (then a line end is one more token to predict)."""


class State(ABC):
    """What a model remembers of a batch of prefixes. A value: nothing a model does changes it."""

    @abstractmethod
    def select(self, rows: Array) -> Self:
        """The state whose row i is row rows[i] of this one: reorders, repeats or drops rows."""


class LanguageModel(ABC):
    """A probability for every next token, after every prefix."""

    tokenizer: Tokenizer
    context: Context
    provenance: Mapping[str, Any] = MappingProxyType({})
    """Where it comes from: text, seed, versions, command. Saved with the model."""
    metrics: Mapping[str, Any] = MappingProxyType({})
    """What was measured of it. Saved with the model."""

    @abstractmethod
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        """ln p(x_t | prefix, x_<t) as [B, T]; 0 on padding. The prefix is <s>, or what `state` has read."""

    @abstractmethod
    def start(self, batch_size: int) -> State:
        """The state after <s>, in every row."""

    @abstractmethod
    def extend(self, state: State, ids_BT: Array) -> State:
        """The state after the row's tokens as well; padding changes nothing. T = 1 is one step."""

    @abstractmethod
    def next_log_probs(self, state: State) -> Array:
        """ln p(x | prefix) for every token x as [B, V]. <s> is never predicted: its column is -inf."""

    @abstractmethod
    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model folder; `chainrule.load` reads it back, bit by bit the same."""

    # What follows is conveniences over the contract; no model overrides them.

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.tokenizer.vocab_size:,} {self.tokenizer.name} tokens, {self.context}>"
        )

    def log_prob(self, text: str) -> float:
        """ln p of a text; each of its lines ends in </s>.

        With line context the lines are independent sequences, with stream context they are one.
        """
        return -float(np.sum(self.surprisals(text)))

    def surprisals(self, text: str) -> np.ndarray:
        """-ln p of each token of the text, its line ends included: as many as `encode_lines` gives."""
        return -np.concatenate(score_rows(self, self.sequences(text)))

    def perplexity(self, text: str) -> float:
        """exp of the mean surprisal: how many equally likely tokens would be as hard to predict."""
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(self.surprisals(text))))

    def sequences(self, text: str) -> list[np.ndarray]:
        """The text's ids as the sequences this model scores: a row per line, or one row."""
        ids = self.tokenizer.encode_lines(utf8(text).replace(b"\r\n", b"\n"))
        if self.context == "stream":
            return [ids]
        starts, ends = line_bounds(ids, self.tokenizer.eos)
        return [ids[start:end] for start, end in zip(starts, ends, strict=True)]


def score_rows(lm: LanguageModel, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """ln p of each token of each row, in their order; scored in batches of rows of like length."""
    scored: list[np.ndarray] = [np.zeros(0)] * len(rows)
    for batch in batches(np.asarray([len(row) for row in rows])):
        scores_BT = checked(to_numpy(lm.score(pad([rows[i] for i in batch]))))
        for i, scores_T in zip(batch, scores_BT, strict=True):
            scored[i] = scores_T[: len(rows[i])]
    return scored
