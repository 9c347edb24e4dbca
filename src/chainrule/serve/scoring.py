"""ln p of each token of texts, with alternatives, for all requests that wait."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.arrays import to_numpy
from chainrule.contract.lm import LanguageModel, predictions, score_rows
from chainrule.errors import ModelError
from chainrule.serve.batching.requests import PAUSE
from chainrule.serve.batching.rows import most_likely
from chainrule.serve.models import Served

_AT_ONCE = 256
"""Tokens whose alternatives are computed before texts under way get their next tokens."""
_ROWS_AT_ONCE = 4096
"""Tokens that are scored without alternatives before texts under way get their next tokens."""


@dataclass(frozen=True)
class ScoredIds:
    """ln p of each token of a text, with alternatives if they were asked for."""

    log_probs: list[float]
    tops: list[list[tuple[int, float]]]
    """The most likely tokens at each place, best first; empty if they were not asked for."""
    ranks: list[int]
    """How many tokens are more likely than the one of the text; empty without alternatives."""


async def score_ids(served: Served, rows: Sequence[Sequence[int]], top: int) -> list[ScoredIds]:
    """Score each token of rows of ids, with `top` alternatives; each row is read from its start."""
    lm = served.lm

    def run(items: list[Any]) -> Iterator[Any]:
        return _with_alternatives(lm, items, top) if top else _alone(lm, items)

    found: list[ScoredIds] = await served.scheduler.bulk(("score", top), [list(row) for row in rows], run)
    return found


def sequences(lm: LanguageModel, ids: Sequence[int]) -> list[list[int]]:
    """Divide ids into the sequences that a model reads by themselves: lines, or all of them."""
    ids_T = np.asarray(ids, dtype=np.int64)
    ends = np.flatnonzero((ids_T == lm.tokenizer.eos) & (lm.context == "line")) + 1
    return [part.tolist() for part in np.split(ids_T, ends) if len(part)]


def _alone(lm: LanguageModel, items: list[list[int]]) -> Iterator[Any]:
    """Yield the scores of tokens without alternatives, of several short rows at once."""
    waiting: list[list[int]] = []
    for item in [*items, None]:
        if item is not None:
            waiting.append(item)
        if waiting and (item is None or sum(map(len, waiting)) > _ROWS_AT_ONCE):
            cut = [sequences(lm, row) for row in waiting]
            scores = iter(score_rows(lm, [np.asarray(one, dtype=np.int64) for row in cut for one in row]))
            for row in cut:
                yield ScoredIds([float(score) for _ in row for score in next(scores)], [], [])
            waiting = []
            yield PAUSE


def _with_alternatives(lm: LanguageModel, items: list[list[int]], top: int) -> Iterator[Any]:
    """Yield the scores of tokens with alternatives, computed a few tokens at a time."""
    for item in items:
        log_probs: list[float] = []
        tops: list[list[tuple[int, float]]] = []
        ranks: list[int] = []
        for sequence in sequences(lm, item):
            state = lm.start(1)
            for first in range(0, len(sequence), _AT_ONCE):
                ids_BT = np.asarray([sequence[first : first + _AT_ONCE]], dtype=np.int64)
                place = 0
                for log_probs_BTV in predictions(lm, state, ids_BT):
                    for log_probs_V in to_numpy(log_probs_BTV)[0]:
                        if np.isnan(own := float(log_probs_V[ids_BT[0, place]])):
                            raise ModelError("the model gives NaN: something in it has gone wrong")
                        log_probs.append(own)
                        tops.append(most_likely(log_probs_V, top))
                        ranks.append(int((log_probs_V > own).sum()))
                        place += 1
                if first + _AT_ONCE < len(sequence):
                    state = lm.extend(state, ids_BT)
                yield PAUSE
        yield ScoredIds(log_probs, tops, ranks)
