"""The contract: what a language model is, whatever is inside.

A language model assigns every sequence of tokens a probability, one token at a time:

    ln p(x) = Σ_t ln p(x_t | <s>, x_<t)

Training, decoding, evaluation and serving know this file and nothing else of a model. Five methods are the whole
promise: `start`, `extend`, `next_log_probs` and `score` here, `save` from `model.py`. What a model can do faster
in a way of its own is a protocol of `fast_paths.py`; the functions below the class are the one place that chooses.

Arrays follow the Python Array API standard: an n-gram model computes in NumPy, a neural one in torch on its
own device, and code written over the contract serves both. A batch of sequences is one integer array `ids_BT`;
rows shorter than the longest are filled up at the right with PAD, which is no token. A model takes integer arrays
of either library and returns arrays of its own.

Axes in names: B batch, T time, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np
from array_api_compat import array_namespace

from chainrule.arrays import PAD, Array, batches, checked, to_numpy
from chainrule.contract.capabilities import (
    Choose,
    Drafted,
    DraftRules,
    Drafts,
    Found,
    GivesNextProbs,
    Predicts,
    Prepares,
    Reads,
    ReadsAhead,
    ScoresSequences,
    ScoresText,
    Searches,
    SearchRules,
    Writes,
    WritesDrafted,
)
from chainrule.contract.model import Model
from chainrule.errors import CorpusError
from chainrule.folder import TEXT, Context
from chainrule.system.plugins import import_object
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus, as_items
from chainrule.tokens.base import Ids, Tokenizer, encode_in_parallel, line_bounds, utf8

__all__ = [
    "Context",
    "LanguageModel",
    "State",
    "check_rows",
    "draft",
    "next_probs",
    "predictions",
    "prepare",
    "read",
    "read_ahead",
    "score_choices",
    "score_in_pieces",
    "score_rows",
    "score_sequences",
    "score_text",
    "search",
    "start_token",
    "tokens_at_once",
    "write",
]

_BULK_PIECE = 1 << 20
_PIECE = 1 << 14  # tokens; a network gains nothing from more at once, and a progress bar moves


def start_token(tokenizer: Tokenizer, context: Context) -> int:
    """The token that a network reads for <s>.

    With stream context there is one <s> in the training text, too few to learn from: networks read </s> there,
    which ends every line. A published model reads what its makers had it read.
    """
    if tokenizer.start is not None:
        return tokenizer.start
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


def check_rows(state: State, ids_BT: Array) -> None:
    """Refuse ids with another number of rows than the state has: one row must not silently serve for several."""
    if len(ids_BT) != len(state):
        raise ValueError(f"{len(ids_BT)} rows of tokens for a state of {len(state)}")


SomeState = TypeVar("SomeState", bound=State)


def expect_state(state: object, kind: type[SomeState]) -> SomeState:
    """The state, if it is of the kind that the model makes."""
    if not isinstance(state, kind):
        found = type(state).__name__
        raise TypeError(
            f"expected a state of this model, as start(1) and extend(state, ids) return it, found {found}"
        )
    return state


class LanguageModel(Model):
    """A probability for every next token, after every prefix."""

    purpose, verb = "predict text", "generate"
    tokenizer: Tokenizer
    context: Context
    normalised: bool = True
    """Whether what it returns as ln p is that of probabilities; if not, perplexity means nothing."""

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

    def log_prob(self, text: Text) -> float:
        """ln p of a text, or of several together; each line ends in </s>. `chainrule.score` gives each text's.

        With line context the lines are independent sequences, with stream context those of a text are one.
        """
        return -float(np.sum(self.surprisals(text)))

    def surprisals(self, text: Text) -> np.ndarray:
        """-ln p of each token of a text, or of several, line ends included: as many as `encode_lines` gives."""
        scores = [score_text(self, block) for block in _blocks(text, self.context)]
        return -checked(np.concatenate(scores), normalised=self.normalised)

    def perplexity(self, text: Text) -> float:
        """exp of the mean surprisal of all tokens: how many equally likely ones would be as hard to predict."""
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(self.surprisals(text))))

    def suggest(self, text: str = "", k: int = 5, *, at_least: float = 0.0) -> list[Any]:
        """The k likeliest words that complete a text or follow it, as `chainrule.suggest` gives them."""
        # by name: decoding stands above the contract, which it uses
        suggest: Callable[..., list[Any]] = import_object("chainrule.decode.suggest:suggest")
        return suggest(self, text, k, at_least=at_least)

    def sequences(self, text: str) -> list[np.ndarray]:
        """The text's ids as the sequences this model scores: a row per line, or one row."""
        ids = encode_in_parallel(self.tokenizer, _block(text), as_text=self.context == "stream")
        return [ids[start:end] for start, end in zip(*self.bounds(ids), strict=True)]

    def bounds(self, ids: Ids) -> tuple[np.ndarray, np.ndarray]:
        """Where the sequences of a text begin in its ids, and one past where they end."""
        if self.context == "line":
            return line_bounds(ids, self.tokenizer.eos)
        return np.zeros(1, np.int64), np.asarray([len(ids)])


def _blocks(text: Text, context: Context) -> list[bytes]:
    """A text in pieces that can be scored each for itself."""
    if isinstance(text, str):
        return [_block(text)]
    items = [] if isinstance(text, Corpus) else as_items(text)
    if items and isinstance(items[0], str):
        blocks = [_block(item).removesuffix(b"\n") + b"\n" for item in items]
        return blocks if context == "stream" else [b"".join(blocks)]
    corpus = as_corpus(text if isinstance(text, Corpus) else items)
    blocks = list(corpus.blocks())
    if not blocks:
        raise CorpusError(f"{corpus.name} is empty")
    return blocks if context == "line" else [b"".join(blocks)]


def _block(text: str) -> bytes:
    block = utf8(text)
    return block.replace(b"\r\n", b"\n") if b"\r" in block else block


# The ways to call a model: each takes the model's fast path where it has one, and else the plain way.


def score_text(lm: LanguageModel, block: bytes) -> np.ndarray:
    """ln p of every token of a text in UTF-8 whose lines end in LF."""
    if isinstance(lm, ScoresText) and (scores := lm.score_text(block)) is not None:
        return scores
    ids = encode_in_parallel(lm.tokenizer, block, as_text=lm.context == "stream")
    return score_sequences(lm, ids, *lm.bounds(ids))


def score_sequences(lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """ln p of every id of sequences that lie one after the other, each from a start to its end."""
    if isinstance(lm, ScoresSequences) and (scores := lm.score_sequences(ids, starts, ends)) is not None:
        return scores
    scores = np.empty(len(ids))
    for places, some in _in_batches(lm, ids, starts, ends):
        scores[places] = some
    return scores


def score_in_pieces(
    lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[np.ndarray]:
    """What `score_sequences` returns, some whole sequences at a time; what is no probability is an error."""
    first, at_once = 0, tokens_at_once(lm)
    while first < len(starts):
        last = max(int(np.searchsorted(ends, starts[first] + at_once, side="right")), first + 1)
        piece = ids[starts[first] : ends[last - 1]]
        begins = starts[first:last] - starts[first]
        scores = score_sequences(lm, piece, begins, ends[first:last] - starts[first])
        yield checked(scores, normalised=lm.normalised)
        first = last


def _in_batches(
    lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches of sequences of like length: the indices of their tokens in `ids`, and ln p of those tokens."""
    for rows in batches(ends - starts, tokens_at_once(lm)):
        lengths = ends[rows] - starts[rows]
        # the indices of one row after the other: from its start on
        places = np.arange(lengths.sum()) + np.repeat(starts[rows] - (np.cumsum(lengths) - lengths), lengths)
        inside_BT = np.arange(lengths.max()) < lengths[:, None]
        ids_BT = np.full(inside_BT.shape, PAD, dtype=np.int64)
        ids_BT[inside_BT] = ids[places]
        yield places, to_numpy(lm.score(ids_BT))[inside_BT]


def score_rows(lm: LanguageModel, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """ln p of each token of each row, in their order; a result that is no probability is an error."""
    if not rows:
        return []
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    scores = checked(score_sequences(lm, np.concatenate(rows), starts, ends), normalised=lm.normalised)
    return [scores[start:end] for start, end in zip(starts, ends, strict=True)]


def tokens_at_once(lm: LanguageModel) -> int:
    """How many tokens of a long text to score in one call, so that the call is fast and progress can be shown."""
    return _BULK_PIECE if isinstance(lm, ScoresSequences) else _PIECE


def read(lm: LanguageModel, state: State, ids_BT: Array) -> tuple[Array, State]:
    """What `score` returns for the ids from the state, and the state after them."""
    if isinstance(lm, Reads) and (found := lm.read(state, ids_BT)) is not None:
        return found
    return lm.score(ids_BT, state), lm.extend(state, ids_BT)


def predictions(lm: LanguageModel, state: State, ids_BT: Array) -> Iterator[Array]:
    """ln p of every token before each of the ids, in arrays [B, t, V]; what stands before padding means nothing."""
    if isinstance(lm, Predicts) and (found := lm.predictions(state, ids_BT)) is not None:
        yield from found
        return
    check_rows(state, ids_BT)
    for t in range(ids_BT.shape[1]):
        yield lm.next_log_probs(state)[:, None]
        state = lm.extend(state, ids_BT[:, t : t + 1])


def read_ahead(lm: LanguageModel, state: State, ids_BT: Array) -> tuple[Array, Callable[[int], State]]:
    """ln p of every token after each of the ids, [B, T, V], and a function from n to the state after n of them."""
    if isinstance(lm, ReadsAhead) and (found := lm.read_ahead(state, ids_BT)) is not None:
        return found
    after = lm.extend(state, ids_BT)
    pieces = [*predictions(lm, state, ids_BT), lm.next_log_probs(after)[:, None]]
    log_probs_BTV = array_namespace(pieces[-1]).concat(pieces, axis=1)[:, 1:]
    return log_probs_BTV, lambda n: after if n == ids_BT.shape[1] else lm.extend(state, ids_BT[:, :n])


def draft(lm: LanguageModel, memory: Any, ids: np.ndarray, count: int) -> tuple[Any, np.ndarray]:
    """What a model remembers after more tokens of one text, and `count` tokens that it guesses to follow."""
    if isinstance(lm, Drafts) and (found := lm.draft(memory, ids, count)) is not None:
        return found
    state = lm.extend(lm.start(1) if memory is None else memory, ids[None])
    guess, last = np.zeros(count, dtype=np.int64), state
    for t in range(count):
        guess[t] = int(to_numpy(lm.next_log_probs(last)).argmax())
        if t + 1 < count:
            last = lm.extend(last, guess[None, t : t + 1])
    return state, guess


def score_choices(lm: LanguageModel, state: State, rows_R: np.ndarray, ids_R: np.ndarray) -> np.ndarray:
    """ln p of a token after a row of the state, for each of R pairs of a row and a token."""
    if isinstance(lm, ScoresSequences):  # a token by itself costs it little, and all of the vocabulary much
        found_R: np.ndarray = to_numpy(lm.score(ids_R[:, None], state.select(rows_R)))[:, 0]
    else:
        found_R = to_numpy(lm.next_log_probs(state))[rows_R, ids_R]
    return found_R


def next_probs(lm: LanguageModel, state: State) -> np.ndarray:
    """p of every token after each row of the state, [B, V], in single precision; a new array."""
    if isinstance(lm, GivesNextProbs) and (probs := lm.next_probs(state)) is not None:
        return probs
    return np.exp(to_numpy(lm.next_log_probs(state)).astype(np.float32))


def prepare(lm: LanguageModel) -> None:
    """Let a model load what it loads when it has been asked for much, before it is."""
    if isinstance(lm, Prepares):
        lm.prepare()


def write(
    lm: LanguageModel, state: State, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
) -> tuple[State, Array, Array] | None:
    """Several tokens a row by the model itself: state, tokens_BT and ln p; None if it does not offer that here."""
    return lm.write(state, choose, uniforms_BT, read_BT) if isinstance(lm, Writes) else None


def search(
    lm: LanguageModel, state: State, rules: SearchRules, live_PW: np.ndarray, lengths_PW: np.ndarray
) -> list[list[Found]] | None:
    """A beam search by the model itself (`fast_paths.Searches`); None if it does not offer that here."""
    return lm.search(state, rules, live_PW, lengths_PW) if isinstance(lm, Searches) else None


def write_drafted(
    lm: LanguageModel, state: State, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
) -> Drafted | None:
    """Tokens by the model itself, with drafts (`fast_paths.WritesDrafted`); None if it does not offer that here."""
    if not isinstance(lm, WritesDrafted):
        return None
    return lm.write_drafted(state, rules, last, uniforms, most)
