"""N-grams left out: rare ones while smoothing, dispensable ones after it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array
from chainrule.errors import SettingsError
from chainrule.ngram.automaton import Automaton
from chainrule.ngram.build import lower_log_probs, normalise, select, sums, take_apart
from chainrule.ngram.codes import codes_of_words
from chainrule.ngram.levels import Counts

Floats = NDArray[np.float64]

_LEAST = 1e-12  # a mass below this is rounding


def parse_thresholds(text: str, order: int) -> list[int]:
    """`0,0,1` keeps all words and bigrams, and longer n-grams that occurred more than once: the last repeats."""
    try:
        thresholds = [int(part) for part in text.split(",")] if text else [0]
    except ValueError:
        thresholds = [-1]
    thresholds = (thresholds + [thresholds[-1]] * order)[:order] if len(thresholds) <= order else [-1]
    if min(thresholds) < 0 or thresholds != sorted(thresholds):
        raise SettingsError(f"prune should be at most {order} counts that do not fall, such as 0,0,1, not {text!r}")
    if thresholds[0] != 0:
        raise SettingsError("prune should start with 0: words are never pruned (bound the vocabulary instead)")
    return thresholds


def kept_by_count(counts: Counts, thresholds: Sequence[int]) -> list[Array]:
    """Which n-grams occurred more often than the threshold of their length."""
    return [
        level.count > threshold if threshold else level.count >= 0
        for level, threshold in zip(counts.levels, thresholds, strict=True)
    ]


def by_entropy(automaton: Automaton, threshold: float) -> Automaton:
    """Stolcke 1998: leave out each n-gram whose loss raises the model's perplexity by a smaller share than this.

    If w leaves the words seen after h, α(h) becomes α'(h), and the relative entropy to the model before is

        D = -p(h) { p(w | h) [ln p(w | h') + ln α'(h) - ln p(w | h)] + [ln α'(h) - ln α(h)] (1 - Σ_seen p(v | h)) }

    From the longest n-grams to the shortest; the context of something that stays, stays.
    """
    trie = automaton.trie
    parts = take_apart(automaton)
    keep = [np.ones(int(size), dtype=bool) for size in np.diff(trie.first_of_length)[1:]]
    joint = _joint_log_probs(automaton, parts.log_prob, parts.begins)
    firsts = trie.first_of_length
    for n in range(trie.order, 1, -1):
        own = np.exp(parts.log_prob[firsts[n] - 1 : firsts[n + 1] - 1].astype(np.float64))
        lower = np.exp(lower_log_probs(automaton, n))
        loss = _loss(own, lower, np.asarray(parts.begins[n - 2], dtype=np.int64), np.exp(joint[n - 2]))
        keep[n - 1] = np.expm1(loss) >= threshold
        if n < trie.order:
            begin = np.asarray(parts.begins[n - 1], dtype=np.int64)
            before = np.concatenate([[0], np.cumsum(keep[n])])
            keep[n - 1] |= before[begin[1:]] > before[begin[:-1]]
    return normalise(select(parts, keep))


def _loss(own: Floats, lower: Floats, begin: NDArray[np.int64], p_context: Floats) -> Floats:
    """D of each n-gram of a level."""
    sizes = np.diff(begin)
    left = np.maximum(1 - sums(own, begin), _LEAST)
    unseen = np.maximum(1 - sums(lower, begin), _LEAST)
    left_w, unseen_w, p_w = (np.repeat(values, sizes) for values in (left, unseen, p_context))
    with np.errstate(divide="ignore", invalid="ignore"):
        alpha = np.log(left_w) - np.log(unseen_w)
        alpha_without = np.log(left_w + own) - np.log(unseen_w + lower)
        inside = own * (np.log(lower) + alpha_without - np.log(own)) + left_w * (alpha_without - alpha)
        return np.where(own > 0, np.maximum(-p_w * inside, 0.0), 0.0)


def _joint_log_probs(
    automaton: Automaton, log_prob: NDArray[np.float32], begins: Sequence[NDArray[np.int64]]
) -> list[Floats]:
    """ln p(h) of every context h, length by length: its words' probabilities multiplied; <s> is certain."""
    firsts = automaton.trie.first_of_length
    joint = [log_prob[: firsts[2] - 1].astype(np.float64)]
    joint[0][int(codes_of_words(automaton.trie.vocab_size)[automaton.bos])] = 0.0
    for n in range(2, automaton.trie.order):
        above = np.repeat(joint[-1], np.diff(begins[n - 2]))
        joint.append(above + log_prob[firsts[n] - 1 : firsts[n + 1] - 1])
    return joint
