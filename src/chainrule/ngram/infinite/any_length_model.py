"""N-grams of any length: the context is the text so far, as far back as it occurs in the training text.

The contexts h_0, h_1, ... of a position are the levels that `walk` finds, from the empty one to the longest that
was seen. Lengths with the same occurrences are one level, so there are few levels, however long the match. From the
shortest to the longest

    p_k(w) = (max(N(· h_k w) - d, 0) + (θ + d N(h_k ·)) p_{k-1}(w)) / (N(· h_k ·) + θ)

beginning with p_{-1} = 1 / V for each of the V words that can be predicted. This is Kneser-Ney smoothing without a
bound on the length, with the two parameters of a Pitman-Yor process: a word counts once for each different token
before h_k w, not once for each occurrence, because the longer context already explains the others. The discount d
and the strength θ depend on the length of h_k, and are tuned on held-out text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import PAD, Array, check_ids, to_numpy
from chainrule.contract.capabilities import BestTokens, Capabilities, Choose, Costs
from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context, LanguageModel, State, check_rows, expect_state
from chainrule.errors import SettingsError
from chainrule.ngram.infinite.suffixes import SMALL, Ints, Suffixes, best_tokens, build
from chainrule.ngram.infinite.walk import FEW, MOST_LEVELS, AnyLengthState, ContextRange, Walker, counted, state_of
from chainrule.settings import Groups, setting
from chainrule.system.parallel import Patience
from chainrule.tokens.base import Tokenizer

if TYPE_CHECKING:
    from chainrule.ngram.infinite.sampler import AnyLengthSampler

Floats = NDArray[np.float64]

KIND_NAME = "anygram"

LENGTHS = np.asarray([1, 2, 3, 4, 5, 6, 12])
"""The lengths at which the parameters change: groups of 0, 1, ... 5 tokens, of 6 to 11, and of 12 or more."""

_NANOSECONDS = 1 << 20  # to sample one token without kernels
ARRAYS = ("follower", "places", "shared", "fresh")
_TUNED_ON = 100_000  # tokens of held-out text at most: more hardly change a parameter
_ENOUGH_EVENTS = 50  # with contexts in a group of lengths; fewer do not determine its parameters
_ROUNDS, _CUTS = 2, 10  # rounds over all parameters, and steps of a golden-section search
_GOLDEN = (math.sqrt(5) - 1) / 2


@dataclass(frozen=True)
class AnyLengthSettings:
    """The settings of `--set`."""

    GROUPS: ClassVar[Groups] = {"data": ("extra_words",)}

    extra_words: str = setting("", "a file of words, one per line, to add to the vocabulary", formerly="vocabulary")


@dataclass(frozen=True)
class Smoothing:
    """The discount d and the strength θ for each group of context lengths."""

    discount: Floats
    strength: Floats

    def at(self, lengths: Any) -> tuple[Any, Any]:
        """Return d and θ of a context of that length, or of contexts of these lengths."""
        groups = group_of(lengths)
        return self.discount[groups], self.strength[groups]


DEFAULT = Smoothing(
    np.asarray([0.5, 0.8, 0.9, 0.95, 0.95, 0.9, 0.75, 0.5]), np.asarray([1.0, 3.0, 2.0, 2.0, 1.0, 1.0, 1.0, 1.0])
)


class Matches(NamedTuple):
    """The longest match with training text that ends at each token of a text."""

    length: Ints
    """The number of tokens of the match, with this one; <s> counts as one too."""
    occurrences: Ints
    """The number of times that the match occurs in training text."""


@dataclass(frozen=True)
class Sheet:
    """The counts of one level h, for the events w whose context has that level."""

    event: Ints
    """The indices of these events."""
    group: Ints
    """The group of lengths that h belongs to."""
    count: Floats
    """N(· h w)"""
    total: Floats
    """N(· h ·)"""
    words: Floats
    """N(h ·)"""


class AnyLengthModel(LanguageModel):
    """p(x_t | x_<t) from every suffix of x_<t that occurs in training text.

    >>> import chainrule as cr
    >>> lm = cr.train("anygram", "the cat sat\\nthe cat ran\\n", tokenizer="word")
    >>> cr.generate(lm, "the", cr.Greedy(), max_tokens=1)
    'the cat'
    """

    kind = KIND_NAME
    explained_by = "chainrule.explanation.ngrams:explain_any_length"

    def __init__(
        self,
        suffixes: Suffixes,
        smoothing: Smoothing,
        tokenizer: Tokenizer,
        context: Context = "line",
        *,
        settings: AnyLengthSettings | None = None,
        few: int = FEW,
    ) -> None:
        self.suffixes = suffixes
        self.smoothing = smoothing
        self.tokenizer = tokenizer
        self.context = context
        self.settings = settings or AnyLengthSettings()
        self.walker = Walker(suffixes, tokenizer.bos, tokenizer.eos, context, few)
        self._patience = Patience(_NANOSECONDS)

    def start(self, batch_size: int) -> AnyLengthState:
        return state_of([self.walker.start] * batch_size)

    def extend(self, state: State, ids_BT: Array) -> AnyLengthState:
        check_rows(state, ids_BT)
        return self.walker.walk(self._ids(ids_BT), expect_state(state, AnyLengthState))

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        if state is not None:
            check_rows(state, ids_BT)
        ids = self._ids(ids_BT)
        scores_BT = np.zeros(ids.shape, dtype=np.float64)

        def keep(rows: slice, places: slice, evidence: Ints, used: Ints, matched: Ints) -> None:
            log_probs = log_probs_of(_sheets(evidence, used), used.size, self.smoothing, self.uniform)
            scores_BT[rows, places] = log_probs.reshape(used.shape)

        before = self.start(len(ids)) if state is None else expect_state(state, AnyLengthState)
        self.walker.walk(ids, before, keep)
        scores_BT[ids == PAD] = 0.0
        scores_BT[ids == self.tokenizer.bos] = -np.inf
        return scores_BT

    def next_log_probs(self, state: State) -> Array:
        state, known = expect_state(state, AnyLengthState), {}  # rows of a batch often have the same context
        rows = []
        for b in range(len(state.depth_B)):
            levels = tuple(counted(state.row(b)))
            if levels not in known:
                known[levels] = self._next(levels)
            rows.append(known[levels])
        return np.stack(rows) if rows else np.zeros((0, self.tokenizer.vocab_size))

    @property
    def capabilities(self) -> Capabilities:
        """Kernels write and draft; scoring walks the suffixes of the training text."""
        costs = Costs(bulk=3e-6, token=5e-4, distribution=4e-4 + 3e-8 * self.tokenizer.vocab_size)
        return Capabilities(frozenset({"draft", "best_tokens", "write"}), costs)

    def write(
        self, state: State, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[AnyLengthState, Array, Array] | None:
        """Sample by kernels that look at the words seen after the contexts only; None for a few tokens."""
        if not self._patience.count(uniforms_BT.size):
            return None
        state = expect_state(state, AnyLengthState)
        return self._sampler.sample(state, choose, uniforms_BT, read_BT, self.next_log_probs)

    def draft(self, memory: Any, ids: np.ndarray, count: int) -> tuple[Any, np.ndarray]:
        """Draft by one call of a kernel; the memory is the levels and their number."""
        return self._sampler.draft(memory, self._ids(ids[None])[0], count)

    def best_tokens(self, longest: int) -> list[BestTokens]:
        """Return the contexts of training text, and the most common token after each."""
        boundary = self.tokenizer.eos if self.context == "line" else PAD
        return best_tokens(self.suffixes, self.tokenizer.bos, boundary, longest)

    @cached_property
    def _sampler(self) -> AnyLengthSampler:
        from chainrule.ngram.infinite.sampler import AnyLengthSampler

        return AnyLengthSampler(self.walker, self._unigrams, self.smoothing.at)

    def longest_match(self, text: str) -> Matches:
        """Return the longest match of a text with training text at each of its tokens: a long match is a copy."""
        found = []

        def keep(rows: slice, places: slice, evidence: Ints, used: Ints, matched: Ints) -> None:
            found.append(matched[0])  # the only row, which comes in pieces

        for row in self.sequences(text):
            self.walker.walk(row.astype(np.int64)[None], self.start(1), keep)
        length, occurrences = np.concatenate(found).T
        return Matches(length, occurrences)

    def on(self, device: str, dtype: str = "float32") -> AnyLengthModel:
        """Return this model, which always computes on the CPU in double precision."""
        if device != "cpu":
            raise SettingsError(
                f"the kind {KIND_NAME} computes on the CPU only, not on {device}: leave out the device"
            )
        return self

    def tensors(self) -> dict[str, np.ndarray]:
        suffixes = {name: getattr(self.suffixes, name) for name in ARRAYS}
        return {**suffixes, "discount": self.smoothing.discount, "strength": self.smoothing.strength}

    def _next(self, levels: tuple[ContextRange, ...]) -> Floats:
        p = self._unigrams.copy()
        for level in levels[1:]:
            self._lengthen(p, level)
        with np.errstate(divide="ignore"):  # <s> is impossible
            return np.log(p)

    def _lengthen(self, p: Floats, level: ContextRange) -> None:
        """Turn p_{k-1} into p_k, in place."""
        lo, hi, n = level
        events = self.suffixes.follower[lo:hi][self.suffixes.fresh[lo:hi] <= n + 1]
        words, counts = np.unique(events, return_counts=True)
        d, theta = self.smoothing.at(n)
        # p_k(w) = (max(N(· h w) - d, 0) + (θ + d N(h ·)) p_{k-1}(w)) / (N(· h ·) + θ)
        p *= (theta + d * len(words)) / (len(events) + theta)
        p[words] += (counts - d) / (len(events) + theta)

    @cached_property
    def _unigrams(self) -> Floats:
        p = np.full(self.tokenizer.vocab_size, self.uniform)
        p[self.tokenizer.bos] = 0.0
        self._lengthen(p, self.walker.start[0])
        return p

    @property
    def uniform(self) -> float:
        """p_{-1}: the probability of each word without any counts."""
        return 1.0 / (self.tokenizer.vocab_size - 1)

    def _ids(self, ids_BT: Array) -> Ints:
        ids: Ints = np.asarray(to_numpy(ids_BT), dtype=np.int64)
        check_ids(ids, self.tokenizer.vocab_size)
        return ids


def log_probs_of(sheets: list[Sheet], events: int, smoothing: Smoothing, uniform: float) -> Floats:
    """Return ln p of each of the events; `sheets` go from the shortest contexts to the longest."""
    p = np.full(events, uniform)
    for sheet in sheets:
        d, theta = smoothing.discount[sheet.group], smoothing.strength[sheet.group]
        # p_k(w) = (max(N(· h w) - d, 0) + (θ + d N(h ·)) p_{k-1}(w)) / (N(· h ·) + θ)
        lower = (theta + d * sheet.words) * p[sheet.event]
        p[sheet.event] = (np.maximum(sheet.count - d, 0.0) + lower) / (sheet.total + theta)
    log_probs: Floats = np.log(p)
    return log_probs


def _sheets(evidence: Ints, used: Ints) -> list[Sheet]:
    used = used.ravel()
    evidence = evidence.reshape(-1, 4, used.size)
    sheets = []
    for k in range(int(used.max(initial=0))):
        event = np.flatnonzero(used > k)
        length, count, total, words = evidence[k][:, event]
        group: Ints = group_of(length)
        sheets.append(Sheet(event, group, *(x.astype(np.float64) for x in (count, total, words))))
    return sheets


def group_of(length: Any) -> Any:
    """Return the index of the group of lengths, which have the same parameters, of a context of that length."""
    return np.searchsorted(LENGTHS, length, side="right")


# -- training ---------------------------------------------------------------------------------------------


def train_anygram(
    data: TrainingData, settings: AnyLengthSettings | None = None, *, small: int = SMALL, few: int = FEW
) -> AnyLengthModel:
    """Train a model: sort the contexts of the training text, and tune the smoothing on held-out text."""
    tokenizer = data.tokenizer
    with data.progress.task("sorting contexts"):
        suffixes = build(data.train.ids, tokenizer.vocab_size, tokenizer.eos, data.context, small=small)
    smoothing = DEFAULT
    if data.valid is None:
        data.progress.note("no held-out text to tune the smoothing on: it gets discounts that suit most text")
    else:
        walker = Walker(suffixes, tokenizer.bos, tokenizer.eos, data.context, few)
        with data.progress.task("tuning the smoothing"):
            smoothing = tune(walker, np.asarray(data.valid.ids[:_TUNED_ON], dtype=np.int64))
    lm = AnyLengthModel(suffixes, smoothing, tokenizer, data.context, settings=settings, few=few)
    lm.metrics = {
        "discounts": smoothing.discount.round(4).tolist(),
        "strengths": smoothing.strength.round(4).tolist(),
    }
    return lm


def tune(walker: Walker, held_out: Ints) -> Smoothing:
    """Return the parameters that make held-out text most likely, one after the other by golden-section search."""
    evidence, used = np.empty((MOST_LEVELS, 4, len(held_out)), np.int64), np.empty(len(held_out), np.int64)

    def keep(rows: slice, places: slice, found: Ints, levels: Ints, matched: Ints) -> None:
        evidence[: levels.max(), :, places] = found[: levels.max(), :, 0]  # cells of other levels cost nothing
        used[places] = levels[0]

    walker.walk(held_out[None], state_of([walker.start]), keep)
    sheets = _sheets(evidence, used)
    seen = np.bincount(np.concatenate([sheet.group for sheet in sheets]), minlength=len(LENGTHS) + 1)
    uniform = 1.0 / (walker.suffixes.vocab_size - 1)
    # θ is a scale, so the search is for ln θ
    parameters = np.stack([DEFAULT.discount, np.log(DEFAULT.strength)])

    def surprisal(value: float, row: int, group: int) -> float:
        parameters[row, group] = value
        smoothing = Smoothing(parameters[0], np.exp(parameters[1]))
        return -float(log_probs_of(sheets, len(held_out), smoothing, uniform).mean())

    for _ in range(_ROUNDS):
        for group in np.flatnonzero(seen >= _ENOUGH_EVENTS).tolist():
            for row, (low, high) in enumerate([(0.01, 0.99), (math.log(1e-3), math.log(1e4))]):
                parameters[row, group] = _least(partial(surprisal, row=row, group=group), low, high)
    return Smoothing(parameters[0], np.exp(parameters[1]))


def _least(function: Callable[[float], float], low: float, high: float) -> float:
    """Return the approximate minimiser of a unimodal function on [low, high], by golden-section search."""
    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = function(left), function(right)
    for _ in range(_CUTS):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - _GOLDEN * (high - low)
            at_left = function(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + _GOLDEN * (high - low)
            at_right = function(right)
    return (low + high) / 2
