"""Overlap: which lines of a text another text has too, so that a test on trained text does not go unnoticed.

Only long lines count: short ones, such as "return None", are alike by chance.
"""

from __future__ import annotations

import base64
import re
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.text.corpus import Corpus

Hashes = NDArray[np.uint32]

SKETCH = "corpus_lines"
"""The name of a training text's sketch in the provenance of a model."""

_LONG_LINE = 30  # bytes
_MOST = 2048  # hashes of a sketch
_ALIKE = bytes.maketrans(b"123456789", b"0" * 9)
_SPACES = re.compile(rb"[ \t]+")


def repeated_bytes(test: Corpus, train: Corpus) -> int:
    """Return how many bytes of a test text are long lines that the training text has too, or nearly so.

    Two lines are near-duplicates if they differ in nothing but case, digits and white space.

    >>> line = "A line that is long enough to be no accident, of 2026"
    >>> repeated_bytes(Corpus.from_text(line + "\\nshort"), Corpus.from_text("short\\n" + line.lower()))
    54
    """
    wanted: dict[int, int] = {}
    for line, size in _nearly(test):
        wanted[hash(line)] = wanted.get(hash(line), 0) + size
    return sum(wanted.pop(hash(line), 0) for line, _ in _nearly(train)) if wanted else 0


def _nearly(corpus: Corpus) -> Iterator[tuple[bytes, int]]:
    """Yield the long lines of a corpus, with all near-duplicates written alike, and their bytes."""
    for block in corpus.blocks():
        for line in block.lower().translate(_ALIKE).splitlines():
            if len(line) >= _LONG_LINE:
                yield _SPACES.sub(b" ", line.strip()), len(line) + 1


class LineSketch:
    """A sample of the long lines of a text, by their hashes: those of the lowest hashes.

    The samples of two texts tell what share of their lines the texts have in common, because both samples have all
    lines whose hash is low enough.

    >>> one, other = LineSketch(), LineSketch()
    >>> lines = [b"line %d of a text that is long enough to count" % number for number in range(100)]
    >>> one.update(b"\\n".join(lines)), other.update(b"\\n".join(lines[75:]))
    (None, None)
    >>> shared(other.hashes, [one.hashes]), shared(one.hashes, [other.hashes])
    (1.0, 0.25)
    """

    def __init__(self) -> None:
        self.hashes: Hashes = np.empty(0, np.uint32)

    def update(self, block: bytes) -> None:
        """Add the lines of a block."""
        found = [zlib.crc32(line) for line in block.split(b"\n") if len(line) >= _LONG_LINE]
        self.hashes = np.unique(np.concatenate([self.hashes, np.asarray(found, np.uint32)]))[:_MOST]


def shared(hashes: Hashes, others: list[Hashes]) -> float | None:
    """Return the share of a text's long lines that some other texts have, by their samples; None if it has none."""
    full = [one[-1] for one in (hashes, *others) if len(one) == _MOST]
    compared = hashes[hashes <= min(full, default=np.uint32(2**32 - 1))]
    return float(np.isin(compared, np.concatenate(others)).mean()) if len(compared) and others else None


def to_text(hashes: Hashes) -> str:
    """Return a sample as text, for JSON."""
    return base64.b64encode(hashes.astype("<u4").tobytes()).decode("ascii")


def sketches_in(provenance: Mapping[str, Any]) -> list[Hashes]:
    """Return the samples of all training texts that the provenance of a model names; a mixture has several."""
    parts = provenance.get("mixed")
    found = [sketch for part in (parts if isinstance(parts, list) else []) for sketch in sketches_in(part)]
    with suppress(KeyError, ValueError, TypeError):  # a manifest that was edited by hand
        found.append(np.frombuffer(base64.b64decode(provenance[SKETCH], validate=True), "<u4").astype(np.uint32))
    return found
