"""Train, validation and test text, split by document.

If there are many files, each is a document; else a document is a record, a paragraph between blank lines, or a line
where blank lines are rare.

The part of a document depends on a hash of its text and the seed, not on its file or its position. So two copies of
a document are always in the same part, and a text is split in the same way on every machine. (Up to 10,000 distinct
documents are assigned in the order of their hashes, so that the parts have the requested sizes; there, an added
document can move another one.)
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Literal, TypeAlias, get_args

from chainrule.errors import CorpusError, SettingsError
from chainrule.system.disk import naming
from chainrule.system.progress import SILENT, Progress
from chainrule.text.corpus import Corpus
from chainrule.text.files import form_of

_FEW = 10_000  # distinct documents up to which shares are exact; with more, uniform hashes are close to them

_SIZES, _SIZE = ".sizes", struct.Struct("<q")  # beside a part: the bytes of each of its documents

_MANY_FILES, _LARGEST_FILE = 20, 0.1  # this many files are documents, if none has a larger share of the bytes

By: TypeAlias = Literal["auto", "file", "paragraph", "line", "time"]
"""What is kept together: a file, a paragraph, a line; or, by time, the last documents are held out."""


def split(
    corpus: Corpus,
    shares: Mapping[str, float],
    folder: Path,
    *,
    by: By = "auto",
    seed: int = 0,
    progress: Progress = SILENT,
) -> dict[str, Corpus]:
    """Split a corpus into named parts, each written to `folder` as `<name>.txt` and returned as a corpus.

    Shares such as {"train": 0.9, "valid": 0.1} sum to one.
    """
    if by not in get_args(By):
        raise SettingsError(f"a text is split by {', '.join(get_args(By))}, not by {by!r}")
    documents = partial(documents_by, corpus, by)
    paths = {name: folder / f"{name}.txt" for name in shares}
    if set(paths.values()) & set(corpus.paths):
        raise ValueError(f"the parts would overwrite the corpus itself in {folder}")
    part_of = in_order(documents(), shares) if by == "time" else dealt(documents(), shares, seed, corpus.name)
    with naming(folder), ExitStack() as stack, progress.task("splitting", corpus.size(), "B") as task:
        files = {name: stack.enter_context(path.open("wb")) for name, path in paths.items()}
        sizes = {name: stack.enter_context(path.with_suffix(_SIZES).open("wb")) for name, path in paths.items()}
        for document in documents():
            part, written = part_of(document), document if document.endswith(b"\n") else document + b"\n"
            files[part].write(written)
            sizes[part].write(_SIZE.pack(len(written)))
            task.advance(len(document))
    corpus.note_losses(progress)
    check_parts({name: path.stat().st_size for name, path in paths.items()}, corpus.name)
    return {
        name: Corpus(paths=(path,), divide=partial(_of_sizes, path.with_suffix(_SIZES)))
        for name, path in paths.items()
    }


def _of_sizes(path: Path, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """Yield the documents of a part as they were written: a file or a record may have blank lines inside."""
    rest, start = b"", 0
    for (size,) in _SIZE.iter_unpack(path.read_bytes()):
        while len(rest) - start < size and (block := next(blocks, b"")):
            rest, start = rest[start:] + block, 0
        yield rest[start : start + size]
        start += size


def documents_by(corpus: Corpus, by: By) -> Iterator[bytes]:
    """Yield the documents of a corpus: what stays together when it is split."""
    if by == "line":
        return chain.from_iterable(document.splitlines(keepends=True) for document in corpus.documents())
    if by == "file" or (by == "auto" and _has_many_files(corpus)):
        return corpus.documents(lambda blocks: [b"".join(blocks)])
    return corpus.documents()


def _has_many_files(corpus: Corpus) -> bool:
    sizes = [path.stat().st_size for path in corpus.paths if form_of(path) == "text"]
    return len(sizes) >= _MANY_FILES and max(sizes) <= _LARGEST_FILE * sum(sizes)


def in_order(documents: Iterable[bytes], shares: Mapping[str, float]) -> Callable[[bytes], str]:
    """Return a function that gives the part of each document, if they are asked for in their order."""
    total = sum(map(len, documents))
    read = 0

    def part_of(document: bytes) -> str:
        nonlocal read
        middle = (read + len(document) / 2) / max(total, 1)
        read += len(document)
        return _share(middle, shares)

    return part_of


def dealt(
    documents: Iterable[bytes], shares: Mapping[str, float], seed: int, corpus: str
) -> Callable[[bytes], str]:
    """Return the function that gives the part of any of these documents; `corpus` names them in errors."""
    if abs(sum(shares.values()) - 1) > 1e-9 or min(shares.values()) <= 0:
        raise ValueError(f"shares must be positive and sum to one, not {dict(shares)}")
    places = _exact_shares(documents, shares, seed)

    def part_of(document: bytes) -> str:
        draw = _draw(document, seed)
        if places and draw not in places:
            raise CorpusError(f"{corpus}: changed while it was read: copy it first, then train on the copy")
        return places[draw] if places else _share(draw, shares)

    return part_of


def check_parts(sizes: Mapping[str, int], corpus: str) -> None:
    """Refuse parts of which some have nothing in them."""
    empty = [name for name, size in sizes.items() if size == 0]
    if len(empty) == len(sizes):
        raise CorpusError(f"{corpus} is empty")
    if empty:
        raise CorpusError(
            f"{corpus}: too few documents for the parts {', '.join(sizes)}: a document is a record, ends at a "
            "blank line, or is a line where blank lines are rare; add text, or name the parts as files of their own"
        )


def _draw(document: bytes, seed: int) -> float:
    """Return a hash of the document's text and the seed, as a number in [0, 1)."""
    digest = hashlib.blake2b(document.strip(), digest_size=8, salt=(seed % 2**128).to_bytes(16, "little"))
    return int.from_bytes(digest.digest(), "little") / 2**64


def _share(draw: float, shares: Mapping[str, float]) -> str:
    """Return the part whose interval of [0, 1) contains `draw`."""
    end = 0.0
    for name, share in shares.items():
        end += share
        if draw < end:
            return name
    return name


def _exact_shares(documents: Iterable[bytes], shares: Mapping[str, float], seed: int) -> dict[float, str]:
    """Return the part of each document by its draw, with exact shares in bytes; empty for many documents.

    Documents are assigned in the order of their draws, at least one to each part.
    """
    sizes: dict[float, int] = {}
    for document in documents:
        draw = _draw(document, seed)
        sizes[draw] = sizes.get(draw, 0) + len(document)
        if len(sizes) > _FEW:
            return {}
    draws, total = sorted(sizes), sum(sizes.values())
    *smaller, largest = sorted(shares, key=lambda name: shares[name])
    places: dict[float, str] = {}
    for place, name in enumerate(smaller):
        taken, quota = 0, shares[name] * total
        left_for_others = len(smaller) - place
        # the last document is added if that brings the part nearer to its share
        while len(draws) > left_for_others and (not taken or taken + sizes[draws[0]] / 2 <= quota):
            draw = draws.pop(0)
            places[draw] = name
            taken += sizes[draw]
    return places | dict.fromkeys(draws, largest)
