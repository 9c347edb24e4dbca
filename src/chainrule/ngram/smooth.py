"""Smoothing: counts become a log-probability for every n-gram and a log-backoff for every context.

Below, c(h w) is how often w followed the context h, c(h) = Σ_w c(h w), h' is h without its first word, N the
order, and V the number of words that can be predicted (</s> and <unk> among them, <s> not).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule.ngram.automaton import Automaton
from chainrule.ngram.count import Counts

Floats = NDArray[np.float64]

_MOST_ROUNDS = 100
_ENOUGH = 1e-7  # nats per token below which a further round of EM changes nothing


@dataclass(frozen=True)
class Tables:
    """ln p(w | h) of each node h w, and ln backoff of each node as a context."""

    log_prob: NDArray[np.float32]
    log_backoff: NDArray[np.float32]

    def automaton(self, counts: Counts, bos: int) -> Automaton:
        """The model that walks these tables."""
        return Automaton(counts.trie, self.log_prob, self.log_backoff, bos)


def mle(counts: Counts) -> Tables:
    """Maximum likelihood. A word never seen after a known context is impossible.

    p(w | h) = c(h w) / c(h)

    A context that was never seen says nothing, and is shortened until it was.
    """
    seen = counts.total > 0
    return _tables(_ratios(counts), np.where(seen, 0.0, 1.0))


def laplace(counts: Counts, k: float) -> Tables:
    """Add-k; Laplace's rule is k = 1. Every word was seen k times more than it was.

    p(w | h) = (c(h w) + k) / (c(h) + k V)        for contexts h of N-1 words

    As backoff: a word not seen after h gets k V / (c(h) + k V) of the uniform 1 / V, which shorter contexts give.
    """
    trie, size = counts.trie, counts.trie.vocab_size - 1
    prob = np.full(len(counts.count), 1.0 / size)
    longest = trie.nodes(trie.order)
    totals = counts.total[trie.parent(longest)]
    prob[longest] = (counts.count[longest] + k) / (totals + k * size)
    prob[counts.count == 0] = 0.0  # n-grams that end in <s>
    backoff = np.ones(len(counts.count))
    contexts = trie.nodes(trie.order - 1)
    backoff[contexts] = k * size / (counts.total[contexts] + k * size)
    return _tables(prob, backoff)


def interpolated(counts: Counts, lambdas: Floats) -> Tables:
    """Jelinek-Mercer: what the context says, mixed with what the shorter one says, down to 1 / V.

    p(w | h) = λ_n c(h w) / c(h) + (1 - λ_n) p(w | h')        for contexts h of n-1 words that were seen
             = p(w | h')                                      for others
    """
    trie = counts.trie
    ratios = _ratios(counts)
    prob = np.zeros(len(counts.count))
    backoff = np.ones(len(counts.count))
    lower: float | Floats = 1.0 / (trie.vocab_size - 1)
    for n in range(1, trie.order + 1):
        nodes, contexts = trie.nodes(n), trie.nodes(n - 1)
        if n > 1:
            lower = prob[trie.suffix[nodes]]
        prob[nodes] = lambdas[n - 1] * ratios[nodes] + (1 - lambdas[n - 1]) * lower
        backoff[contexts] = np.where(counts.total[contexts] > 0, 1 - lambdas[n - 1], 1.0)
    prob[counts.count == 0] = 0.0  # n-grams that end in <s>
    return _tables(prob, backoff)


def tune_lambdas(counts: Counts, held_out: NDArray[np.int64], is_event: NDArray[np.bool_]) -> Floats:
    """The λ_n that make held-out text most likely, by expectation-maximisation.

    The mixture tells a story: beginning at the longest context that was seen, stop at length n with probability
    λ_n and draw the word from c(h w) / c(h), else go on to the shorter one. E-step: how likely is it that the
    story of this word stopped at n, or got as far as n? M-step: λ_n = stops at n / arrivals at n.
    """
    ratios, seen = _held_out_ratios(counts, held_out, is_event)
    lambdas = np.full(counts.trie.order, 0.5)
    uniform = 1.0 / (counts.trie.vocab_size - 1)
    before = -np.inf
    for _ in range(_MOST_ROUNDS):
        arrive = np.ones(ratios.shape[1])
        stops = np.zeros_like(ratios)
        for n in range(counts.trie.order - 1, -1, -1):
            stop = np.where(seen[n], lambdas[n], 0.0)
            stops[n] = arrive * stop * ratios[n]
            arrive = arrive * (1 - stop)
        evidence = stops.sum(axis=0) + arrive * uniform
        stops /= evidence
        stopped_later = np.cumsum(stops, axis=0) - stops + arrive * uniform / evidence
        for n in range(counts.trie.order):
            arrivals = (stops[n] + stopped_later[n])[seen[n]].sum()
            if arrivals > 0:
                # never 1: held-out text must stay possible even if the tuning text never needed the rest
                lambdas[n] = min(stops[n].sum() / arrivals, 1 - 1e-4)
        now = float(np.log(evidence).mean())
        if now - before < _ENOUGH:
            break
        before = now
    return lambdas


def _held_out_ratios(
    counts: Counts, text: NDArray[np.int64], is_event: NDArray[np.bool_]
) -> tuple[Floats, NDArray[np.bool_]]:
    """c(h w) / c(h) of each event under contexts of 0 to N-1 words, and whether that context was seen."""
    walker = Automaton(counts.trie, np.zeros(0, np.float32), np.zeros(0, np.float32), bos=-1)
    matches = walker.matches(text)
    order = counts.trie.order
    ratios, seen = np.zeros((order, len(text))), np.zeros((order, len(text)), dtype=bool)
    for n in range(1, order + 1):
        context, node = (matches[m][: len(text) - n + 1] for m in (n - 1, n))
        total = np.where((context > 0) | (n == 1), counts.total[context], 0)
        seen[n - 1, n - 1 :] = total > 0
        ratios[n - 1, n - 1 :] = np.where(node > 0, counts.count[node], 0) / np.maximum(total, 1)
    return ratios[:, is_event], seen[:, is_event]


def _ratios(counts: Counts) -> Floats:
    """c(h w) / c(h) of each node h w."""
    ratios = np.zeros(len(counts.count))
    totals = counts.total[counts.trie.parent(slice(1, len(ratios)))]
    ratios[1:] = counts.count[1:] / np.maximum(totals, 1)
    return ratios


def _tables(prob: Floats, backoff: Floats) -> Tables:
    with np.errstate(divide="ignore"):  # ln 0 = -inf is meant
        return Tables(np.log(prob).astype(np.float32), np.log(backoff).astype(np.float32))
