"""Beam search: keep the best few hypotheses at every length.

Works on any model: hypotheses are rows of one batch, and `State.select` moves them about. With a beam as wide as
there are hypotheses it is an exhaustive search, and exact.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from array_api_compat import array_namespace

from chainrule.decode.sample import Continuation
from chainrule.decode.strategies import Beam
from chainrule.lm import Array, LanguageModel, pad, to_numpy


@dataclass(frozen=True)
class _Hypothesis:
    ids: tuple[int, ...]
    log_prob: float
    finished: bool

    def rank(self, length_power: float) -> float:
        """ln p / length^power."""
        return self.log_prob / float(max(len(self.ids), 1) ** length_power)


def beam_search(
    lm: LanguageModel,
    prompts: Sequence[Sequence[int]],
    beam: Beam,
    *,
    max_tokens: int,
    end: int | None = None,
    forbid: Sequence[int] = (),
    best: int = 1,
) -> list[list[Continuation]]:
    """The `best` continuations of each prompt, best first; fewer where fewer are possible."""
    width, size = beam.width, len(prompts)
    done: list[list[_Hypothesis]] = [[] for _ in prompts]
    live: list[list[_Hypothesis]] = [[_Hypothesis((), 0.0, False)] for _ in prompts]
    open_rows = (
        list(range(size)) if max_tokens else []
    )  # prompts still searched; their live hypotheses are the batch
    state = lm.extend(lm.start(size), pad(prompts))
    for length in range(1, max_tokens + 1):
        scores = _next(lm.next_log_probs(state), forbid)
        chosen: list[int] = []  # rows of the batch that go on
        tokens: list[int] = []
        first = 0  # where the prompt's hypotheses begin in the batch
        still_open = []
        for prompt in open_rows:
            count = len(live[prompt])
            so_far = np.asarray([hypothesis.log_prob for hypothesis in live[prompt]])
            total_WV = to_numpy(scores[first : first + count]).astype(np.float64) + so_far[:, None]
            if end is not None:
                _finish(done[prompt], live[prompt], total_WV, end, max(width, best), beam.length_power)
            places = _top(total_WV, width)
            before = live[prompt]
            live[prompt] = [
                _Hypothesis((*before[place // total_WV.shape[1]].ids, place % total_WV.shape[1]), log_prob, False)
                for place, log_prob in places
            ]
            if live[prompt] and not _settled(done[prompt], live[prompt], beam, best, max_tokens):
                chosen += [first + place // total_WV.shape[1] for place, _ in places]
                tokens += [place % total_WV.shape[1] for place, _ in places]
                still_open.append(prompt)
            elif live[prompt]:
                live[prompt] = []  # none of them can still win
            first += count
        open_rows = still_open
        if not open_rows or length == max_tokens:
            break
        state = lm.extend(state.select(np.asarray(chosen)), np.asarray(tokens)[:, None])
    results = []
    for prompt in range(size):
        hypotheses = sorted(done[prompt] + live[prompt], key=lambda h: -h.rank(beam.length_power))
        results.append([Continuation(h.ids, h.log_prob, h.finished) for h in hypotheses[:best]])
    return results


def _next(log_probs: Array, forbid: Sequence[int]) -> Array:
    if not forbid:
        return log_probs
    xp = array_namespace(log_probs)
    allowed = xp.asarray(~np.isin(np.arange(log_probs.shape[-1]), list(forbid)), device=log_probs.device)
    return xp.where(allowed, log_probs, -math.inf)


def _finish(
    done: list[_Hypothesis], live: list[_Hypothesis], total_WV: np.ndarray, end: int, keep: int, power: float
) -> None:
    """Move what `end` finishes from the live hypotheses to the finished ones, the best of which are kept."""
    for row, hypothesis in enumerate(live):
        if total_WV[row, end] > -math.inf:
            done.append(_Hypothesis((*hypothesis.ids, end), float(total_WV[row, end]), True))
    total_WV[:, end] = -math.inf
    done.sort(key=lambda h: -h.rank(power))
    del done[keep:]


def _top(total_WV: np.ndarray, width: int) -> list[tuple[int, float]]:
    """The places and values of the `width` best, best first; the impossible are left out."""
    flat = total_WV.ravel()
    width = min(width, len(flat))
    places = np.argpartition(-flat, width - 1)[:width]
    places = places[np.lexsort((places, -flat[places]))]
    return [(int(place), float(flat[place])) for place in places if flat[place] > -math.inf]


def _settled(done: list[_Hypothesis], live: list[_Hypothesis], beam: Beam, best: int, max_tokens: int) -> bool:
    """Whether no live hypothesis can still come among the best: ln p only falls, and no text is longer."""
    if len(done) < best:
        return False
    bound = max(h.log_prob for h in live) / float(max_tokens**beam.length_power)
    return bound <= done[best - 1].rank(beam.length_power)
