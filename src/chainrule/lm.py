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
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self, TypeAlias

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import PAD, Array, batches, checked, draw, to_numpy, without
from chainrule.tokens.base import Ids, Tokenizer, encode_in_parallel, line_bounds, utf8

Context: TypeAlias = Literal["line", "stream"]
"""Where a sequence ends: at each line, or never (then a line end is one more token to predict)."""


def beginning(tokenizer: Tokenizer, context: Context) -> int:
    """The token that a network reads for <s>.

    A stream begins once, and nothing is learned from one example: there, <s> is read as the end of the line before,
    of which there are many.
    """
    return tokenizer.bos if context == "line" else tokenizer.eos


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
    normalised: bool = True
    """Whether what it gives are probabilities; if not, they are scores, and perplexity means nothing."""

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

    # What a model may do in a way of its own, if that is faster.

    tokens_at_once = 1 << 20
    """Of a long text, scored in one go: fewer would be slower. Lines of like length are put together among them."""

    def score_all(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """ln p of every id of a text made of sequences, each from a start to its end, one after the other."""
        scores = np.empty(len(ids))
        for places, some in _in_batches(self, ids, starts, ends):
            scores[places] = some
        return scores

    def score_block(self, block: bytes) -> np.ndarray:
        """ln p of every token of a text in UTF-8 whose lines end in LF."""
        ids = encode_in_parallel(self.tokenizer, block)
        return self.score_all(ids, *self._bounds(ids))

    def draw(self, state: State, uniforms_B: Array, forbid: Sequence[int] = ()) -> tuple[Array, Array]:
        """A next token x ~ p(x | prefix) for each row, none of the forbidden ones, and its ln p.

        Chance comes in as a number of [0, 1) for each row. A token whose ln p is -inf: nothing can follow. A model
        that can draw without looking at all of V overrides this.
        """
        log_probs_BV = self.next_log_probs(state)
        ids_B = draw(without(log_probs_BV, forbid), uniforms_B)
        xp = array_namespace(log_probs_BV)
        scores_B = xp.take_along_axis(log_probs_BV, ids_B[:, None], axis=-1)[:, 0]
        is_forbidden_B = xp.any(ids_B[:, None] == xp.asarray([*forbid, PAD], device=ids_B.device), axis=1)
        is_nan_B = scores_B != scores_B
        return ids_B, xp.where(is_forbidden_B & ~is_nan_B, -xp.inf, scores_B)

    def read(self, state: State, ids_BT: Array) -> tuple[Array, State]:
        """What `score` and `extend` give, together: a model that computes both at once overrides this."""
        return self.score(ids_BT, state), self.extend(state, ids_BT)

    def write(
        self, state: State, choose: Callable[..., tuple[Array, Array, Array]], uniforms_BT: np.ndarray
    ) -> tuple[State, Array, Array] | None:
        """Several tokens a row, if the model has a faster way than one after the other; None if it has not.

        `choose(log_probs_BV, uniforms_B, going_B)` gives tokens_B, PAD where a row has ended, their ln p, and
        which rows go on. It is hashable and made of array operations only, so that it can be recorded or compiled.
        Gives the state after the tokens, tokens_BT, and scores_BT.
        """
        return None

    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        """The model on a device, in a precision; one that computes in one place only stays as it is."""
        return self

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
        return -checked(self.score_block(_block(text)))

    def perplexity(self, text: str) -> float:
        """exp of the mean surprisal: how many equally likely tokens would be as hard to predict."""
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(self.surprisals(text))))

    def sequences(self, text: str) -> list[np.ndarray]:
        """The text's ids as the sequences this model scores: a row per line, or one row."""
        ids = encode_in_parallel(self.tokenizer, _block(text))
        return [ids[start:end] for start, end in zip(*self._bounds(ids), strict=True)]

    def _bounds(self, ids: Ids) -> tuple[np.ndarray, np.ndarray]:
        """Where sequences begin and end."""
        if self.context == "line":
            return line_bounds(ids, self.tokenizer.eos)
        return np.zeros(1, np.int64), np.asarray([len(ids)])


def _block(text: str) -> bytes:
    block = utf8(text)
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block


def score_rows(lm: LanguageModel, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """ln p of each token of each row, in their order."""
    if not rows:
        return []
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    scores = checked(lm.score_all(np.concatenate(rows), starts, ends))
    return [scores[start:end] for start, end in zip(starts, ends, strict=True)]


def _in_batches(
    lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Sequences of like length together: places in the text, and ln p of the ids there."""
    for rows in batches(ends - starts):
        lengths = ends[rows] - starts[rows]
        # the places of one row after the other: where its start is, and on from there
        places = np.arange(lengths.sum()) + np.repeat(starts[rows] - (np.cumsum(lengths) - lengths), lengths)
        inside_BT = np.arange(lengths.max()) < lengths[:, None]
        ids_BT = np.full(inside_BT.shape, PAD, dtype=np.int64)
        ids_BT[inside_BT] = ids[places]
        yield places, to_numpy(lm.score(ids_BT))[inside_BT]
