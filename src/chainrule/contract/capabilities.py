"""Fast paths: what a language model may offer beside the contract.

Each fast path is a protocol of one method. A model that has the method offers the fast path; the function of the
same name in `lm.py` takes it, or the plain way over the contract where the model has none or the method answers
None (another device, a text too short to be worth it). Callers use those functions and never ask a model what it
is. A law in `chainrule.testing` holds each fast path equal to its plain way.

    protocol          method            plain way
    ScoresText        score_text        encode the text, then score its sequences
    ScoresSequences   score_sequences   `score` batches of sequences of like length
    Reads             read              `score`, then `extend`
    GivesNextProbs    next_probs        e to `next_log_probs`
    Prepares          prepare           nothing: what takes time to load is loaded when that pays off
    Writes            write             choose and `extend`, token by token (decode/sample.py)
    Searches          search            rank `next_log_probs` and `extend`, step by step (decode/beam.py)
    ReadsAhead        read_ahead        `predictions`, then `extend` by the tokens that are kept
    Drafts            draft             `extend`, then the likeliest token, one after the other
    KnowsLikeliest    likeliest         nothing: drafts then come from `draft`
    WritesDrafted     write_drafted     draft, `read_ahead`, choose and keep, step by step (decode/speculative.py)
    Predicts          predictions       `next_log_probs` and `extend`, token by token
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np

from chainrule.arrays import Array


@runtime_checkable
class ScoresText(Protocol):
    """Scores text without showing its ids: encoding and scoring can then overlap."""

    def score_text(self, block: bytes) -> np.ndarray | None:
        """ln p of every token of a text in UTF-8 whose lines end in LF; None: take the plain way."""


@runtime_checkable
class ScoresSequences(Protocol):
    """Scores many sequences of ids that lie one after the other, without making batches of them."""

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        """ln p of every id; a sequence begins at each start and ends at its end. None: take the plain way."""


@runtime_checkable
class Reads(Protocol):
    """Scores tokens and reads them in one pass."""

    def read(self, state: Any, ids_BT: Array) -> tuple[Array, Any] | None:
        """What `score` returns for the ids from the state, and what `extend` returns. None: take the plain way."""


@runtime_checkable
class GivesNextProbs(Protocol):
    """Computes p of the next tokens without a power of e for each."""

    def next_probs(self, state: Any) -> np.ndarray | None:
        """p of every token after each row of the state, [B, V], in single precision. None: take the plain way."""


@runtime_checkable
class Prepares(Protocol):
    """Loads compiled code, or the like, when it has been asked for much."""

    def prepare(self) -> None:
        """Load now what takes time to load, so that no later question takes longer than others."""


class Choose(Protocol):
    """How the next token is chosen: a hashable function of arrays, so that it can be compiled or recorded."""

    @property
    def end(self) -> int | None:
        """The token that ends a row; None if nothing does."""

    @property
    def operations(self) -> tuple[tuple[str, Any], ...] | None:
        """The operations on ln p before the draw, as pairs (name, value); None if the choice is something else.

        The names are forbid (a tuple of tokens), repetition_penalty, presence_penalty, frequency_penalty,
        temperature, top_k, top_p and min_p.
        """

    def __call__(
        self, log_probs_BV: Array, uniforms_B: Array, going_B: Array, read: Callable[[], Array] | None = None
    ) -> tuple[Array, Array, Array]:
        """Tokens [B], PAD where a row has ended; their ln p; and which rows go on.

        `read` returns the ids read and written so far, [B, T]; only a choice that looks back needs it.
        """


@runtime_checkable
class Writes(Protocol):
    """Writes several tokens a row by itself, without the host in between."""

    def write(
        self, state: Any, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[Any, Array, Array] | None:
        """The state after as many tokens as there are columns, tokens_BT, and ln p of each. None: the plain way.

        `read_BT` is what the rows have read, if the choice looks back, and None if it does not.
        """


@dataclass(frozen=True)
class SearchRules:
    """The rules of a beam search, which decode/beam.py explains."""

    ending: str
    """When a hypothesis ends: any or best."""
    best: int
    """The most results of a text."""
    end: int | None
    """The token that ends a hypothesis; None if nothing does."""
    forbid: tuple[int, ...]
    """Tokens that no hypothesis contains."""
    limits: np.ndarray
    """The most steps of each text."""
    divisors: np.ndarray
    """For each length of a hypothesis: hypotheses are ranked by ln p divided by this number."""


class Found(NamedTuple):
    """A result of a beam search."""

    beginning: int
    """Which hypothesis of its text it was at first."""
    ids: tuple[int, ...]
    """The tokens since then."""
    log_prob: float
    finished: bool


@runtime_checkable
class Searches(Protocol):
    """Does a whole beam search by itself."""

    def search(
        self, state: Any, rules: SearchRules, live_PW: np.ndarray, lengths_PW: np.ndarray
    ) -> list[list[Found]] | None:
        """The best hypotheses of each text, best first, of those that the plain way finds. None: take that.

        `live_PW` is ln p of the W hypotheses of each text at first, -inf where there is none, and `lengths_PW` by
        how many tokens each continues its prompt. The state has a row for each of them; or for each text, if all
        of its hypotheses have read the same.
        """


@runtime_checkable
class Predicts(Protocol):
    """Computes the distributions before many tokens at once."""

    def predictions(self, state: Any, ids_BT: Array) -> Iterator[Array] | None:
        """ln p of every token before each of the ids, as arrays [B, t, V] whose t add up to T. None: the plain way.

        What stands before padding means nothing.
        """


@runtime_checkable
class ReadsAhead(Protocol):
    """Reads tokens of which perhaps only the first ones are kept."""

    def read_ahead(self, state: Any, ids_BT: Array) -> tuple[Array, Callable[[int], Any]] | None:
        """ln p of every token after each of the ids, [B, T, V], and a function. None: take the plain way.

        The function returns the state after the first n of the ids.
        """


@runtime_checkable
class Drafts(Protocol):
    """Guesses how a text goes on, in much less time than it takes to compute probabilities."""

    def draft(self, memory: Any, ids: np.ndarray, count: int) -> tuple[Any, np.ndarray] | None:
        """What it remembers after more tokens of one text, and `count` tokens that may follow. None: the plain way.

        The memory is None at first, and then what the call before returned. Nothing depends on whether the guess
        is the likeliest text: it may be any.
        """


class Likeliest(NamedTuple):
    """Contexts of one length, and the likeliest token after each."""

    contexts_CN: np.ndarray
    tokens_C: np.ndarray


@runtime_checkable
class KnowsLikeliest(Protocol):
    """Has a table of contexts and what followed them, which another device can keep."""

    def likeliest(self, longest: int) -> list[Likeliest] | None:
        """The contexts of 1, 2, ... `longest` tokens, and the likeliest token after each. None: there is none."""


LONGEST_MATCH, SHORTEST_MATCH = 5, 2
"""How many of the last tokens of a text have to have stood before, at most and at least, to copy what came next."""


class DraftRules(NamedTuple):
    """How tokens are drafted and chosen, for a model that does both by itself."""

    sources: tuple[Any, ...]
    """Language models that draft; None stands for copying from the text itself."""
    tokens: int
    """How many tokens are drafted at once."""
    choose: Choose


class Drafted(NamedTuple):
    """Tokens that were written with drafts."""

    state: Any
    """The state after all of the tokens but the last, which is chosen and not read yet."""
    tokens: np.ndarray
    log_probs: np.ndarray
    steps: int
    """In how many steps of the model they were written."""
    drafted: int
    """How many tokens were drafted, accepted or not."""


@runtime_checkable
class WritesDrafted(Protocol):
    """Drafts tokens, reads them, and keeps those that it would have written, without the host in between."""

    def write_drafted(
        self, state: Any, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
    ) -> Drafted | None:
        """Tokens after a state of one row and the token `last`, which it has not read. None: take the plain way.

        `uniforms` has the random numbers of the tokens to come, `rules.tokens` more than are wanted. Writing stops
        when `most` tokens are there, or a few more, and may stop before that.
        """
