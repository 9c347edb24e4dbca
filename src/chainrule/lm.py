"""The contract: what a language model is, whatever is inside.

A language model assigns every sequence of tokens a probability, one token at a time:

    ln p(x) = Σ_t ln p(x_t | <s>, x_<t)

Training, decoding, evaluation and serving know this file and nothing else of a model. Five methods are the whole
promise: `start`, `extend`, `next_log_probs` and `score` here, `save` from `model.py`. What a model can do faster
in a way of its own is in `fast_paths.py`.

Arrays follow the Python Array API standard: an n-gram model computes in NumPy, a neural one in torch on its
own device, and code written over the contract serves both. A batch of sequences is one integer array `ids_BT`;
rows shorter than the longest are filled up at the right with PAD, which is no token. A model takes integer arrays
of either library and returns arrays of its own.

Axes in names: B batch, T time, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Self

import numpy as np

from chainrule.arrays import Array, checked
from chainrule.fast_paths import score_sequences, score_text
from chainrule.folder import TEXT, Context
from chainrule.model import Model
from chainrule.tokens.base import Ids, Tokenizer, encode_in_parallel, line_bounds, utf8

__all__ = ["Context", "LanguageModel", "State", "score_rows", "start_token"]


def start_token(tokenizer: Tokenizer, context: Context) -> int:
    """The token that a network reads for <s>.

    A stream begins once, and nothing is learned from one example: there a network reads the end of a line instead,
    of which there are many.
    """
    return tokenizer.bos if context == "line" else tokenizer.eos


class State(ABC):
    """What a model remembers of a batch of prefixes. A value: nothing a model does changes it."""

    @abstractmethod
    def __len__(self) -> int:
        """How many rows the batch has."""

    @abstractmethod
    def select(self, rows: Array) -> Self:
        """The state whose row i is row rows[i] of this one: reorders, repeats or drops rows."""

    @abstractmethod
    def join(self, other: Self) -> Self:
        """The state with the rows of this one and then those of another state of the same model."""


class LanguageModel(Model):
    """A probability for every next token, after every prefix."""

    tokenizer: Tokenizer
    context: Context
    normalised: bool = True
    """Whether it returns probabilities; if not, they are scores, and perplexity means nothing."""

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
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        """ln p(x_t | prefix, x_<t) as [B, T]; 0 on padding. The prefix is <s>, or what `state` has read."""

    @abstractmethod
    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        """This model on a device, computing in a precision, as `Model.on` says."""

    # What follows is conveniences over the contract; no model overrides them.

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Its one tokenizer, under the name that the model folder gives it."""
        return {TEXT: self.tokenizer}

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
        return -checked(score_text(self, _block(text)), normalised=self.normalised)

    def perplexity(self, text: str) -> float:
        """exp of the mean surprisal: how many equally likely tokens would be as hard to predict."""
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(self.surprisals(text))))

    def sequences(self, text: str) -> list[np.ndarray]:
        """The text's ids as the sequences this model scores: a row per line, or one row."""
        ids = encode_in_parallel(self.tokenizer, _block(text))
        return [ids[start:end] for start, end in zip(*self.bounds(ids), strict=True)]

    def bounds(self, ids: Ids) -> tuple[np.ndarray, np.ndarray]:
        """Where the sequences of a text begin in its ids, and one past where they end."""
        if self.context == "line":
            return line_bounds(ids, self.tokenizer.eos)
        return np.zeros(1, np.int64), np.asarray([len(ids)])


def _block(text: str) -> bytes:
    block = utf8(text)
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block


def score_rows(lm: LanguageModel, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """ln p of each token of each row, in their order; a result that is no probability is an error."""
    if not rows:
        return []
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    scores = checked(score_sequences(lm, np.concatenate(rows), starts, ends), normalised=lm.normalised)
    return [scores[start:end] for start, end in zip(starts, ends, strict=True)]
