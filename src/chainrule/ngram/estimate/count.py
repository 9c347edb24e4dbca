"""Fast counting: the n-grams of every length from one sort of the text's windows (`sorting.py` has the kernels).

`levels.count_by_unique` gets the same counts in the slow, obvious way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.lm import Context
from chainrule.ngram.estimate.levels import Counts, Level
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.workspace import Workspace, give_back_memory
from chainrule.system.parallel import in_order
from chainrule.system.progress import SILENT, Progress

Ids = NDArray[np.integer]
Ints = NDArray[np.int64]

_PLACES_AT_ONCE = 1 << 21
_WINDOWS_PER_PART = 1 << 15  # these, and their order, fit into a core's cache
_MOST_PARTS = 1 << 12
_BYTES_OF_WINDOWS = 1 << 28  # in memory at a time
_CONTEXTS_AT_ONCE = 1 << 18
_SHELF = 1 << 21  # n-grams in each array of a shelf

Index = type[np.unsignedinteger[Any]]
Ngrams = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""N-grams of one length: the code of the last word, the count, and the number of children of each."""


def bytes_needed(tokens: int, order: int) -> int:
    """An estimate of the peak memory of counting and then smoothing."""
    return tokens * order * 11 + (1 << 28)


def count_by_sorting(
    ids: Ids,
    order: int,
    vocab_size: int,
    bos: int,
    eos: int,
    context: Context,
    workspace: Workspace | None = None,
    progress: Progress = SILENT,
    index: Index | None = None,
) -> Counts:
    """The counts of every n-gram up to `order` in a text whose lines each end in `eos`.

    Part after part of the text's windows is cut out, sorted and counted, as many at a time as stay small beside the
    counts. `index` is the type of indices into levels.
    """
    workspace = workspace or Workspace()
    index = index or index_type(2 * len(ids) + 1, vocab_size)
    with progress.task(f"counting {order}-grams", len(ids), "tokens") as task:
        words = np.bincount(ids, minlength=vocab_size)
        counts = Counts(vocab_size, bos, [unigrams(words, index)])
        if order == 1:
            return counts
        code = codes_of_words(vocab_size)
        text = Windows(ids, code, bos, eos if context == "line" else -1)
        words[bos] = words[eos] if context == "line" else 1
        parts = Parts.of(words, code)
        rounds = -(-len(ids) * order * 4 // _BYTES_OF_WINDOWS)
        shelves = [_Shelf(workspace) for _ in range(order)]
        for some in np.array_split(np.arange(parts.number), min(rounds, parts.number)):
            _count_parts(text, int(some[0]), len(some), parts, shelves, workspace)
            task.advance(len(ids) * len(some) / parts.number)
        give_back_memory()
        _join(counts, shelves, index, workspace)
        give_back_memory()
    with progress.task("linking"):
        for n in range(2, order + 1):
            counts.levels[n - 1].suffix = linked(counts.levels[:n], index, workspace)
    return counts


def _count_parts(
    text: Windows, first: int, many: int, parts: Parts, shelves: list[_Shelf], workspace: Workspace
) -> None:
    """Count `many` parts of the text from part `first` on, and put their n-grams onto the shelf of each length."""
    windows_from = partial(text.windows, order=len(shelves), parts=parts, first=first, many=many)
    blocks = [block for _, block in in_order(windows_from, text.stretches())]
    workspace.release(text.ids)
    for _, levels in in_order(lambda part: count_part(part, blocks, parts.bits), range(many)):
        for shelf, level in zip(shelves, levels, strict=True):
            shelf.put(*level)


def index_type(largest: int, vocab_size: int = 0) -> Index:
    """The narrowest type that holds every index and count up to `largest`, and every word."""
    return np.uint32 if max(largest, vocab_size) < 1 << 32 else np.uint64


def unigrams(words: Ints, index: Index) -> Level:
    size = len(words)
    code = codes_of_words(size)
    count = np.empty(size, dtype=index)
    count[code] = words
    everything = np.arange(size, dtype=np.uint32)
    return Level(everything, count, np.asarray([0, size], dtype=np.int64), np.zeros(size, dtype=index))


@dataclass(frozen=True)
class Parts:
    """The division of the windows into parts: by their first word, then by their second (see `sorting.py`)."""

    number: int
    """The number of parts."""
    bits: int
    """The number of bits of a column."""
    part_of: NDArray[np.int32]
    """The first part, and often the only one, of the windows that begin with each word."""
    split_of: NDArray[np.int32]
    """The number of bits to shift the second column by, to get the index of the part among those of the word."""

    @classmethod
    def of(cls, words: Ints, code: NDArray[np.uint32]) -> Parts:
        """Parts of similar size: consecutive codes together, and frequent words split by the word that follows."""
        bits = len(words).bit_length()
        wanted = max(_WINDOWS_PER_PART, int(words.sum()) // _MOST_PARTS)
        frequency = np.empty(len(words), dtype=np.int64)
        frequency[code] = words
        cuts = np.minimum(np.ceil(np.log2(np.maximum(frequency / wanted, 1))).astype(np.int64), bits)
        frequent = cuts > 0
        together = np.cumsum(np.where(frequent, 0, frequency)) // wanted
        begins = np.ones(len(words), dtype=bool)
        begins[1:] = frequent[1:] | frequent[:-1] | (together[1:] != together[:-1])
        parts = np.where(begins, 1 << cuts, 0)
        first = np.maximum.accumulate(np.where(begins, np.cumsum(parts) - parts, 0))
        split = np.where(frequent, bits - cuts, 31)
        return cls(int(parts.sum()), bits, first[code].astype(np.int32), split[code].astype(np.int32))


@dataclass(frozen=True)
class Block:
    """The windows of a stretch of text, sorted by part; `begin` is the first row of each part, and the last end."""

    windows: NDArray[np.uint32]
    begin: Ints


@dataclass(frozen=True)
class Windows:
    """The text to count, the code of each word, <s>, and the token that ends a line (-1 with stream context)."""

    ids: Ids
    code: NDArray[np.uint32]
    bos: int
    ends_at: int
    at_once: int = _PLACES_AT_ONCE
    """The tokens of a stretch."""

    def stretches(self) -> Iterable[int]:
        """Where stretches of the text begin."""
        return range(0, len(self.ids), self.at_once)

    def windows(self, place: int, *, order: int, parts: Parts, first: int, many: int) -> Block:
        """The windows that begin in the stretch at `place`, of `many` parts from `first` on, sorted by part."""
        from chainrule.ngram.estimate.sorting import fill_windows, window_parts

        last = min(place + self.at_once, len(self.ids))
        at_start = place == 0 or int(self.ids[place - 1]) == self.ends_at
        where = (self.ids, place, last, at_start, self.ends_at, self.code, self.bos, parts.part_of, parts.split_of)
        sizes = np.zeros(many, dtype=np.int64)
        window_parts(*where, first, sizes)
        begin = np.concatenate([[0], np.cumsum(sizes)])
        windows = np.empty((int(begin[-1]), order), dtype=np.uint32)
        fill_windows(*where, first, begin[:-1].copy(), windows)
        return Block(windows, begin)


def count_part(part: int, blocks: list[Block], bits: int) -> list[Ngrams]:
    """The n-grams of one part, for each length."""
    from chainrule.ngram.estimate.sorting import fill_levels, shared_columns, sort_windows

    windows = np.concatenate([block.windows[block.begin[part] : block.begin[part + 1]] for block in blocks])
    place = sort_windows(windows, bits)
    shared = np.empty(len(windows), dtype=np.uint8 if windows.shape[1] < 256 else np.uint32)
    sizes = np.zeros(windows.shape[1], dtype=np.int64)
    shared_columns(windows, place, shared, sizes)
    first = np.concatenate([[0], np.cumsum(sizes)])
    table = np.zeros((3, int(first[-1])), dtype=np.uint32)
    fill_levels(windows, place, shared, first[:-1].copy(), table[0], table[1], table[2])
    return [(level[0], level[1], level[2]) for level in np.split(table, first[1:-1], axis=1)]


class _Shelf:
    """A buffer of the n-grams of one length, which arrive part by part: last words, counts, numbers of children.

    They lie in few large arrays, whose memory (or file) is freed as soon as they are taken. Most counts are small:
    they take two bytes, or four in an array where one of them needs that.
    """

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._chunks: list[Ngrams] = []
        self._used = _SHELF
        self.size = 0
        self.largest = 0

    def put(self, word: NDArray[Any], count: NDArray[Any], children: NDArray[Any]) -> None:
        """Add some n-grams."""
        largest = int(count.max(initial=0))
        self.largest = max(self.largest, largest)
        self.size += len(word)
        for first in range(0, len(word), _SHELF):
            part = slice(first, first + _SHELF)
            self._put(word[part], count[part], children[part], largest)

    def _put(self, word: NDArray[Any], count: NDArray[Any], children: NDArray[Any], largest: int) -> None:
        chunk = self._chunks[-1] if self._chunks else None
        if chunk is None or self._used + len(word) > _SHELF or largest > np.iinfo(chunk[1].dtype).max:
            self._finish()
            types = (np.uint32, *[np.uint16 if largest < 1 << 16 else np.uint32] * 2)
            chunk = tuple(self._workspace.empty(_SHELF, dtype) for dtype in types)  # type: ignore[assignment]
            self._chunks.append(chunk)  # type: ignore[arg-type]
        to = slice(self._used, self._used + len(word))
        chunk[0][to], chunk[1][to], chunk[2][to] = word, count, children  # type: ignore[index]
        self._used = to.stop

    def _finish(self) -> None:
        if self._chunks:
            word, count, children = self._chunks[-1]
            self._chunks[-1] = (word[: self._used], count[: self._used], children[: self._used])
            self._workspace.release(*self._chunks[-1])
        self._used = 0

    def take(self) -> Iterator[Ngrams]:
        """The n-grams on the shelf, array by array; each array is freed as soon as it has been used."""
        self._finish()
        while self._chunks:
            yield self._chunks.pop(0)


def _join(counts: Counts, shelves: list[_Shelf], index: Index, workspace: Workspace) -> None:
    """Append the levels from length 2 on to `counts`: the n-grams of each shelf, one part after the other."""
    begin: NDArray[Any] = np.zeros(counts.vocab_size + 1, dtype=index)
    for words, _, children in shelves[0].take():
        np.add.at(begin[1:], words, children)  # a frequent word has several parts
    all_words = workspace.empty(sum(shelf.size for shelf in shelves[1:]), np.uint32)  # as the trie packs them
    for n, shelf in enumerate(shelves[1:], start=2):
        np.cumsum(begin, out=begin)
        word, all_words = all_words[: shelf.size], all_words[shelf.size :]
        count = workspace.empty(shelf.size, np.min_scalar_type(shelf.largest))
        next_begin = workspace.empty(shelf.size + 1 if n < len(shelves) else 1, index)
        next_begin[0] = 0
        at = 0
        for words, part, children in shelf.take():
            to = at + len(words)
            word[at:to], count[at:to] = words, part
            if n < len(shelves):
                next_begin[at + 1 : to + 1] = children
            at = to
        counts.levels.append(Level(word, count, begin, word))
        begin = next_begin
        workspace.release()


def linked(levels: list[Level], index: Index, workspace: Workspace) -> NDArray[Any]:
    """The suffixes of the last level, which `levels.link_suffixes` finds too; here in parallel, by a kernel."""
    from chainrule.ngram.estimate.link_kernels import link_suffixes

    above, below = levels[-1], levels[-2]
    if len(levels) == 2:
        return np.asarray(above.word)
    suffix, size = workspace.empty(len(above), index), len(levels[0])

    def link(stretch: tuple[int, int]) -> None:
        link_suffixes(*stretch, above.begin, above.word, below.suffix, below.begin, below.word, size, suffix)

    contexts = len(above.begin) - 1
    edges = [*range(0, contexts, _CONTEXTS_AT_ONCE), contexts]
    for _ in workspace.in_order(link, pairwise(edges)):
        pass
    return suffix
