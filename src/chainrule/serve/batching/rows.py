"""The texts that are being generated, as rows of one state: they join it, grow together, and leave it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from chainrule.arrays import PAD, pad, to_numpy
from chainrule.contract.lm import LanguageModel, State, predictions
from chainrule.decode.generate import end_of
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import write_steps
from chainrule.decode.strategies import EachRow, Strategy
from chainrule.errors import ModelError
from chainrule.serve.batching.requests import Generated, Ticket

PIECE_SECONDS = 0.02
"""About how long the next piece of a few rows takes: no request waits much longer to join them."""
ROW_SECONDS = 0.0003
"""Seconds that each row adds to a piece: to hand out a piece costs the same for few tokens as for many."""
MOST_STEPS = 64


@dataclass(eq=False)
class Row:
    """A text that is being generated."""

    ticket: Ticket
    number: int
    """Its number among the texts of the request."""
    strategy: Strategy
    uniforms: Uniforms
    read: list[int]
    """The tokens read and generated so far."""
    left: int
    """How many more tokens it may have."""


@dataclass
class Pace:
    """About how long a step of a model's rows takes, measured on the steps so far."""

    step_seconds: float = PIECE_SECONDS

    def steps(self, rows: int) -> int:
        """Return the number of steps that make a piece of a number of rows."""
        return int(np.clip((PIECE_SECONDS + ROW_SECONDS * rows) / self.step_seconds, 1, MOST_STEPS))

    def note(self, seconds: float, steps: int) -> None:
        """Record how long a piece took."""
        self.step_seconds = 0.5 * (self.step_seconds + seconds / steps)


@dataclass
class Rows:
    """Rows of one model that grow together."""

    lm: LanguageModel
    rows: list[Row] = field(default_factory=list)
    state: State | None = None
    pace: Pace = field(default_factory=Pace)

    def __len__(self) -> int:
        return len(self.rows)

    def join(self, rows: Sequence[Row], state: State) -> None:
        """Add rows, whose state is given."""
        self.rows += rows
        self.state = state if self.state is None else self.state.join(state)

    def keep(self, places: Sequence[int]) -> None:
        """Drop all rows but those at these places."""
        if len(places) == len(self.rows):
            return
        self.rows = [self.rows[place] for place in places]
        self.state = self.state.select(np.asarray(places, dtype=np.int64)) if self.rows and self.state else None

    def part(self, places: Sequence[int]) -> Rows:
        """Return the rows at these places as rows of their own."""
        assert self.state is not None
        state = self.state.select(np.asarray(places, dtype=np.int64))
        return Rows(self.lm, [self.rows[place] for place in places], state, self.pace)

    def advance(self) -> list[tuple[Ticket, Generated]]:
        """Generate the next few tokens of each row; rows that have ended leave."""
        assert self.state is not None
        steps = min(self.pace.steps(len(self)), max(row.left for row in self.rows))
        end, strategy, before, began = end_of(self.lm), self._strategy(), self.state, time.perf_counter()
        uniforms_BT = np.concatenate([row.uniforms.draw(np.asarray([row.number]), steps) for row in self.rows])
        read_BT = (
            pad([row.read for row in self.rows]) if strategy.looks_back else np.zeros((len(self), 0), np.int64)
        )
        self.state, tokens_BT, scores_BT = write_steps(self.lm, before, strategy, read_BT, uniforms_BT, end)
        tokens, scores = to_numpy(tokens_BT), to_numpy(scores_BT)
        if np.isnan(scores).any():
            raise ModelError("the model gives NaN: something in it has gone wrong")
        generated, active = [], []
        for place, row in enumerate(self.rows):
            ids = [token for token in tokens[place, : row.left].tolist() if token != PAD]
            row.left -= len(ids)
            row.read += ids
            ended = len(ids) < min(steps, row.left + len(ids)) or (bool(ids) and ids[-1] == end)
            finish = "stop" if ended else "length" if row.left == 0 else None
            tops = _tops(self.lm, before, place, ids, row.ticket.ask.top) if row.ticket.ask.top else None
            piece = Generated(row.number, ids, scores[place, : len(ids)].tolist(), tops, finish)
            generated.append((row.ticket, piece))
            if finish is None:
                active.append(place)
        self.keep(active)
        self.pace.note(time.perf_counter() - began, steps)  # alternatives take time too
        return generated

    def _strategy(self) -> Strategy:
        """Return the strategy of all rows; where they differ, one that has each row's own."""
        distinct = [*dict.fromkeys(row.strategy for row in self.rows)]
        if len(distinct) == 1:
            return distinct[0]
        return EachRow(tuple(distinct), tuple(distinct.index(row.strategy) for row in self.rows))


def _tops(lm: LanguageModel, state: State, row: int, ids: list[int], count: int) -> list[list[tuple[int, float]]]:
    """Return the most likely tokens at the place of each token that follows a row of the state, with their ln p."""
    if not ids:
        return []
    found = []
    for log_probs_BTV in predictions(lm, state.select(np.asarray([row])), np.asarray([ids], dtype=np.int64)):
        found += [most_likely(log_probs_V, count) for log_probs_V in to_numpy(log_probs_BTV)[0]]
    return found


def most_likely(log_probs_V: np.ndarray, count: int) -> list[tuple[int, float]]:
    """Return the most likely tokens with their ln p, best first; none that is impossible."""
    count = min(count, len(log_probs_V))
    best = np.argpartition(-log_probs_V, count - 1)[:count]
    best = best[np.argsort(-log_probs_V[best], kind="stable")]
    return [(int(token), float(log_probs_V[token])) for token in best if log_probs_V[token] > -np.inf]
