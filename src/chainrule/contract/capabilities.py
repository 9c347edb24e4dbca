"""Capabilities: what a language model offers beyond the five methods of the contract, and what things cost it.

A model declares them in one frozen value, `LanguageModel.capabilities`. Nobody guesses them from a class. The
functions of `lm.py` read them, in one place, to choose between a fast path of the model and the plain way over the
contract. A mixture adds up the costs of its parts.

A fast path is a method that the plain way can replace, only slower. A law in `chainrule.testing` holds each equal
to its plain way, and fails if a declared fast path never answers.

    method            the plain way
    score_text        encode the text, then score its sequences
    score_sequences   `score` batches of sequences of like length
    read              `score`, then `extend`
    next_probs        e to the power of `next_log_probs`
    predictions       `next_log_probs` and `extend`, token by token
    prepare           nothing: the model loads what it needs when that pays off
    write             choose a token and `extend`, step by step (decode/sample.py)
    search            rank `next_log_probs` and `extend`, step by step (decode/beam.py)
    search_steps      the same; the caller decides what is finished
    read_ahead        `predictions`, then `extend` by the tokens that are kept
    draft             `extend`, then the most likely token, step by step
    write_drafted     draft, `read_ahead`, choose and keep, step by step (decode/speculative.py)

The other methods of `Offers` have no plain way; only some models can do what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from chainrule.arrays import Array


@dataclass(frozen=True)
class Costs:
    """About how many seconds something takes on one core. Only the order of magnitude counts."""

    bulk: float = 3e-5
    """Score one token of a long text."""
    token: float = 1e-3
    """Score one given token after a state."""
    distribution: float = 1e-3
    """Compute ln p of every token after a state."""

    def __add__(self, other: Costs) -> Costs:
        return Costs(self.bulk + other.bulk, self.token + other.token, self.distribution + other.distribution)


@dataclass(frozen=True)
class Capabilities:
    """What a model offers beyond the contract, and what things cost it.

    >>> fast = Capabilities(frozenset({"score_sequences"}), Costs(bulk=1e-6))
    >>> "score_sequences" in fast.offers, "write" in fast.offers
    (True, False)
    """

    offers: frozenset[str] = frozenset()
    """The names of the methods beyond the contract."""
    costs: Costs = Costs()
    is_compiled: bool = False
    """True if it scores by compiled loops: threads run them at once, a batch costs as much as its rows one by one,
    and the first call takes longer than others."""


class FastPaths(Protocol):
    """The methods that the plain way can replace. A model that offers one may still return None: take that way."""

    def score_text(self, block: bytes) -> np.ndarray | None:
        """Return ln p of every token of a text in UTF-8 whose lines end in LF."""

    def score_sequences(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray | None:
        """Return ln p of every id; a sequence begins at each start and ends at its end."""

    def read(self, state: Any, ids_BT: Array) -> tuple[Array, Any] | None:
        """Return what `score` returns for the ids from the state, and what `extend` returns."""

    def next_probs(self, state: Any) -> np.ndarray | None:
        """Return p of every token after each row of the state, [B, V], in single precision."""

    def predictions(self, state: Any, ids_BT: Array) -> Iterator[Array] | None:
        """Return ln p of every token before each of the ids, as arrays [B, t, V] whose t add up to T.

        The values before padding have no meaning.
        """

    def prepare(self) -> None:
        """Load slow parts, such as compiled code, so that no later call takes longer than others."""

    def write(
        self, state: Any, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[Any, Array, Array] | None:
        """Return the state after one token a row for each column, the tokens_BT, and ln p of each.

        `read_BT` holds the tokens that the rows have read if the choice looks back, and is None if it does not.
        """

    def search(
        self, state: Any, rules: SearchRules, live_PW: np.ndarray, lengths_PW: np.ndarray
    ) -> list[list[Found]] | None:
        """Return the best hypotheses of each text, best first: those that the plain way finds.

        `live_PW` is ln p of the W hypotheses of each text at first, -inf where there is none, and `lengths_PW` by
        how many tokens each continues its prompt. The state has a row for each of them; or a row for each text, if
        all of its hypotheses have read the same.
        """

    def search_steps(
        self,
        state: Any,
        never: Sequence[int],
        end: int | None,
        live_PW: np.ndarray,
        steps: int,
        take: Callable[[np.ndarray, np.ndarray, np.ndarray], bool],
    ) -> bool | None:
        """Go on with the W best hypotheses of each text for so many steps, or until `take` returns False.

        At each step `take` gets ln p of the W best next tokens of each hypothesis, without those in `never`, these
        tokens, [PW, W] each, and ln p of `end`, [PW]. The state and `live_PW` are those of `search`. Returns True
        after that; None if it failed, though `take` may have been called: take the plain way from the beginning.
        """

    def read_ahead(self, state: Any, ids_BT: Array) -> tuple[Array, Callable[[int], Any]] | None:
        """Return ln p of every token after each of the ids, [B, T, V], and the state after n of them, by n."""

    def draft(self, memory: Any, ids: np.ndarray, count: int) -> tuple[Any, np.ndarray] | None:
        """Return the memory after more tokens of one text, and `count` tokens that may follow.

        The memory is None at first, and then what the call before returned. Any guess is allowed: a good one saves
        time.
        """

    def write_drafted(
        self, state: Any, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
    ) -> Drafted | None:
        """Return tokens after a state of one row and the token `last`, which the state has not read.

        `uniforms` has the random numbers of the next tokens, `rules.tokens` more than are wanted. Writing stops
        when there are `most` tokens, or a few more, and may stop before that.
        """


class Offers(FastPaths, Protocol):
    """The methods that a model may offer: fast paths, and those without a plain way."""

    def best_tokens(self, longest: int) -> list[BestTokens] | None:
        """Return the contexts of 1, 2, ... `longest` tokens, and the likeliest token after each, to draft from."""

    def features(self, state: Any) -> Array:
        """Return the features from which the next token of each row is predicted, [B, D]."""

    def next_logits(self, state: Any) -> Array:
        """Return z of every token after each row of the state, [B, V]: ln p(x) = z_x - ln Σ e^z; -inf for <s>."""

    def read_features(self, state: Any, ids_BT: Array) -> tuple[Array, Array, Any]:
        """Return the scores of the ids, the features that predicted each, [B, T, D], and the state after them."""

    def as_torch(self) -> Any:
        """Return the same network computed by torch, or this model if it is computed so already."""

    def match_lengths(self, state: Any, ids_BT: Array) -> np.ndarray:
        """Return how many tokens before each of the ids, and after the last, are a known context: [B, T+1]."""

    def context_rows(self) -> Iterator[ContextRow]:
        """Return a row for each token after each context; <s> fills up a context at the start of a text."""

    def ngram_lengths(self, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
        """Return the length of the longest known n-gram that ends in each id.

        A sequence begins at each start and ends at its end. <s> fills up what is missing before its start.
        """


@dataclass(frozen=True)
class ContextRow:
    """A line of a table of all contexts, as a lecture prints it: context, next token, count, sum and p."""

    context: tuple[str, ...]
    token: str
    count: int | None
    """c(h w); None if the model does not keep counts."""
    total: int | None
    """c(h), the sum of the counts after the context."""
    probability: float
    """p(w | h)"""


class Choose(Protocol):
    """How the next token is chosen: a hashable function of arrays, so that it can be compiled or recorded."""

    @property
    def end(self) -> int | None:
        """The token that ends a row; None if nothing does."""

    @property
    def operations(self) -> tuple[tuple[str, Any], ...] | None:
        """The operations on ln p before the draw, as pairs (name, value); None if the choice is something else.

        The names are forbid (a tuple of tokens), bias (pairs of a token and a number), repetition_penalty,
        presence_penalty, frequency_penalty, temperature, top_k, top_p and min_p.
        """

    @property
    def by_logits(self) -> bool:
        """True if the choice is made from logits instead of ln p; only models with logits are asked to make it."""

    def __call__(
        self, log_probs_BV: Array, uniforms_B: Array, active_B: Array, read: Callable[[], Array] | None = None
    ) -> tuple[Array, Array, Array]:
        """Return tokens [B], PAD where a row has ended; their ln p; and which rows are still active.

        `read` returns the ids read and written so far, [B, T]; only a choice that looks back needs it.
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


class BestTokens(NamedTuple):
    """Contexts of one length, and the most likely token after each."""

    contexts_CN: np.ndarray
    tokens_C: np.ndarray


LONGEST_MATCH, SHORTEST_MATCH = 5, 2
"""How many of the last tokens of a text must have occurred before, at most and at least, to copy what came next."""


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
