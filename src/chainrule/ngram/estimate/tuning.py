"""Jelinek-Mercer's interpolation weights, given, or tuned on held-out text by expectation-maximisation.

There are two ways to write them. A weight λ_n says how much of p after n words comes from c(h w) / c(h), and how
much from the shorter context: it is a probability to stop. The weights of a sum, as lectures write it, say how much
each length contributes to p(w) = Σ_n w_n p_n(w): w_n = λ_n (1 - λ_{n+1}) (1 - λ_{n+2}) ...
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import to_numpy
from chainrule.folder import Context
from chainrule.ngram.estimate.levels import Counts
from chainrule.ngram.segments import insert_starts, sequence_starts
from chainrule.ngram.store.codes import codes_of_words, find

Floats = NDArray[np.float64]

_MOST_ROUNDS = 100
_ENOUGH = 1e-7  # nats per token: rounds end when one gains less
_MOST = 1 - 1e-4  # a weight is never 1: other texts may need the shorter context even if the held-out text did not


@dataclass(frozen=True)
class HeldOut:
    """The ids of held-out text, each line ended by </s>."""

    ids: NDArray[np.integer]
    eos: int
    context: Context
    is_trained_on: bool = False
    """True if it is training text: then each token is left out of the counts that predict it."""


def stop_weights(weights: Sequence[float]) -> Floats:
    """Return λ_n for contexts of 0, 1, ... words, from the weights of a sum, those of the longest n-grams first.

    >>> stop_weights([0.6, 0.3, 0.1]).round(6).tolist()
    [1.0, 0.75, 0.6]
    """
    left, found = 1.0, []
    for weight in weights:
        found.append(min(weight / left, 1.0) if left > 1e-12 else 0.0)
        left -= weight
    return np.asarray(found[::-1])


def sum_weights(lambdas: Floats) -> list[float]:
    """Return the weights of a sum: of the longest n-grams first, and at last that of the uniform distribution.

    >>> [round(weight, 6) for weight in sum_weights(np.asarray([1.0, 0.75, 0.6]))]
    [0.6, 0.3, 0.1, 0.0]
    """
    left, found = 1.0, []
    for stop in lambdas[::-1].tolist():
        found.append(left * stop)
        left *= 1 - stop
    return [*found, left]


def tune_lambdas(counts: Counts, held_out: HeldOut, edges: Sequence[float]) -> Floats:
    """Return Jelinek-Mercer's weights, [length, bucket of c(h)], that maximise the likelihood of held-out text.

    The mixture is a random process. It begins at the longest context that was seen. At a context of n words it
    stops with probability λ_n and draws the word from c(h w) / c(h); otherwise it goes on to the shorter context.

    E-step: for each word, the probability that the process stopped at n, and that it arrived at n.
    M-step: λ_n = expected stops at n / expected arrivals at n.
    """
    ratios, totals = held_out_ratios(counts, held_out)
    bucket = np.searchsorted(np.asarray(edges, dtype=np.float64), totals)
    seen = totals > 0
    lambdas = np.full((counts.order, len(edges) + 1), 0.5)
    uniform = 1.0 / (counts.vocab_size - 1)
    before = -np.inf
    for _ in range(_MOST_ROUNDS):
        arrive = np.ones(ratios.shape[1])
        stops = np.zeros_like(ratios)
        for n in range(counts.order - 1, -1, -1):
            stop = np.where(seen[n], lambdas[n, bucket[n]], 0.0)
            stops[n] = arrive * stop * ratios[n]
            arrive = arrive * (1 - stop)
        evidence = stops.sum(axis=0) + arrive * uniform
        stops /= evidence
        arrivals = np.cumsum(stops, axis=0) + arrive * uniform / evidence
        for n in range(counts.order):
            where = bucket[n][seen[n]]
            arrived = np.bincount(where, arrivals[n][seen[n]], minlength=len(edges) + 1)
            stopped = np.bincount(where, stops[n][seen[n]], minlength=len(edges) + 1)
            lambdas[n] = np.where(arrived > 0, np.minimum(stopped / np.maximum(arrived, 1e-300), _MOST), lambdas[n])
        now = float(np.log(evidence).mean())
        if now - before < _ENOUGH:
            break
        before = now
    return lambdas


def held_out_ratios(counts: Counts, held_out: HeldOut) -> tuple[Floats, Floats]:
    """Return c(h w) / c(h) and c(h) of each token after contexts of 0 to N-1 words; 0 for an unseen context."""
    ids = np.asarray(held_out.ids, dtype=np.int64)
    text, places = insert_starts(ids, sequence_starts(ids, held_out.eos, held_out.context), counts.bos)
    codes = codes_of_words(counts.vocab_size)[text].astype(np.int64)
    ratios, totals = np.zeros((counts.order, len(text))), np.zeros((counts.order, len(text)))
    node = np.zeros(len(text), dtype=np.int64)  # the n-gram that ends at each position, -1 if unseen
    for n, level in enumerate(counts.levels):
        word, count, begin = (to_numpy(a).astype(np.int64) for a in (level.word, level.count, level.begin))
        context = np.concatenate([[0 if n == 0 else -1], node[:-1]])
        here = np.flatnonzero(context >= 0)
        first, last = begin[context[here]], begin[context[here] + 1]
        found = codes[here] if n == 0 else find(word.__getitem__, first, last, codes[here])
        cumulative = np.concatenate([[0], np.cumsum(count, dtype=np.int64)])
        totals[n, here] = cumulative[last] - cumulative[first]
        # the index -1, for n-grams not found, is that of the 0 at the end; a length may have no n-grams
        counted = np.append(count, 0)[found]
        if held_out.is_trained_on:
            totals[n, here], counted = totals[n, here] - 1, counted - 1
        ratios[n, here] = counted / np.maximum(totals[n, here], 1)
        node = np.full(len(text), -1, dtype=np.int64)
        node[here] = found
    return ratios[:, places], totals[:, places]
