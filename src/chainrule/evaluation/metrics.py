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
    """H(p) = -Σ p log p: the surprise to expect."""
    return cross_entropy(p, p, base)


def cross_entropy(p: Array, q: Array, base: float = BITS) -> Array:
    """H(p, q) = -Σ p log q: the surprise when p happens and q was believed; infinite if q rules it out."""
    xp = array_namespace(p, q)
    happens = p > 0
    log_q = xp.log(xp.where(happens & (q > 0), q, xp.ones_like(q)))
    log_q = xp.where(happens & (q == 0), xp.full_like(q, -math.inf), log_q)
    return xp.sum(xp.where(happens, -p * log_q, xp.zeros_like(p)), axis=-1) / math.log(base)


def kl_divergence(p: Array, q: Array, base: float = BITS) -> Array:
    """KL(p || q) = H(p, q) - H(p) = Σ p log (p / q): what believing q costs."""
    return cross_entropy(p, q, base) - entropy(p, base)


def perplexity_of(cross_entropy: float, base: float = NATS) -> float:
    """base^H: as hard as choosing among so many equally likely tokens; the same number in every base."""
    exponent = cross_entropy * math.log(base)
    return math.exp(exponent) if exponent < math.log(1e308) else math.inf


def perplexity(log_probs: Array) -> float:
    """exp(-1/T Σ_t ln p(x_t | x_<t)) from ln p of each token."""
    xp = array_namespace(log_probs)
    return perplexity_of(float(-xp.mean(log_probs)))


def bits_per_byte(total_nats: float, size: int) -> float:
    """Bits needed to encode a text of `size` bytes, per byte: the scale on which all tokenizers compare."""
    return total_nats / math.log(2) / size
