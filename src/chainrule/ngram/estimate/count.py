"""Fast counting: the n-grams of every length from one sort of the text's windows (`kernels.py` has the kernels).

Part after part of the windows is cut out, sorted and counted. The n-grams of each part wait in chunks until all
parts are counted; then the chunks of each length are copied into the arrays of its level, and each n-gram is linked
to the one without its first word. `partitions.py` has other processes do the same work on files.
`levels.count_by_unique` gets the same counts in the slow, obvious way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
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
from chainrule.system.disk import scratch_folder
from chainrule.system.parallel import Executor, in_order
from chainrule.system.progress import SILENT, Progress, Task

Ids = NDArray[np.integer]
Ints = NDArray[np.int64]

_TOKENS_OF_A_STRETCH = 1 << 21
_WINDOWS_PER_PART = 1 << 15  # these, and their order, fit into a core's cache
_MOST_PARTS = 1 << 12
_BYTES_OF_WINDOWS = 1 << 28  # in memory at a time
_CONTEXTS_AT_ONCE = 1 << 18
_NGRAMS_OF_A_CHUNK = 1 << 21
_BYTES_OF_AN_NGRAM = 8  # in a buffer: a word of four, a count and a number of children of one or two each

Index = type[np.unsignedinteger[Any]]
Ngrams = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]
"""N-grams of one length: the code of the last word, the count, and the number of children of each."""


@dataclass(frozen=True)
class Chunk:
    """Some n-grams of one length, in memory or in a file; the chunks of a length in sequence are all of them."""

    size: int
    largest: int
    """The largest count."""
    children: int
    """The number of children of all n-grams together."""
    load: Callable[[], Ngrams]

    @classmethod
    def of(cls, ngrams: Ngrams, load: Callable[[], Ngrams]) -> Chunk:
        """Describe n-grams that `load` returns."""
        word, count, children = ngrams
        return cls(len(word), int(count.max(initial=0)), int(children.sum(dtype=np.int64)), load)


def bytes_needed(tokens: int, order: int) -> int:
    """Estimate the peak memory of counting and then smoothing."""
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
    """Count every n-gram up to `order` in a text whose lines each end in `eos`.

    `index` is the type of indices into levels.
    """
    workspace = workspace or Workspace()
    stretch = workspace.limited(_TOKENS_OF_A_STRETCH * 8) // 8  # NumPy counts words in a copy of 8 bytes for each
    text = Windows(ids, codes_of_words(vocab_size), bos, eos if context == "line" else -1, stretch)
    index = index or index_type(2 * len(ids) + 1, vocab_size)
    with progress.task(f"counting {order}-grams", len(ids), "tokens") as task, ExitStack() as files:
        words = text.frequencies(workspace.executor)
        counts = Counts(vocab_size, bos, [_unigrams(words, index)])
        if order > 1:
            words[bos] = words[text.ends_at] if text.ends_at >= 0 else 1
            count = _count_here
            if workspace.executor.is_remote:
                from chainrule.ngram.estimate.partitions import count_in_files

                count = partial(count_in_files, folder=files.enter_context(scratch_folder(workspace.folder)))
            chunks = count(text, Parts.of(words, text.code), order, workspace, task)
            _join(counts, chunks, index, workspace)
            give_back_memory()
    with progress.task("linking"):
        for n in range(2, order + 1):
            counts.levels[n - 1].suffix = _suffixes(counts.levels[:n], workspace)
    return counts


def _count_here(text: Windows, parts: Parts, order: int, workspace: Workspace, task: Task) -> list[list[Chunk]]:
    """Count all parts in this process, as many at a time as have windows that stay small beside the counts."""
    rounds = -(-len(text.ids) * order * 4 // workspace.limited(_BYTES_OF_WINDOWS))
    in_chunk = workspace.limited(_NGRAMS_OF_A_CHUNK * order * _BYTES_OF_AN_NGRAM) // (order * _BYTES_OF_AN_NGRAM)
    chunks: list[list[Chunk]] = [[] for _ in range(order)]
    waiting: list[list[Ngrams]] = []
    size = 0
    for some in np.array_split(np.arange(parts.number), min(rounds, parts.number)):
        windows = partial(text.windows, order=order, parts=parts, first=int(some[0]), many=len(some))
        blocks = [block for _, block in in_order(windows, text.stretches())]
        workspace.release(text.ids)
        for part, levels in in_order(partial(count_part, blocks=blocks, bits=parts.bits), range(len(some))):
            waiting.append(levels)
            size += max(len(word) for word, _, _ in levels)
            if size >= in_chunk or some[part] == parts.number - 1:
                for chunks_of_level, ngrams in zip(chunks, zip(*waiting, strict=True), strict=True):
                    chunks_of_level.append(_chunk(ngrams, workspace))
                waiting, size = [], 0
        task.advance(len(text.ids) * len(some) / parts.number)
    give_back_memory()
    return chunks


def index_type(largest: int, vocab_size: int = 0) -> Index:
    """Return the narrowest type that holds every index and count up to `largest`, and every word."""
    return np.uint32 if max(largest, vocab_size) < 1 << 32 else np.uint64


def _unigrams(words: Ints, index: Index) -> Level:
    """Make the level of single words, given how often each word occurs."""
    size = len(words)
    code = codes_of_words(size)
    count = np.empty(size, dtype=index)
    count[code] = words
    everything = np.arange(size, dtype=np.uint32)
    return Level(everything, count, np.asarray([0, size], dtype=np.int64), np.zeros(size, dtype=index))


@dataclass(frozen=True)
class Parts:
    """The division of the windows into parts: by their first word, then by their second (see `kernels.py`)."""

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
    at_once: int
    """The tokens of a stretch."""

    def stretches(self) -> range:
        """Return where stretches of the text begin."""
        return range(0, len(self.ids), self.at_once)

    def frequencies(self, executor: Executor) -> Ints:
        """Count how often each word occurs."""

        def count(place: int) -> Ints:
            return np.bincount(self.ids[place : place + self.at_once], minlength=len(self.code))

        total = np.zeros(len(self.code), dtype=np.int64)
        for _, found in executor.in_order(count, self.stretches()):
            total += found
        return total

    def windows(self, place: int, *, order: int, parts: Parts, first: int, many: int) -> Block:
        """Return the windows of `many` parts from `first` on that begin in a stretch at `place`, by part."""
        from chainrule.ngram.estimate.kernels import fill_windows

        last = min(place + self.at_once, len(self.ids))
        at_start = place == 0 or int(self.ids[place - 1]) == self.ends_at
        where = (self.ids, place, last, at_start, self.ends_at, self.code, self.bos, parts.part_of, parts.split_of)
        sizes = np.zeros(many, dtype=np.int64)
        fill_windows(*where, first, sizes, np.empty((0, order), dtype=np.uint32))  # counts them
        begin = np.concatenate([[0], np.cumsum(sizes)])
        windows = np.empty((int(begin[-1]), order), dtype=np.uint32)
        fill_windows(*where, first, begin[:-1].copy(), windows)
        return Block(windows, begin)


def count_part(part: int, blocks: list[Block], bits: int) -> list[Ngrams]:
    """Return the n-grams of one part, for each length.

    Most counts are small: they take one or two bytes, or four in a part where one of them needs that.
    """
    from chainrule.ngram.estimate.kernels import fill_levels, shared_columns, sort_windows

    windows = np.concatenate([block.windows[block.begin[part] : block.begin[part + 1]] for block in blocks])
    place = sort_windows(windows, bits)
    shared = np.empty(len(windows), dtype=np.uint8 if windows.shape[1] < 256 else np.uint32)
    sizes = np.zeros(windows.shape[1], dtype=np.int64)
    shared_columns(windows, place, shared, sizes)
    first = np.concatenate([[0], np.cumsum(sizes)])
    table = np.zeros((3, int(first[-1])), dtype=np.uint32)
    fill_levels(windows, place, shared, first[:-1].copy(), table[0], table[1], table[2])
    found = []
    for word, count, children in np.split(table, first[1:-1], axis=1):
        narrow = np.min_scalar_type(int(count.max(initial=0)))  # an n-gram has no more children than its count
        found.append((word.copy(), count.astype(narrow), children.astype(narrow)))
    return found


def joined(parts: Iterable[Ngrams]) -> Ngrams:
    """Return the n-grams of one length of all parts, one after the other."""
    word, count, children = (np.concatenate(column) for column in zip(*parts, strict=True))
    return word, count, children


def _chunk(parts: Iterable[Ngrams], workspace: Workspace) -> Chunk:
    """Make one chunk of the n-grams of several parts.

    The memory, or the file, of a large array is freed as soon as nothing refers to it.
    """
    word, count, children = map(workspace.put, joined(parts))
    return Chunk.of((word, count, children), lambda: (word, count, children))


def _join(counts: Counts, chunks: list[list[Chunk]], index: Index, workspace: Workspace) -> None:
    """Append the levels from length 2 on to `counts`; each chunk is freed as soon as it has been copied."""
    order, sizes = len(chunks), [sum(chunk.size for chunk in level) for level in chunks]
    begin: NDArray[Any] = np.zeros(counts.vocab_size + 1, dtype=index)
    for first in chunks[0]:
        words, _, children = first.load()
        np.add.at(begin[1:], words, children)  # a frequent word has several parts
    begin = workspace.put(np.cumsum(begin, out=begin))
    all_words = workspace.empty(sum(sizes[1:]), np.uint32)  # as the trie packs them
    for n in range(2, order + 1):
        word, all_words = all_words[: sizes[n - 1]], all_words[sizes[n - 1] :]
        most = max((chunk.largest for chunk in chunks[n - 1]), default=0)
        count = workspace.empty(sizes[n - 1], np.min_scalar_type(most))
        below = workspace.empty(sizes[n - 1] + 1 if n < order else 1, index)
        below[0] = 0
        copy = partial(_copy, word=word, count=count, begin=below if n < order else None)
        for _ in workspace.in_order(copy, _taken(chunks[n - 1])):
            pass
        counts.levels.append(Level(word, count, begin, word))
        begin = below
        workspace.release()


def _taken(chunks: list[Chunk]) -> Iterator[tuple[Chunk, int, int]]:
    """Take the chunks of a length from the list; with each, the n-grams and children of all chunks before it."""
    size = children = 0
    while chunks:
        chunk = chunks.pop(0)
        yield chunk, size, children
        size, children = size + chunk.size, children + chunk.children


def _copy(
    piece: tuple[Chunk, int, int], word: NDArray[Any], count: NDArray[Any], begin: NDArray[Any] | None
) -> None:
    """Copy the n-grams of a chunk to their place in the arrays of a level.

    `begin` is where the n-grams of one more word begin; None for the longest.
    """
    chunk, at, longer = piece
    words, counts, children = chunk.load()
    to = at + len(words)
    word[at:to], count[at:to] = words, counts
    if begin is not None:
        begin[at + 1 : to + 1] = longer + np.cumsum(children, dtype=np.int64)


def _suffixes(levels: list[Level], workspace: Workspace) -> NDArray[Any]:
    """Return the suffixes of the last level, as `levels.link_suffixes` finds them; here by a kernel."""
    from chainrule.ngram.estimate.kernels import link_suffixes

    above, below = levels[-1], levels[-2]
    if len(levels) == 2:
        return np.asarray(above.word)
    suffix, size = workspace.empty(len(above), levels[0].suffix.dtype), len(levels[0])

    def link(stretch: tuple[int, int]) -> None:
        link_suffixes(*stretch, above.begin, above.word, below.suffix, below.begin, below.word, size, suffix)

    contexts = len(above.begin) - 1
    for _ in workspace.in_order(link, pairwise([*range(0, contexts, _CONTEXTS_AT_ONCE), contexts])):
        pass
    return suffix
