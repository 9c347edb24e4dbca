"""Every context of a text, of any length, in sorted order, from which c(h) and c(h w) are read for any h.

The context of event i, the token ids[i], is the text before it, read backwards: ids[i-1], ids[i-2], ... When all
contexts are sorted, those that end in h are one range of ranks, and the longer h, the narrower the range. Four
arrays represent them; neither the text nor the sorted contexts themselves are kept:

    follower[r]  the event after the context of rank r
    places[s]    the ranks r in order of (follower[r], r): a block for each word, of the ranks that it follows
    shared[s]    1 + the number of tokens that the contexts of places[s] and places[s-1] have in common; 0 at the
                 beginning of a block and 255 for more than 253
    fresh[r]     `shared` by rank: fresh[places[s]] = shared[s]

If h has the range [lo, hi), then h w has [lo', hi'), where lo' and hi' are the indices at which lo and hi would be
inserted into the block of w in `places`: two binary searches lengthen a context at its right end, whatever its
length. (This is the backward search of an FM-index of the reversed text.) So c(h w) = hi' - lo', c(h) = hi - lo.

For Kneser-Ney counts let n be the length of h. A word's first event in the range has fresh <= n, and each further
one whose token before h differs from that of the event before has fresh = n + 1:

    N(h ·)     = #{r in [lo, hi): fresh[r] <= n}         words that follow h
    N(· h ·)   = #{r in [lo, hi): fresh[r] <= n + 1}     pairs of a token before and a word after
    N(· h w)   = #{s in [lo', hi'): shared[s] <= n + 1}  tokens before h w

With line context a context ends at the </s> before its line, which stands for <s>: two contexts may have that token
in common, but nothing before it. With stream context the text is circular, so that every event has a context.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.capabilities import BestTokens
from chainrule.folder import Context
from chainrule.ngram.sampling.best_tokens import MOST_CONTEXTS, first_maxima
from chainrule.ngram.store.trie import read_only
from chainrule.system.parallel import at_once, cores, plain_up_to, stretches

Ids = NDArray[np.integer]
Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

LONGEST = 253
"""The length of the longest contexts that have Kneser-Ney counts: an entry of `shared` is one byte."""

SMALL = plain_up_to(670)
"""The most tokens of a text that NumPy sorts rather than Numba kernels, which would take longer to load."""

_FIRST_DEPTH = 4  # tokens by which contexts are sorted one at a time, before the depth doubles
BLOCK, _TABULATED = 32, 8  # a table has the number of values per 32 that are at most 0, 1, ... 7, for long ranges


@dataclass(frozen=True)
class Suffixes:
    """The sorted contexts of a text, as the four arrays that the module describes.

    >>> suffixes = build(np.asarray([3, 4, 3, 4, 2]), vocab_size=5, eos=2, context="stream")
    >>> first, last = suffixes.starts[3:5].tolist()  # the range of the context 3
    >>> suffixes.follower[first:last].tolist()
    [4, 4]
    """

    vocab_size: int
    follower: Ids
    places: Ids
    shared: Bytes
    fresh: Bytes

    def __post_init__(self) -> None:
        for name in ("follower", "places", "shared", "fresh"):
            object.__setattr__(self, name, read_only(getattr(self, name)))

    def __len__(self) -> int:
        return len(self.follower)

    @cached_property
    def starts(self) -> Ints:
        """The index in `places` at which the block of each word begins, and the end of the last: V + 1 numbers."""
        return _starts(self.follower, self.vocab_size)

    @cached_property
    def tables(self) -> tuple[Ints, Ints]:
        """For `shared` and `fresh`: the number of values before each 32nd index that are at most 0, 1, ... 7."""
        from chainrule.ngram.infinite import kernels

        tables = []
        for values in (self.shared, self.fresh):
            table = np.zeros((_TABULATED, len(values) // BLOCK + 1), dtype=np.int64)
            kernels.tabulate(values, BLOCK, table)
            tables.append(table)
        return tables[0], tables[1]

    def followed(self, lo: int, hi: int, first: int, last: int) -> tuple[int, int]:
        """Return the range of h w, which lies within [first, last), given the range [lo, hi) of h."""
        kind = self.places.dtype.type  # searching for a number of another type would convert the whole array
        block = self.places[first:last]
        return first + int(np.searchsorted(block, kind(lo))), first + int(np.searchsorted(block, kind(hi)))


def build(ids: Ids, vocab_size: int, eos: int, context: Context, *, small: int = SMALL) -> Suffixes:
    """Sort the contexts of a text whose lines each end in `eos`."""
    boundary = eos if context == "line" else -1
    text = np.ascontiguousarray(ids, dtype=np.uint32)
    if len(text) <= small:
        order: Ids = order_of(text, boundary)
        follower = text[order]
        places: Ids = np.argsort(follower, kind="stable").astype(index_dtype(len(text)))
        shared = _shared(text, order, follower, places, boundary)
    else:
        starts = _starts(text, vocab_size)  # every event follows a context, so that followers have the same
        order = _order_compiled(text, starts, boundary)
        follower = text[order]
        places, shared = _places_compiled(text, order, follower, starts, boundary)
    fresh = np.empty_like(shared)
    fresh[places] = shared
    narrow = np.uint16 if vocab_size <= 1 << 16 else np.uint32
    return Suffixes(vocab_size, follower.astype(narrow, copy=False), places, shared, fresh)


def _starts(ids: Ids, vocab_size: int) -> Ints:
    """Return where the block of each word begins when ids are sorted, and the end of the last block."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(np.bincount(ids, minlength=vocab_size))])


def index_dtype(size: int) -> type[np.uint32] | type[np.int64]:
    """Return the narrowest type for indices into an array of `size` elements."""
    return np.uint32 if size < 1 << 32 else np.int64


def order_of(ids: Ids, boundary: int) -> Ints:
    """Return the events sorted by their contexts, by NumPy.

    Prefix doubling: ranks by d tokens, taken in pairs, give the order by 2 d tokens.
    """
    size, places = len(ids), np.arange(len(ids))
    before = ids[places - 1].astype(np.int64)
    order = np.argsort(before, kind="stable")
    ordered = before[order]
    # each start of a line has a rank of its own, so that nothing before it is compared
    is_new = np.concatenate([[True], (ordered[1:] != ordered[:-1]) | (ordered[1:] == boundary)])
    depth = 1
    while not is_new.all() and depth < size:
        rank = np.empty(size, dtype=np.int64)
        rank[order] = np.cumsum(is_new)
        further = rank[(places - depth) % size]
        order = np.lexsort((further, rank))
        rank, further = rank[order], further[order]
        is_new[1:] = (rank[1:] != rank[:-1]) | (further[1:] != further[:-1])
        depth *= 2
    return order


def _shared(ids: Ids, order: Ids, follower: Ids, places: Ids, boundary: int) -> Bytes:
    """Return the array `shared`, by NumPy: neighbours in a block are compared token by token."""
    size, events = len(ids), order[places].astype(np.int64)
    shared = np.zeros(size, dtype=np.uint8)
    block = follower[places]
    same = np.flatnonzero(block[1:] == block[:-1]) + 1
    shared[same] = 1
    for depth in range(1, LONGEST + 2):
        one, other = ids[(events[same] - depth) % size], ids[(events[same - 1] - depth) % size]
        same, ended = same[one == other], one[one == other] == boundary
        shared[same] = depth + 1
        same = same[~ended]
    return shared


def _order_compiled(ids: Ids, starts: Ints, boundary: int) -> Ids:
    """Return the events sorted by their contexts, by Numba.

    Radix passes sort to a depth of a few tokens, then prefix doubling sorts the groups that are still equal.
    """
    from chainrule.ngram.infinite import kernels

    size = len(ids)
    order: Ids = np.arange(size, dtype=index_dtype(size))
    other = np.empty_like(order)
    for _ in range(_FIRST_DEPTH):
        kernels.lengthen(ids, order, starts, boundary, other)
        order, other = other, order
    rank, is_new, depth = other, np.zeros(size, dtype=np.uint8), _FIRST_DEPTH
    groups = kernels.group(ids, order, boundary, depth, rank, is_new)
    while groups < size and depth < size:
        groups = kernels.refine(order, rank, is_new, depth)
        depth *= 2
    if groups < size:  # a circular text that repeats itself has equal contexts: sort those by position
        order = order[np.lexsort((order, np.cumsum(is_new)))]
    return order


def _places_compiled(ids: Ids, order: Ids, follower: Ids, starts: Ints, boundary: int) -> tuple[Ids, Bytes]:
    """Return the arrays `places` and `shared`, by Numba."""
    from chainrule.ngram.infinite import kernels

    places, shared = np.empty_like(order), np.empty(len(order), dtype=np.uint8)
    kernels.distribute(follower, starts, places)

    def compare(part: tuple[int, int]) -> None:
        kernels.compare(ids, order, follower, places, boundary, LONGEST + 1, *part, shared)

    at_once(compare, stretches(len(order), cores()))
    return places, shared


def best_tokens(suffixes: Suffixes, bos: int, boundary: int, longest: int) -> list[BestTokens]:
    """Return the contexts of 1 to `longest` tokens, with the most common token after each.

    A context does not reach back beyond a token `boundary`, which stands for <s>.
    """
    token_of_rank = np.repeat(np.arange(suffixes.vocab_size), np.diff(suffixes.starts))
    follower = suffixes.follower.astype(np.int64)
    rank, is_whole = np.arange(len(suffixes)), np.ones(len(suffixes), dtype=bool)
    is_new = np.zeros(len(suffixes), dtype=bool)
    is_new[:1] = True
    tokens, found, total = list[np.ndarray](), list[BestTokens](), 0
    for _ in range(longest):
        token = token_of_rank[rank]
        is_new[1:] |= token[1:] != token[:-1]
        total += int(is_new.sum())
        if total > MOST_CONTEXTS:
            break
        tokens.insert(0, np.where(token == boundary, bos, token))
        # contexts with the same last tokens have neighbouring ranks
        group = np.cumsum(is_new) - 1
        pairs, counts = np.unique(group * suffixes.vocab_size + follower, return_counts=True)
        group_of_pair = pairs // suffixes.vocab_size
        best = first_maxima(counts, np.flatnonzero(np.diff(group_of_pair, prepend=-1)))
        first = np.flatnonzero(is_new)
        whole = is_whole[first]
        contexts = np.stack([column[first] for column in tokens], axis=1)
        found.append(BestTokens(contexts[whole], (pairs[best] % suffixes.vocab_size)[whole]))
        is_whole &= token != boundary
        rank = suffixes.places[rank].astype(np.int64)  # the rank of the context without its last token
    return found
