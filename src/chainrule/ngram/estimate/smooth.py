"""Smoothing: from counts to probabilities that leave something for words that were not seen.

The symbols are those of the lectures:

    h         a context, the words before; h' is h without its first word
    c(h w)    how often the word w followed the context h;  c(h) = Σ_w c(h w)
    T(h)      how many different words followed h
    N         the order: the number of words of the longest n-grams
    V         the number of words that can be predicted; </s> and <unk> are among them, <s> is not

Each method is a function of the words seen after some contexts of one length. It computes own(w | h), the
probability that the context itself gives each of these words. One of two rules then spreads the rest of the mass in
proportion to p(w | h'):

    interpolate:   p(w | h) = own(w | h) + γ(h) p(w | h')       for every word;  γ(h) = 1 - Σ_w own(w | h)
    back off:      p(w | h) = own(w | h)                        for words seen after h
                            = α(h) p(w | h')                    for others;      α(h) by Σ_w p(w | h) = 1

The context shorter than the empty one has the uniform distribution, 1/V. So the probability of an unknown word is
explicit: the mass that the unigrams leave, divided by V.

The result is p(w | h) of each n-gram h w in the counts, and for each context the factor of p(w | h') for all other
words, γ(h) or α(h). An n-gram that is pruned gives its own mass to this factor.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from array_api_compat import device, is_numpy_array

from chainrule.arrays import Array, array_namespace
from chainrule.ngram.segments import segment_sums

_ROUNDING = 1e-9
_AT_ONCE = 1 << 20
_HARDLY_ANY = 1e-6  # an unseen mass below this is rounding error: p(w | h') is kept in single precision


@dataclass(frozen=True)
class Seen:
    """The n-grams seen after some contexts of one length."""

    count: Array
    """c(h w) of each n-gram."""
    begin: Array
    """The index of the first n-gram of each context, and one past the last n-gram."""
    lower: Array
    """p(w | h') of each n-gram."""
    is_full: Array
    """True for a context that cannot be longer: it has N-1 words, or all words from the start of a line."""
    kept: Array | None = None
    """True for an n-gram that is kept, False for one that is pruned; None keeps all."""

    @cached_property
    def total(self) -> Array:
        """c(h) of each context."""
        return self.sum(self.count)

    @cached_property
    def types(self) -> Array:
        """T(h) of each context."""
        return self.sum(self.count > 0)

    def of(self, per_context: Array) -> Array:
        """Return the value of each n-gram's context."""
        xp = array_namespace(self.begin)
        return xp.repeat(per_context, self.begin[1:] - self.begin[:-1])

    def sum(self, per_ngram: Array) -> Array:
        """Return the sum over each context's n-grams, in double precision."""
        return segment_sums(per_ngram, self.begin)


Smoothed = tuple[Array, Array]
"""p(w | h) of each n-gram, and γ(h) or α(h) of each context."""


def interpolate(seen: Seen, own: Array) -> Smoothed:
    """p(w | h) = own(w | h) + γ(h) p(w | h'), with γ(h) = 1 - Σ_w own(w | h)."""
    xp = array_namespace(own)
    if seen.kept is not None:
        own = xp.where(seen.kept, own, 0.0)
    left = 1.0 - seen.sum(own)
    left = xp.where(left > _ROUNDING, left, 0.0)  # exactly 0 instead of a rounding error
    return own + seen.of(left) * seen.lower, left


def back_off(seen: Seen, own: Array) -> Smoothed:
    """p(w | h) = own(w | h) for words seen after h, else α(h) p(w | h').

    α(h) = (1 - Σ_seen own(w | h)) / (1 - Σ_seen p(w | h'))

    There are two exceptions. If the seen words take all the mass although there are others, the context counts as
    seen once more than it was. If all words were seen, or words with all but a millionth of the mass of p(w | h'),
    the mass that is left goes back to the seen words.
    """
    xp = array_namespace(own)
    is_seen = seen.count > 0 if seen.kept is None else (seen.count > 0) & seen.kept
    own = xp.where(is_seen, own, 0.0)
    given = seen.sum(own)
    unseen = 1.0 - seen.sum(xp.where(is_seen, seen.lower, 0.0))
    nothing_left = (given > 1 - _ROUNDING) & (unseen > _HARDLY_ANY)
    all_seen = (unseen <= _HARDLY_ANY) & (given > 0)
    scale = xp.where(nothing_left, seen.total / (seen.total + 1.0), 1.0)
    scale = xp.where(all_seen, xp.clip(1.0 - unseen, None, 1.0) / xp.where(given > 0, given, 1.0), scale)
    left = xp.clip(1.0 - given * scale, 0.0, 1.0)
    factor = xp.where(all_seen, 1.0, left / xp.clip(unseen, _HARDLY_ANY, None))
    return xp.where(is_seen, own * seen.of(scale), seen.of(factor) * seen.lower), factor


def mle(seen: Seen) -> Smoothed:
    """Maximum likelihood: relative frequencies. A word that was never seen after a context is impossible there.

    p(w | h) = c(h w) / c(h)

    A context that was never seen is shortened until it is one that was.
    """
    return interpolate(seen, seen.count / seen.of(_one_if_zero(seen.total)))


def add_k(seen: Seen, k: float, vocabulary: int) -> Smoothed:
    """Add-k; Laplace's rule is k = 1. Every word counts as seen k times more than it was.

    p(w | h) = (c(h w) + k) / (c(h) + k V)        for contexts h of N-1 words

    As interpolation: own(w | h) = c(h w) / (c(h) + k V), and shorter contexts have the uniform distribution 1/V.
    """
    xp = array_namespace(seen.count)
    own = seen.count / seen.of(seen.total + k * vocabulary)
    return interpolate(seen, xp.where(seen.of(seen.is_full), own, 0.0))


def jelinek_mercer(seen: Seen, lambdas: Array, edges: Sequence[float]) -> Smoothed:
    """Jelinek and Mercer 1980: the relative frequency after a context, mixed with p after the shorter context.

    p(w | h) = λ c(h w) / c(h) + (1 - λ) p(w | h')

    λ depends on the length of h and on c(h), since a context that was seen often is more reliable: `lambdas` has a
    weight for each bucket of c(h), and `edges` are the upper ends of the buckets. A context never seen has λ = 0.
    """
    xp = array_namespace(seen.count)
    ends = xp.asarray(edges, dtype=xp.float64, device=device(seen.count))
    bucket = xp.searchsorted(ends, seen.total)
    weight = xp.where(seen.total > 0, lambdas[bucket], 0.0)
    return interpolate(seen, seen.of(weight) * seen.count / seen.of(_one_if_zero(seen.total)))


def witten_bell(seen: Seen) -> Smoothed:
    """Witten and Bell 1991: a new word after h is as probable as new words have been there, T(h) / (c(h) + T(h)).

    p(w | h) = (c(h w) + T(h) p(w | h')) / (c(h) + T(h))
    """
    return interpolate(seen, seen.count / seen.of(_one_if_zero(seen.total + seen.types)))


def absolute_discounting(seen: Seen, discounts: Array) -> Smoothed:
    """Ney, Essen and Kneser 1994: a discount D is taken from every count and given to the shorter context.

    p(w | h) = (c(h w) - D) / c(h) + γ(h) p(w | h')

    Kneser-Ney is the same on other counts. For all but the longest n-grams, c(h w) is the number of different words
    before h w, and not the number of times h w occurred: the shorter context matters where the longer one was not
    seen with the word. Modified Kneser-Ney (Chen and Goodman 1998) takes D_1, D_2 and D_3+ from counts of 1, 2, and
    3 or more.

    `discounts` holds D for the counts 0, 1, 2, ...; the last one is for all higher counts.
    """
    xp = array_namespace(seen.count)
    discount = discounts[xp.clip(xp.astype(seen.count, xp.int64), 0, discounts.shape[0] - 1)]
    return interpolate(seen, xp.clip(seen.count - discount, 0.0, None) / seen.of(_one_if_zero(seen.total)))


def katz(seen: Seen, ratios: Array) -> Smoothed:
    """Katz 1987: the Good-Turing estimate discounts a small count r to d_r r; unseen words get the rest.

    p(w | h) = d_r r / c(h)        if r = c(h w) > 0,    else α(h) p(w | h')

    `ratios` holds d_r for r = 0, 1, 2, ...; the last one is for all higher counts.
    """
    xp = array_namespace(seen.count)
    ratio = ratios[xp.clip(xp.astype(seen.count, xp.int64), 0, ratios.shape[0] - 1)]
    return back_off(seen, ratio * seen.count / seen.of(_one_if_zero(seen.total)))


def stupid_backoff(seen: Seen, alpha: float) -> Smoothed:
    """Brants et al. 2007: relative frequencies, and a fixed factor α for each step to a shorter context.

    S(w | h) = c(h w) / c(h)       if h w was seen
             = α S(w | h')         else, also where h itself was never seen

    These are scores: they do not sum to one. A word that was never seen at all gets the uniform 1/V, also times α.
    """
    xp = array_namespace(seen.count)
    own = seen.count / seen.of(_one_if_zero(seen.total))
    factor = xp.full_like(seen.total, alpha)
    if seen.kept is not None:
        own = xp.where(seen.kept, own, 0.0)
    return xp.where(own > 0, own, seen.of(factor) * seen.lower), factor


def counts_of_counts(count: Array, up_to: int) -> list[int]:
    """Return the numbers n_0, n_1, ... of n-grams with the counts 0, 1, ... up to `up_to`."""
    xp = array_namespace(count)
    pieces = [count]
    if is_numpy_array(count):  # the comparisons of a long array would take as much memory again
        pieces = [count[first : first + _AT_ONCE] for first in range(0, len(count), _AT_ONCE)]
    return [sum(int(xp.count_nonzero(piece == r)) for piece in pieces) for r in range(up_to + 1)]


def one_discount(n: Sequence[int]) -> list[float] | None:
    """Return absolute discounting's D = n_1 / (n_1 + 2 n_2) for counts of 0 and of 1 or more; None if one is 0."""
    if n[1] == 0 or n[2] == 0:
        return None
    return [0.0, n[1] / (n[1] + 2 * n[2])]


def three_discounts(n: Sequence[int]) -> list[float] | None:
    """Return modified Kneser-Ney's discounts for counts of 0, 1, 2, and 3 or more; None if one is not valid.

    Y = n_1 / (n_1 + 2 n_2),   D_r = r - (r + 1) Y n_{r+1} / n_r
    """
    if 0 in n[1:4]:
        return None
    y = n[1] / (n[1] + 2 * n[2])
    discounts = [0.0, *(r - (r + 1) * y * n[r + 1] / n[r] for r in (1, 2, 3))]
    return discounts if all(0 <= d <= r for r, d in enumerate(discounts)) else None


FALLBACK_ONE = [0.0, 0.75]
FALLBACK_THREE = [0.0, 0.5, 1.0, 1.5]
"""Discounts for texts too small, or too regular, to estimate them from; the three are also KenLM's fallback."""


FALLBACK_RATIOS = [0.0, 0.5, 0.75, 0.9, 1.0]
"""Katz's d_r where the Good-Turing estimate gives no d_1: about what an absolute discount of a half gives."""


def good_turing_ratios(n: Sequence[int], k: int) -> list[float]:
    """Return Katz's d_r for r = 0, 1, ..., k, and for all higher counts.

    r* = (r + 1) n_{r+1} / n_r,    m = (k + 1) n_{k+1} / n_1,    d_r = (r* / r - m) / (1 - m)

    n_r is the number of n-grams that occurred r times. Where these numbers are small or irregular, a ratio can be
    out of range. As in SRILM, k is then lowered until some n-gram has the count k + 1, and d_r = 1 (the count r is
    trusted) where r* exceeds r or d_r is not positive. SRILM then trusts even the count 1, which leaves next to
    nothing for unseen words; `FALLBACK_RATIOS` leave more.
    """
    while k > 0 and (n[1] == 0 or n[k + 1] == 0):
        k -= 1
    m = (k + 1) * n[k + 1] / n[1] if k else 0.0
    ratios = [0.0, *(_good_turing_ratio(r, n, m) for r in range(1, k + 1)), 1.0]
    return ratios if ratios[1] < 1 else FALLBACK_RATIOS


def _good_turing_ratio(r: int, n: Sequence[int], m: float) -> float:
    """Return d_r, or 1 where it is out of range."""
    if n[r] == 0 or m == 1:
        return 1.0
    star = (r + 1) * n[r + 1] / (r * n[r])
    ratio = (star - m) / (1 - m)
    return ratio if star <= 1 and _ROUNDING < ratio <= 1 else 1.0


def _one_if_zero(total: Array) -> Array:
    """Return the totals with 1 in place of 0, so that 0 / 0 becomes 0 / 1."""
    xp = array_namespace(total)
    return xp.where(total > 0, total, 1.0)
