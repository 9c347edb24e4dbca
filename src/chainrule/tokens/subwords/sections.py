"""Long lines and long pieces, cut into sections that are learned from and encoded one by one.

Subword algorithms work on pieces: runs of letters, of digits or of other signs, with the space before them, or of
white space. Learning takes time that grows with the square of the longest piece, and base64, DNA or a file of NULs
is one piece; so a piece of more than LONGEST_PIECE characters is cut after every LONGEST_PIECE of them, and no
token reaches over a cut. The library needs more than a hundred bytes of memory for each byte of the text that it is
given at once; so a line of more than LONGEST_SECTION characters is cut between two pieces, which changes no token.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

LONGEST_PIECE = 256
"""The most characters of a piece."""
LONGEST_SECTION = 1 << 16
"""The most characters of a line that are given to the library at once."""

Spans: TypeAlias = Callable[[str], list[tuple[int, int]]]
"""The pieces of a text: where each begins, and one past its end."""

SHORTEST_BOUND = 256
"""The least bound on pieces: a run as long as this covers a whole group of `_GROUP` bytes, wherever it begins."""
_GROUP = 128
_LONGEST_TAIL = 4096  # characters of a last word that are split into pieces
_LONGEST_UNSTABLE = 48  # characters: how they were cut depends hardly ever on text so far away


def sections(line: str, longest_piece: int | None, spans: Spans) -> list[str]:
    """Return the sections of a line; joined, they are the line. None for `longest_piece`: no piece is cut."""
    if len(line) <= LONGEST_SECTION and (longest_piece is None or not _may_be_too_long(line, longest_piece)):
        return [line]
    cuts = [0, *_cuts(line, longest_piece or len(line), spans)]
    return [line[start:end] for start, end in pairwise(cuts)]


def _cuts(line: str, longest: int, spans: Spans) -> Iterator[int]:
    """Yield where the sections of a line end."""
    start = 0
    while start < len(line):
        window = line[start : start + LONGEST_SECTION]
        is_last = start + len(window) == len(line)
        if not _may_be_too_long(window, longest) and (end := len(window) if is_last else _between_words(window)):
            start += end
            yield start
            continue
        pieces = spans(window)
        if not is_last:
            # the last piece may go on after the window, and decides where white space before it is cut
            pieces = pieces[:-2]
        if not pieces:
            # the window is one piece: it is cut as often as it can be
            step = min(longest, len(window))
            for end in range(step, len(window) + 1, step):
                yield start + end
            start += len(window) // step * step
            continue
        done = 0
        for first, last in pieces:
            if last - first > longest:
                if first > done:
                    yield start + first
                yield from (start + cut for cut in range(first + longest, last, longest))
                yield start + last
                done = last
        if pieces[-1][1] > done:
            yield start + pieces[-1][1]
        start += pieces[-1][1]


def unstable_end(line: str, spans: Spans) -> str:
    """Return the end of a line whose tokens depend on the text that follows: the last piece with the space before.

    After an apostrophe it is two pieces, since 'r becomes one piece if an e follows; of a very long piece, its end.
    """
    # a piece never reaches from a visible character to white space: only the last word has to be split into pieces
    before = line.rstrip()
    if before == line:
        before = line[: len(line) - len("".join(line.rsplit(None, 1)[-1:]))].rstrip()
    tail = line[len(before) :][-_LONGEST_TAIL:]
    pieces = [tail[first:last] for first, last in spans(tail)]
    if len(pieces) > 1 and pieces[-2] == "'":
        return "".join(pieces[-2:])
    return pieces[-1][-_LONGEST_UNSTABLE:] if pieces else ""


def lines_to_cut(block: bytes, longest_piece: int | None) -> list[tuple[int, int]]:
    """Return the beginnings and ends of the lines of a block that `sections` may cut: almost always none.

    A line may have to be cut if it is long, or if a group of its bytes is without white space, or nothing else.
    """
    if len(block) < _GROUP:
        return []
    flagged = [] if longest_piece is None else _long_runs(block).tolist()
    half = LONGEST_SECTION // 2  # a long line covers a whole half, wherever it begins
    if any(block.find(b"\n", start, start + half) < 0 for start in range(0, len(block) - half, half)):
        ends = np.append(np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n")), len(block))
        flagged += (ends[np.diff(ends, prepend=-1) > LONGEST_SECTION] - 1).tolist()
    found: list[tuple[int, int]] = []
    for place in sorted(flagged):
        if not found or place >= found[-1][1]:
            end = block.find(b"\n", place)
            found.append((block.rfind(b"\n", 0, place) + 1, len(block) if end < 0 else end))
    return found


def _long_runs(block: bytes) -> NDArray[np.int64]:
    """Return the offsets of the groups of bytes in which there is no white space, or nothing else."""
    groups = np.frombuffer(block, np.uint8, len(block) // _GROUP * _GROUP).reshape(-1, _GROUP)
    # eight booleans as one integer: each byte of the sum of sixteen of them is at most 16
    spaces = (groups == ord(" ")).view(np.uint64).sum(axis=1, dtype=np.uint64)
    suspects = np.flatnonzero((spaces == 0) | (spaces == 0x1010101010101010))  # few: the rest is quick
    is_space = (groups[suspects] == ord(" ")) | (groups[suspects] - ord("\t") < 5)
    offsets: NDArray[np.int64] = suspects[is_space.all(axis=1) | ~is_space.any(axis=1)] * _GROUP
    return offsets


def _between_words(window: str) -> int:
    """Return the index of the last space between visible characters, before which a piece surely ends; or 0."""
    place = window.rfind(" ", 0, -1)
    while place > 0 and not ("!" <= window[place - 1] <= "~" and "!" <= window[place + 1] <= "~"):
        place = window.rfind(" ", 0, place)
    return max(place, 0)


@cache
def _too_long(longest: int) -> re.Pattern[str]:
    """Match runs longer than a piece may be; a piece is part of a run of letters, digits, signs or white space."""
    return re.compile(rf"[^\W_]{{{longest}}}|(?:[^\w\s]|_){{{longest}}}|\s{{{longest}}}")


def _may_be_too_long(line: str, longest: int) -> bool:
    """Return True if a line may have a piece that is too long."""
    return (
        len(line) > longest and len(_long_runs(line.encode())) > 0 and _too_long(longest).search(line) is not None
    )
