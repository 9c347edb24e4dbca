"""The contract: what a language model is, whatever is inside.

A language model assigns every sequence of tokens a probability, one token at a time:

    ln p(x) = Σ_t ln p(x_t | <s>, x_<t)

Training, decoding, evaluation and serving know this file and nothing else of a model. Five methods are the whole
promise: `start`, `extend`, `next_log_probs` and `score` here, `save` from `model.py`. A model declares what it
offers beyond them, and what things cost it, in `capabilities`; the functions below the class are the one place that
chooses between a fast path and the plain way.

Arrays follow the Python Array API standard: an n-gram model computes in NumPy, a neural one in torch on its
own device, and code written over the contract serves both. A batch of sequences is one integer array `ids_BT`;
rows shorter than the longest are filled up at the right with PAD, which is no token. A model takes integer arrays
of either library and returns arrays of its own.

Axes in names: B batch, T time, V vocabulary.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, Self, TypeVar

import numpy as np

from chainrule.arrays import PAD, Array, array_namespace, batches, checked, to_numpy
from chainrule.contract.capabilities import Capabilities
from chainrule.contract.model import Model
from chainrule.errors import CorpusError
from chainrule.folder import TEXT, Context
from chainrule.system.plugins import import_object
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus, as_items
from chainrule.tokens.base import Ids, Tokenizer, encode_in_parallel, line_bounds, utf8

__all__ = ["Context", "LanguageModel", "State", "check_rows", "expect_state"]
"""What a model of another package needs; the rest is for code that uses models."""

_LEAST_AT_ONCE, _MOST_AT_ONCE = 1 << 14, 1 << 20  # tokens
_SECONDS_AT_ONCE = 0.5  # of scoring, after which a progress bar moves


def start_token(tokenizer: Tokenizer, context: Context) -> int:
    """Return the token that a network reads for <s>.

    With stream context the training text has a single <s>, too few to learn from. Networks then read </s>, which
    ends every line. A published model reads the token that it was trained with.
    """
    if tokenizer.start is not None:
        return tokenizer.start
    return tokenizer.bos if context == "line" else tokenizer.eos


class State(ABC):
    """What a model remembers of a batch of prefixes. A value: nothing a model does changes it."""

    @abstractmethod
    def __len__(self) -> int:
        """Return the number of rows."""

    @abstractmethod
    def select(self, rows: Array) -> Self:
        """Return the state whose row i is row rows[i] of this one: reorder, repeat or drop rows."""

    @abstractmethod
    def join(self, other: Self) -> Self:
        """Return the rows of this state followed by those of another state of the same model."""

    def keys(self) -> list[Hashable] | None:
        """Return a hashable value for each row. Rows of equal keys predict the same, now and after any tokens.

        None if the model has no such values: a network remembers every token that it has read.
        """
        return None


def check_rows(state: State, ids_BT: Array) -> None:
    """Raise ValueError if ids and state differ in their number of rows: one row must not serve for several."""
    if len(ids_BT) != len(state):
        raise ValueError(f"{len(ids_BT)} rows of tokens for a state of {len(state)}")


SomeState = TypeVar("SomeState", bound=State)


def expect_state(state: object, kind: type[SomeState]) -> SomeState:
    """Return the state if it is of the class that the model makes; else raise TypeError."""
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
    """False if it returns scores that are no probabilities: perplexity then has no meaning."""
    needs_source: bool = False
    """True if the model needs a source, such as a sentence to translate, before it can begin."""

    @abstractmethod
    def start(self, batch_size: int) -> State:
        """Return the state after <s>, in every row."""

    @abstractmethod
    def extend(self, state: State, ids_BT: Array) -> State:
        """Return the state after the tokens of each row; padding changes nothing. T = 1 is one step."""

    @abstractmethod
    def next_log_probs(self, state: State) -> Array:
        """Return ln p(x | prefix) for every token x, [B, V]. <s> is never predicted: its column is -inf."""

    @abstractmethod
    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        """Return ln p(x_t | prefix, x_<t), [B, T]; 0 on padding. The prefix is <s>, or what `state` has read."""

    @abstractmethod
    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        """Return this model on a device and in a precision (`Model.on`)."""

    @property
    def capabilities(self) -> Capabilities:
        """What the model offers beyond the contract, and what things cost it."""
        return Capabilities()

    # What follows is conveniences over the contract; no model overrides them.

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Its one tokenizer, by its name in the model folder."""
        return {TEXT: self.tokenizer}

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} of {self.tokenizer.vocab_size:,} {self.tokenizer.name} tokens, {self.context}>"
        )

    def log_prob(self, text: Text) -> float:
        """Return ln p of a text, or of several together; each line ends in </s>. See also `chainrule.score`.

        With line context the lines are independent sequences; with stream context the lines of a text are one.
        """
        return -float(np.sum(self.surprisals(text)))

    def surprisals(self, text: Text) -> np.ndarray:
        """Return -ln p of each token of a text, or of several, line ends included."""
        scores = [score_text(self, block) for block in _blocks(text, self.context)]
        return -checked(np.concatenate(scores), normalised=self.normalised)

    def perplexity(self, text: Text) -> float:
        """Return exp of the mean surprisal: the number of equally likely tokens that are as hard to predict."""
        with np.errstate(over="ignore"):
            return float(np.exp(np.mean(self.surprisals(text))))

    def generate(self, *arguments: Any, **options: Any) -> str:
        """Return `chainrule.generate(lm, prompt, ...)`: the prompt and a continuation."""
        return _decode("generate")(self, *arguments, **options)  # type: ignore[no-any-return]

    def suggest(self, *arguments: Any, **options: Any) -> Any:
        """Return `chainrule.suggest(lm, text, ...)`: words that complete a text, or follow it."""
        return _decode("suggest")(self, *arguments, **options)

    def sequences(self, text: str) -> list[np.ndarray]:
        """Return the ids of a text as the sequences that this model scores: a row per line, or one row."""
        ids = encode_in_parallel(self.tokenizer, _block(text), as_text=self.context == "stream")
        return [ids[start:end] for start, end in zip(*self.bounds(ids), strict=True)]

    def bounds(self, ids: Ids) -> tuple[np.ndarray, np.ndarray]:
        """Return where the sequences of a text start in its ids, and where they end (exclusive)."""
        if self.context == "line":
            return line_bounds(ids, self.tokenizer.eos)
        return np.zeros(1, np.int64), np.asarray([len(ids)])


def _decode(name: str) -> Callable[..., Any]:
    """Return a function of decode/, which builds on this contract: it is imported when it is called."""
    found: Callable[..., Any] = import_object(f"chainrule.decode.{name}:{name}")
    return found


def _blocks(text: Text, context: Context) -> list[bytes]:
    """Cut a text into pieces that can be scored independently."""
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


# The ways to call a model: each takes the fast path that the model declares, or else the plain way.


def offered(lm: LanguageModel, name: str) -> Any:
    """Return the method of that name if the model declares it (`capabilities.Offers`); else None."""
    return getattr(lm, name) if name in lm.capabilities.offers else None


def ask(lm: LanguageModel, name: str, *arguments: Any) -> Any:
    """Return the result of a fast path; None if the model has no such path, or declines: take the plain way."""
    fast = offered(lm, name)
    return None if fast is None else fast(*arguments)


def score_text(lm: LanguageModel, block: bytes) -> np.ndarray:
    """Return ln p of every token of a text in UTF-8 whose lines end in LF."""
    if (found := ask(lm, "score_text", block)) is not None:
        return np.asarray(found)
    ids = encode_in_parallel(lm.tokenizer, block, as_text=lm.context == "stream")
    return score_sequences(lm, ids, *lm.bounds(ids))


def score_sequences(lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return ln p of every id of consecutive sequences, each from a start to its end."""
    if (found := ask(lm, "score_sequences", ids, starts, ends)) is not None:
        return np.asarray(found)
    scores = np.empty(len(ids))
    for places, ids_BT in padded_batches(ids, starts, ends, tokens_at_once(lm)):
        scores[places] = to_numpy(lm.score(ids_BT))[ids_BT != PAD]
    return scores


def score_in_pieces(
    lm: LanguageModel, ids: np.ndarray, starts: np.ndarray, ends: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield what `score_sequences` returns, some whole sequences at a time; raise an error for NaN."""
    first, at_once = 0, tokens_at_once(lm)
    while first < len(starts):
        last = max(int(np.searchsorted(ends, starts[first] + at_once, side="right")), first + 1)
        piece = ids[starts[first] : ends[last - 1]]
        begins = starts[first:last] - starts[first]
        scores = score_sequences(lm, piece, begins, ends[first:last] - starts[first])
        yield checked(scores, normalised=lm.normalised)
        first = last


def padded_batches(
    ids: np.ndarray, starts: np.ndarray, ends: np.ndarray, most: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield batches of sequences of like length: the indices of their tokens in `ids`, and padded rows of ids."""
    for rows in batches(ends - starts, most):
        lengths = ends[rows] - starts[rows]
        # the indices of one row after the other: from its start on
        places = np.arange(lengths.sum()) + np.repeat(starts[rows] - (np.cumsum(lengths) - lengths), lengths)
        inside_BT = np.arange(lengths.max()) < lengths[:, None]
        ids_BT = np.full(inside_BT.shape, PAD, dtype=np.int64)
        ids_BT[inside_BT] = ids[places]
        yield places, ids_BT


def score_rows(lm: LanguageModel, rows: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return ln p of each token of each row; raise an error for NaN."""
    if not rows:
        return []
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    scores = checked(score_sequences(lm, np.concatenate(rows), starts, ends), normalised=lm.normalised)
    return [scores[start:end] for start, end in zip(starts, ends, strict=True)]


def tokens_at_once(lm: LanguageModel) -> int:
    """Return how many tokens of a long text to score in one call: many, but so that a progress bar moves."""
    tokens = int(_SECONDS_AT_ONCE / lm.capabilities.costs.bulk)
    return min(max(tokens, _LEAST_AT_ONCE), _MOST_AT_ONCE)


def read(lm: LanguageModel, state: State, ids_BT: Array) -> tuple[Array, State]:
    """Return the scores of the ids after the state, and the state after the ids."""
    found: tuple[Array, State] | None = ask(lm, "read", state, ids_BT)
    return (lm.score(ids_BT, state), lm.extend(state, ids_BT)) if found is None else found


def predictions(lm: LanguageModel, state: State, ids_BT: Array) -> Iterator[Array]:
    """Yield ln p of every token before each of the ids, as arrays [B, t, V]; without meaning before padding."""
    if (found := ask(lm, "predictions", state, ids_BT)) is not None:
        yield from found
        return
    check_rows(state, ids_BT)
    for t in range(ids_BT.shape[1]):
        yield lm.next_log_probs(state)[:, None]
        state = lm.extend(state, ids_BT[:, t : t + 1])


def read_ahead(lm: LanguageModel, state: State, ids_BT: Array) -> tuple[Array, Callable[[int], State]]:
    """Return ln p of every token after each of the ids, [B, T, V], and a function: n -> the state after n ids."""
    found: tuple[Array, Callable[[int], State]] | None = ask(lm, "read_ahead", state, ids_BT)
    if found is not None:
        return found
    after = lm.extend(state, ids_BT)
    pieces = [*predictions(lm, state, ids_BT), lm.next_log_probs(after)[:, None]]
    log_probs_BTV = array_namespace(pieces[-1]).concat(pieces, axis=1)[:, 1:]
    return log_probs_BTV, lambda n: after if n == ids_BT.shape[1] else lm.extend(state, ids_BT[:, :n])


def draft(lm: LanguageModel, memory: Any, ids: np.ndarray, count: int) -> tuple[Any, np.ndarray]:
    """Return the memory of a model after more tokens of one text, and `count` tokens that it guesses next."""
    found: tuple[Any, np.ndarray] | None = ask(lm, "draft", memory, ids, count)
    if found is not None:
        return found
    state = lm.extend(lm.start(1) if memory is None else memory, ids[None])
    guess, last = np.zeros(count, dtype=np.int64), state
    for t in range(count):
        guess[t] = int(to_numpy(lm.next_log_probs(last)).argmax())
        if t + 1 < count:
            last = lm.extend(last, guess[None, t : t + 1])
    return state, guess


def score_choices(lm: LanguageModel, state: State, rows_R: np.ndarray, ids_R: np.ndarray) -> np.ndarray:
    """Return ln p of a token after a row of the state, for each of R pairs of a row and a token."""
    costs = lm.capabilities.costs
    if len(ids_R) * costs.token < len(state) * costs.distribution:
        found_R: np.ndarray = to_numpy(lm.score(ids_R[:, None], state.select(rows_R)))[:, 0]
    else:
        found_R = to_numpy(lm.next_log_probs(state))[rows_R, ids_R]
    return found_R


def next_probs(lm: LanguageModel, state: State) -> np.ndarray:
    """Return p of every token after each row of the state, [B, V], in single precision; a new array."""
    if (found := ask(lm, "next_probs", state)) is not None:
        return np.asarray(found)
    return np.exp(to_numpy(lm.next_log_probs(state)).astype(np.float32))


def prepare(lm: LanguageModel) -> None:
    """Let a model load its slow parts, such as compiled code, before the first request."""
    ask(lm, "prepare")
