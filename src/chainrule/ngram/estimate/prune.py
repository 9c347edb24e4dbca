"""Pruning: rare n-grams are left out during smoothing, and n-grams that hardly change the model after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array
from chainrule.ngram.estimate.levels import Counts
from chainrule.ngram.segments import segment_sums
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.store.normalise import lower_log_probs
from chainrule.ngram.store.parts import normalise, select, take_apart

Floats = NDArray[np.float64]

_LEAST = 1e-12  # a probability mass below this is rounding error


def kept_by_count(counts: Counts, thresholds: Sequence[int]) -> list[Array]:
    """Return a mask for each level: the n-grams that occurred more often than its threshold; all if that is 0."""
    return [
        level.count > threshold if threshold else level.count >= 0
        for level, threshold in zip(counts.levels, thresholds, strict=True)
    ]


def by_entropy(automaton: Automaton, threshold: float) -> Automaton:
    """Stolcke 1998: leave out n-grams whose removal raises the perplexity by a smaller fraction than `threshold`.

    Without the n-gram h w, α(h) becomes α'(h), and the relative entropy between the old model and the new one is

        D = -p(h) { p(w | h) [ln p(w | h') + ln α'(h) - ln p(w | h)] + [ln α'(h) - ln α(h)] (1 - Σ_seen p(v | h)) }

    The longest n-grams are pruned first. The context of an n-gram that is kept is kept too.
    """
    trie = automaton.trie
    parts = take_apart(automaton)
    keep = [np.ones(int(size), dtype=bool) for size in np.diff(trie.first_of_length)[1:]]
    joint = _joint_log_probs(automaton, parts.log_prob, parts.begins)
    firsts = trie.first_of_length
    for n in range(trie.order, 1, -1):
        own = np.exp(parts.log_prob[firsts[n] - 1 : firsts[n + 1] - 1].astype(np.float64))
        blocks = [lower_log_probs(automaton, *block, n) for block in trie.blocks(n)]
        lower = np.exp(np.concatenate([np.zeros(0), *blocks]))
        loss = _loss(own, lower, np.asarray(parts.begins[n - 2], dtype=np.int64), np.exp(joint[n - 2]))
        keep[n - 1] = np.expm1(loss) >= threshold
    return normalise(select(parts, keep))


def _loss(own: Floats, lower: Floats, begin: NDArray[np.int64], p_context: Floats) -> Floats:
    """Return D, as in `by_entropy`, of each n-gram of a level; `own` is p(w | h), `lower` is p(w | h')."""
    sizes = np.diff(begin)
    left = np.maximum(1 - segment_sums(own, begin), _LEAST)
    unseen = np.maximum(1 - segment_sums(lower, begin), _LEAST)
    left_w, unseen_w, p_w = (np.repeat(values, sizes) for values in (left, unseen, p_context))
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = np.log(left_w) - np.log(unseen_w)
        alpha_without = np.log(left_w + own) - np.log(unseen_w + lower)
        inside = own * (np.log(lower) + alpha_without - np.log(own)) + left_w * (alpha_without - alpha)
        return np.where(own > 0, np.maximum(-p_w * inside, 0.0), 0.0)


def _joint_log_probs(
    automaton: Automaton, log_prob: NDArray[np.float32], begins: Sequence[NDArray[np.int64]]
) -> list[Floats]:
    """Return ln p(h) of the contexts h of each length: the product of their words' probabilities; p(<s>) = 1."""
    firsts = automaton.trie.first_of_length
    joint = [log_prob[: firsts[2] - 1].astype(np.float64)]
    joint[0][int(codes_of_words(automaton.trie.vocab_size)[automaton.bos])] = 0.0
    for n in range(2, automaton.trie.order):
        above = np.repeat(joint[-1], np.diff(begins[n - 2]))
        joint.append(above + log_prob[firsts[n] - 1 : firsts[n + 1] - 1])
    return joint
