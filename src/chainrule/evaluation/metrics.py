"""Entropy, cross-entropy, perplexity and their relatives, for lists, and for arrays of NumPy or torch.

A distribution is an array whose last axis sums to one; 0 · log 0 counts as 0. `base`, that of the
logarithm, is 2 (bits) or e (nats).
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable

import numpy as np

from chainrule.arrays import Array, array_namespace
from chainrule.errors import SettingsError

NATS = math.e
BITS = 2.0
_ROUNDING = 1e-4  # how far from 1 the sum of probabilities in single precision may be


def entropy(p: Array, base: float = BITS) -> Array:
    """Return H(p) = -Σ p log p: the expected surprise.

    >>> entropy([0.5, 0.25, 0.25])
    1.5
    """
    return cross_entropy(p, p, base)


def cross_entropy(p: Array, q: Array, base: float = BITS) -> Array:
    """Return H(p, q) = -Σ p log q: the surprise of a model q if p is true; infinite if q excludes what happens.

    >>> cross_entropy([0.5, 0.5], [0.25, 0.75]) > entropy([0.5, 0.5])
    True
    """
    p, q = distribution(p), distribution(q)
    if p.shape[-1] != q.shape[-1]:
        raise SettingsError(f"both distributions should be over the same outcomes: {p.shape[-1]} and {q.shape[-1]}")
    xp = array_namespace(p, q)
    happens = p > 0
    log_q = xp.log(xp.where(happens & (q > 0), q, xp.ones_like(q)))
    log_q = xp.where(happens & (q == 0), xp.full_like(q, -math.inf), log_q)
    nats = xp.sum(xp.where(happens, -p * log_q, xp.zeros_like(p)), axis=-1)
    return _plain(nats / math.log(base))


def kl(p: Array, q: Array, base: float = BITS) -> Array:
    """Return KL(p || q) = H(p, q) - H(p) = Σ p log (p / q): the additional surprise of a model q if p is true.

    >>> kl([1.0, 0.0], [0.5, 0.5])
    1.0
    """
    return cross_entropy(p, q, base) - entropy(p, base)


def branching_factor(p: Array) -> float:
    """Return 2^H(p), the perplexity of a distribution: the number of equally likely choices that are as uncertain.

    >>> round(branching_factor([0.1] * 10), 6)  # random digits
    10.0
    """
    return perplexity_of(float(entropy(p, NATS)))


def yes_no_questions(p: Iterable[float]) -> float:
    """Return how many yes/no questions the best way to ask takes on average, to find out which of p happened.

    It is the mean length of Huffman's code: at least H(p) bits, and less than one bit more.

    >>> yes_no_questions([0.5, 0.25, 0.25])
    1.5
    """
    heap = [one for one in distribution(p).tolist() if one > 0]
    heapq.heapify(heap)
    total = 0.0
    while len(heap) > 1:
        both = heapq.heappop(heap) + heapq.heappop(heap)  # one more question separates the two least likely
        total += both
        heapq.heappush(heap, both)
    return total


def distribution(values: Array) -> Array:
    """Return probabilities as an array; refuse those that are negative or do not sum to one."""
    p = np.asarray(values, dtype=np.float64) if isinstance(values, (list, tuple)) else values
    sums = p.sum(axis=-1)
    if not bool((p >= 0).all()) or not bool((abs(sums - 1) <= _ROUNDING).all()):
        found = f"they sum to {float(sums):.6g}" if p.ndim == 1 else "some sums differ"
        if bool((p < 0).any()):
            found = f"the smallest is {float(p.min()):.6g}"
        raise SettingsError(f"probabilities should be at least 0 and sum to 1: {found}")
    return p


def _plain(number: Array) -> Array:
    """Return a single number of NumPy as one of Python, which prints as it reads."""
    return float(number) if isinstance(number, np.floating) else number


def perplexity_of(cross_entropy: float, base: float = NATS) -> float:
    """Return base^H, the number of equally likely tokens that are as hard to predict, the same in every base."""
    exponent = cross_entropy * math.log(base)
    return math.exp(exponent) if exponent < math.log(1e308) else math.inf


def perplexity(log_probs: Array) -> float:
    """Return exp(-1/T Σ_t ln p(x_t | x_<t)), from ln p of each token; of a text, `lm.perplexity` returns it.

    >>> round(perplexity([math.log(0.1)] * 1000), 6)  # random digits
    10.0
    """
    given = np.asarray(log_probs, dtype=np.float64) if isinstance(log_probs, (list, tuple)) else log_probs
    return perplexity_of(float(-given.mean()))


def bits_per_byte(total_nats: float, size: int) -> float:
    """Return the bits per byte of a text of `size` bytes: a scale on which all tokenizers compare."""
    return total_nats / math.log(2) / size
