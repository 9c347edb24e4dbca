"""The chain rule, slowly and obviously: the reference that every fast path is checked against.

These functions use `start`, `extend` and `next_log_probs` only, one token and one row at a time.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.arrays import PAD, Array, check_ids, to_numpy
from chainrule.contract.lm import LanguageModel, State, check_rows


@dataclass(frozen=True)
class PrefixState(State):
    """The ids that each row has read after <s>: the state of a model that computes from all of them."""

    rows: tuple[tuple[int, ...], ...]

    def __len__(self) -> int:
        return len(self.rows)

    def select(self, rows: Array) -> PrefixState:
        return PrefixState(tuple(self.rows[row] for row in to_numpy(rows).tolist()))

    def join(self, other: PrefixState) -> PrefixState:
        return PrefixState(self.rows + other.rows)

    def extended(self, ids_BT: Array) -> PrefixState:
        """Return the prefixes with more ids; padding adds none."""
        check_rows(self, ids_BT)
        added = [[token for token in row if token != PAD] for row in to_numpy(ids_BT).tolist()]
        return PrefixState(tuple((*row, *more) for row, more in zip(self.rows, added, strict=True)))


class PrefixModel(LanguageModel):
    """A model without arrays that computes `log_probs_after` the ids that a row has read."""

    settings = None

    @abstractmethod
    def log_probs_after(self, ids: tuple[int, ...]) -> np.ndarray:
        """Return ln p of every next token after <s> and the ids, [V]."""

    def start(self, batch_size: int) -> PrefixState:
        """Return the state after <s>."""
        return PrefixState(((),) * batch_size)

    def extend(self, state: State, ids_BT: Array) -> PrefixState:
        """Return the state after more tokens."""
        assert isinstance(state, PrefixState)
        check_ids(ids_BT, self.tokenizer.vocab_size)
        return state.extended(ids_BT)

    def next_log_probs(self, state: State) -> np.ndarray:
        """Return ln p of every next token."""
        assert isinstance(state, PrefixState)
        return np.stack([self.log_probs_after(row) for row in state.rows])

    def score(self, ids_BT: Array, state: State | None = None) -> np.ndarray:
        """Return ln p of each token after those before it."""
        state = self.start(len(ids_BT)) if state is None else state
        self.extend(state, ids_BT)  # which refuses what is not ids, or not as many rows
        return score(self, to_numpy(ids_BT), state)

    def tensors(self) -> Mapping[str, np.ndarray]:
        """Return no arrays: the model is code."""
        return {}

    def on(self, device: str, dtype: str = "float32") -> PrefixModel:
        """Return the model itself: it computes on the CPU only."""
        return self


def score(lm: LanguageModel, ids_BT: np.ndarray, first: State | None = None) -> np.ndarray:
    """Return ln p of each token, looked up in the distribution after its prefix: the reference for `lm.score`."""
    scores_BT = np.zeros(ids_BT.shape, dtype=np.float64)
    for b, row in enumerate(ids_BT):
        state = lm.start(1) if first is None else first.select(np.asarray([b]))
        for t, token in enumerate(row):
            if token == PAD:
                break
            # ln p(x) = Σ_t ln p(x_t | <s>, x_<t)
            scores_BT[b, t] = to_numpy(lm.next_log_probs(state))[0, token]
            state = step(lm, state, int(token))
    return scores_BT


def step(lm: LanguageModel, state: State, token: int) -> State:
    """Return the one-row state after one more token."""
    return lm.extend(state, np.asarray([[token]]))


def after(lm: LanguageModel, prefix: Sequence[int]) -> State:
    """Return the one-row state after <s> and the prefix, token by token."""
    state = lm.start(1)
    for token in prefix:
        state = step(lm, state, int(token))
    return state


def every_sequence(lm: LanguageModel, max_tokens: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """Return every sequence that ends in </s> or has `max_tokens` tokens, with ln p; leave out those of p = 0.

    The probabilities sum to one: the sequences are the leaves of a tree, and at each node the branches sum to one.
    """

    def grow(prefix: tuple[int, ...], log_prob: float) -> Iterator[tuple[tuple[int, ...], float]]:
        if len(prefix) == max_tokens or (prefix and prefix[-1] == lm.tokenizer.eos):
            yield prefix, log_prob
            return
        next_log_probs = to_numpy(lm.next_log_probs(after(lm, prefix)))[0]
        for token in np.flatnonzero(next_log_probs > -np.inf):
            yield from grow((*prefix, int(token)), log_prob + float(next_log_probs[token]))

    return grow((), 0.0)
