"""Entropy, cross-entropy, perplexity and their relatives, for arrays of NumPy or torch.

A distribution is an array whose last axis sums to one; 0 · log 0 counts as 0. `base`, that of the
logarithm, is 2 (bits) or e (nats).
"""

from __future__ import annotations

import math

from array_api_compat import array_namespace

from chainrule.arrays import Array

NATS = math.e
BITS = 2.0


def entropy(p: Array, base: float = BITS) -> Array:
    """Return H(p) = -Σ p log p: the expected surprise.

    >>> import numpy as np
    >>> float(entropy(np.asarray([0.5, 0.25, 0.25])))
    1.5
    """
    return cross_entropy(p, p, base)


def cross_entropy(p: Array, q: Array, base: float = BITS) -> Array:
    """Return H(p, q) = -Σ p log q: the surprise of a model q if p is true; infinite if q excludes what happens."""
    xp = array_namespace(p, q)
    happens = p > 0
    log_q = xp.log(xp.where(happens & (q > 0), q, xp.ones_like(q)))
    log_q = xp.where(happens & (q == 0), xp.full_like(q, -math.inf), log_q)
    return xp.sum(xp.where(happens, -p * log_q, xp.zeros_like(p)), axis=-1) / math.log(base)


def kl_divergence(p: Array, q: Array, base: float = BITS) -> Array:
    """Return KL(p || q) = H(p, q) - H(p) = Σ p log (p / q): the additional surprise of a model q if p is true."""
    return cross_entropy(p, q, base) - entropy(p, base)


def perplexity_of(cross_entropy: float, base: float = NATS) -> float:
    """Return base^H: a choice among so many equally likely tokens is as hard; the same number in every base."""
    exponent = cross_entropy * math.log(base)
    return math.exp(exponent) if exponent < math.log(1e308) else math.inf


def perplexity(log_probs: Array) -> float:
    """Return exp(-1/T Σ_t ln p(x_t | x_<t)), from ln p of each token."""
    xp = array_namespace(log_probs)
    return perplexity_of(float(-xp.mean(log_probs)))


def bits_per_byte(total_nats: float, size: int) -> float:
    """Return the bits per byte of a text of `size` bytes: a scale on which all tokenizers compare."""
    return total_nats / math.log(2) / size
