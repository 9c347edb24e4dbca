"""Numba kernels over contexts: sorting them for `suffixes`, walking through them for `walk`.

All release the GIL; threads run them in parallel where their outputs do not overlap.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.store.compiled import inner, kernel, rank_of


@njit(cache=True, nogil=True)
def lengthen(ids: Any, order: Any, starts: Any, boundary: int, longer: Any) -> None:
    """Sort the events by d + 1 tokens of context into `longer`, given their `order` by d tokens.

    One stable pass of a radix sort.
    """
    size = len(ids)
    place = starts.copy()
    if boundary >= 0:
        for i in range(size):
            if ids[i - 1] == boundary:
                longer[place[boundary]] = i
                place[boundary] += 1
    for r in range(size):
        event = np.int64(order[r])
        token = ids[event]  # the context of the next event is this token, then the context of this event
        if token != boundary:
            longer[place[token]] = event + 1 if event + 1 < size else 0
            place[token] += 1


@njit(cache=True, nogil=True)
def group(ids: Any, order: Any, boundary: int, depth: int, rank: Any, is_new: Any) -> int:
    """Rank sorted contexts by their first `depth` tokens; equal contexts get the rank of the first of them.

    Marks the first of each group of equal contexts in `is_new`. Returns the number of groups.
    """
    size, groups, head = len(ids), 0, 0
    for r in range(size):
        same = r > 0
        if same:
            i, j = np.int64(order[r - 1]), np.int64(order[r])
            for d in range(1, depth + 1):
                token = ids[(i - d) % size]
                if token != ids[(j - d) % size] or token == boundary:
                    same = False
                    break
        if not same:
            is_new[r] = 1
            head = r
            groups += 1
        rank[order[r]] = head
    return groups


@njit(cache=True, nogil=True)
def shell_sort(keys: Any, values: Any, first: int, size: int) -> None:
    """Sort the keys [0, size) and the values [first, first + size) by the keys.

    Most groups have two or three members, and most of a long group is in order already. (NumPy's sorts take Numba
    seven seconds to compile.)
    """
    gap = size
    while gap > 1:
        gap = max(5 * gap // 11, 1)
        for a in range(gap, size):
            key, value, b = keys[a], values[first + a], a
            while b >= gap and keys[b - gap] > key:
                keys[b], values[first + b] = keys[b - gap], values[first + b - gap]
                b -= gap
            keys[b], values[first + b] = key, value


@njit(cache=True, nogil=True)
def refine(order: Any, rank: Any, is_new: Any, depth: int) -> int:
    """Sort each group of contexts that share their first `depth` tokens by the ranks of the tokens after those.

    One step of prefix doubling: updates `order`, `rank` and `is_new` in place, and returns the number of groups.
    """
    size, groups, first = len(order), 0, 0
    keys = np.empty(size, np.int64)  # of which a part as long as the largest group is used, and takes memory
    while first < size:
        last = first + 1
        while last < size and not is_new[last]:
            last += 1
        members = last - first
        groups += 1
        if members > 1:
            for a in range(members):
                before = np.int64(order[first + a]) - depth
                keys[a] = rank[before if before >= 0 else before % size]
            shell_sort(keys, order, first, members)
            # ranks change only once the whole group is sorted: no key may come from a half-updated group
            head = first
            for a in range(members):
                if a > 0 and keys[a] != keys[a - 1]:
                    head = first + a
                    is_new[head] = 1
                    groups += 1
                rank[order[first + a]] = head
        first = last
    return groups


@njit(cache=True, nogil=True)
def distribute(follower: Any, starts: Any, places: Any) -> None:
    """Write the ranks, sorted by (follower, rank), to `places`; `starts` is where each follower's block begins."""
    place = starts.copy()
    for r in range(len(follower)):
        places[place[follower[r]]] = r
        place[follower[r]] += 1


@njit(cache=True, nogil=True)
def compare(
    ids: Any, order: Any, follower: Any, places: Any, boundary: int, most: int, first: int, last: int, shared: Any
) -> None:
    """Fill shared[first:last]: 1 + the number of tokens, at most `most`, that neighbours in a block have in common.

    The first entry of a block is 0.
    """
    size = len(ids)
    for s in range(first, last):
        if s == 0 or follower[places[s]] != follower[places[s - 1]]:
            shared[s] = 0
            continue
        i, j = np.int64(order[places[s - 1]]), np.int64(order[places[s]])
        d = 0
        while d < most:
            token = ids[(i - 1 - d) % size]
            if token != ids[(j - 1 - d) % size]:
                break
            d += 1
            if token == boundary:
                break
        shared[s] = d + 1


@njit(cache=True, nogil=True)
def tabulate(values: Any, block: int, table: Any) -> None:
    """Fill table[x, b] with the number of values in the first b blocks that are at most x."""
    limits, columns = table.shape
    for b in range(1, columns):
        for x in range(limits):
            table[x, b] = table[x, b - 1]
        for value in values[(b - 1) * block : b * block]:
            for x in range(value, limits):
                table[x, b] += 1


@kernel
def at_most(values: Any, table: Any, block: int, limit: int, first: int, last: int) -> Any:
    """Return the number of values[first:last] that are at most `limit`, from the table if the range is long."""
    if limit >= len(table) or last - first <= 2 * block:
        return _scan(values, limit, first, last)
    whole, end = (first + block - 1) // block, last // block
    ends = _scan(values, limit, first, whole * block) + _scan(values, limit, end * block, last)
    return ends + table[limit, end] - table[limit, whole]


@inner
def _scan(values: Any, limit: int, first: int, last: int) -> Any:
    found, highest = 0, np.uint8(limit)
    for r in range(first, last):  # not a slice: counting references to it would cost more than the loop
        if values[r] <= highest:
            found += 1
    return found


@inner
def read(levels: Any, depth: int, token: int, places: Any, starts: Any, longer: Any) -> None:
    """Write the range of each level's context followed by `token` to `longer`; each lies within the one before."""
    lo, hi = starts[token], starts[token + 1]
    for k in range(depth):
        lo = rank_of(places, lo, hi, levels[k, 0])
        hi = rank_of(places, lo, hi, levels[k, 1])
        longer[k, 0], longer[k, 1], longer[k, 2] = lo, hi, levels[k, 2] + 1


@inner
def distinct(longer: Any, depth: int, levels: Any) -> int:
    """Write the levels after a token behind the empty one, and merge equal ranges; returns the number of levels."""
    new = 1
    for k in range(depth):
        lo, hi = longer[k, 0], longer[k, 1]
        if lo == hi:
            break
        if new > 1 and hi - lo == levels[new - 1, 1] - levels[new - 1, 0]:
            levels[new - 1, 2] = longer[k, 2]
        elif new < len(levels):
            levels[new, 0], levels[new, 1], levels[new, 2] = lo, hi, longer[k, 2]
            new += 1
        else:
            break
    return new


@kernel
def gather(
    ids_BT: Any, levels_BK3: Any, depth_B: Any, start_K3: Any, resets: Any, places: Any, starts: Any, shared: Any,
    fresh: Any, shared_table: Any, fresh_table: Any, block: int, longest: int, evidence_K4BT: Any, used_BT: Any,
    matched_BT2: Any, longer: Any,
) -> None:  # fmt: skip
    """Walk each row of ids, updating its levels and depth in place.

    Unless they are empty, evidence, used and matched receive what `walk.Keep` explains: the counts of each level
    for each token, the number of levels, and the longest match. `longer` has room for the levels of a row.
    """
    for b in range(ids_BT.shape[0]):
        levels, depth = levels_BK3[b], depth_B[b]
        for t in range(ids_BT.shape[1]):
            token = ids_BT[b, t]
            if token < 0:
                break
            read(levels, depth, token, places, starts, longer)
            for k in range(depth if used_BT.size else 0):
                if longer[k, 0] < longer[k, 1]:
                    matched_BT2[b, t, 0], matched_BT2[b, t, 1] = longer[k, 2], longer[k, 1] - longer[k, 0]
                if k > 0 and levels[k - 1, 2] >= longest:
                    continue
                n = min(levels[k, 2], longest)
                lo, hi = levels[k, 0], levels[k, 1]
                evidence_K4BT[k, 0, b, t] = n
                evidence_K4BT[k, 1, b, t] = at_most(shared, shared_table, block, n + 1, longer[k, 0], longer[k, 1])
                evidence_K4BT[k, 2, b, t] = at_most(fresh, fresh_table, block, n + 1, lo, hi)
                evidence_K4BT[k, 3, b, t] = at_most(fresh, fresh_table, block, n, lo, hi)
                used_BT[b, t] = k + 1
            if resets[token]:
                depth = len(start_K3)
                for k in range(depth):
                    levels[k, 0], levels[k, 1], levels[k, 2] = start_K3[k, 0], start_K3[k, 1], start_K3[k, 2]
            else:
                depth = distinct(longer, depth, levels)
        depth_B[b] = depth
