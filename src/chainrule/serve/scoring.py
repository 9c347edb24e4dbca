"""ln p of each token of texts, with alternatives, for all requests that wait."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.arrays import checked, to_numpy
from chainrule.contract.lm import LanguageModel, predictions, read, score_rows
from chainrule.errors import ModelError
from chainrule.serve.batching.requests import PAUSE
from chainrule.serve.batching.rows import most_likely
from chainrule.serve.batching.scheduler import READ_AT_ONCE
from chainrule.serve.models import Served

_AT_ONCE = 256
"""Tokens that are read at once if alternatives are asked for."""
_PART_SECONDS = 0.02
"""How long alternatives are looked for before texts under way get their next tokens."""
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

    # a long text is done by itself, so that it can be given up by itself
    own = object() if sum(map(len, rows)) > _ROWS_AT_ONCE else None
    found: list[ScoredIds] = await served.scheduler.bulk(("score", top, own), rows, run)
    return found


def sequences(lm: LanguageModel, ids: Sequence[int]) -> list[list[int]]:
    """Divide ids into the sequences that a model reads by themselves: lines, or all of them."""
    ids_T = np.asarray(ids, dtype=np.int64)
    ends = np.flatnonzero((ids_T == lm.tokenizer.eos) & (lm.context == "line")) + 1
    return [part.tolist() for part in np.split(ids_T, ends) if len(part)]


def _alone(lm: LanguageModel, items: list[list[int]]) -> Iterator[Any]:
    """Yield the scores of tokens without alternatives."""
    cut = [sequences(lm, row) for row in items]
    scores = _scores(lm, [one for row in cut for one in row])
    for row in cut:
        log_probs: list[float] = []
        left = len(row)
        while left:
            part = next(scores)
            if part is PAUSE:
                yield PAUSE
            else:
                log_probs += part.tolist()
                left -= 1
        yield ScoredIds(log_probs, [], [])


def _scores(lm: LanguageModel, every: list[list[int]]) -> Iterator[Any]:
    """Yield ln p of the tokens of each sequence: of many short ones at once, of a long one part by part."""
    waiting: list[np.ndarray] = []
    size = 0
    for sequence in every:
        is_long = len(sequence) > _ROWS_AT_ONCE
        if not is_long:
            waiting.append(np.asarray(sequence, dtype=np.int64))
            size += len(sequence)
        if is_long or size > _ROWS_AT_ONCE:
            yield from score_rows(lm, waiting)
            waiting, size = [], 0
            yield PAUSE
        if is_long:
            state, found = lm.start(1), []
            for first in range(0, len(sequence), READ_AT_ONCE):
                ids_BT = np.asarray([sequence[first : first + READ_AT_ONCE]], dtype=np.int64)
                scores_BT, state = read(lm, state, ids_BT)
                found.append(checked(to_numpy(scores_BT)[0], normalised=lm.normalised))
                yield PAUSE
            yield np.concatenate(found)
    yield from score_rows(lm, waiting)


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
                place, began = 0, time.perf_counter()
                for log_probs_BTV in predictions(lm, state, ids_BT):
                    for log_probs_V in to_numpy(log_probs_BTV)[0]:
                        if np.isnan(own := float(log_probs_V[ids_BT[0, place]])):
                            raise ModelError("the model gives NaN: something in it has gone wrong")
                        log_probs.append(own)
                        tops.append(most_likely(log_probs_V, top))
                        ranks.append(int((log_probs_V > own).sum()))
                        place += 1
                        if time.perf_counter() - began > _PART_SECONDS:
                            yield PAUSE
                            began = time.perf_counter()
                if first + _AT_ONCE < len(sequence):
                    state = lm.extend(state, ids_BT)
                yield PAUSE
        yield ScoredIds(log_probs, tops, ranks)
