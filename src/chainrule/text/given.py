"""Text as callers of functions give it: a string is text, a path is a file.

    str                     one text
    several str             several texts, each a document of its own
    Path, several Path      files
    Corpus                  taken as it is

`Corpus.open` opens patterns, standard input and the texts of the package, such as builtin:shakespeare.

>>> [document.decode() for document in as_corpus(["i love cats", "i love dogs"]).documents()]
['i love cats\\n', 'i love dogs\\n']
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, TypeVar

from chainrule.errors import CorpusError
from chainrule.text.builtin import BUILTIN
from chainrule.text.corpus import Corpus
from chainrule.text.remote import is_address

Text: TypeAlias = Corpus | str | Path | Iterable[str] | Iterable[Path]
"""Text as callers give it: one or several strings, which are texts, or paths, which are files; or a corpus."""

T = TypeVar("T")

FILE_ENDINGS = (".txt", ".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")
"""The ends of names that are never meant as text."""
_STORES = ("s3://", "gs://", "hf://", "file://")
_COMPRESSED = (".gz", ".zst")


def as_corpus(given: Text) -> Corpus:
    """Return the given text as a corpus; a string that is clearly the name of a file is an error."""
    if isinstance(given, Corpus):
        return given
    if isinstance(given, Path):
        return Corpus.open(given)
    items = as_items(given)
    if all(isinstance(item, Path) for item in items):
        return Corpus.open(*items)
    if all(map(_names_a_file, items)):
        _refuse_names(items)
    if not any(items):
        raise CorpusError("the text is empty")
    return Corpus.from_text(given) if isinstance(given, str) else Corpus.from_texts(items)


def read_given(given: Any, read: Callable[[Corpus], T], made: Callable[[list[Any]], T]) -> T:
    """Return what `read` makes of given text, or `made` of any other items, which are examples in memory."""
    if isinstance(given, (Corpus, str, Path)):
        return read(as_corpus(given))
    items = list(given)
    is_text = items and all(isinstance(item, (str, Path)) for item in items)
    return read(as_corpus(items)) if is_text else made(items)


def as_items(given: Any) -> list[Any]:
    """Return given strings or paths as a list; an error names anything else."""
    if isinstance(given, (str, Path)):
        return [given]
    if isinstance(given, (bytes, bytearray, memoryview)):
        raise CorpusError("expected text, found bytes: decode them first, such as data.decode('utf-8')")
    if hasattr(given, "columns"):
        raise CorpusError("expected texts, found a table: give its column of texts, such as frame['text']")
    if isinstance(given, Mapping) or not isinstance(given, Iterable):
        raise CorpusError(f"expected text (str), files (Path) or a list of either, found {type(given).__name__}")
    items = list(given)
    if not items:
        raise CorpusError("the list of texts is empty")
    for number, item in enumerate(items):
        if not isinstance(item, (str, Path)):
            hint = ": decode them first" if isinstance(item, (bytes, bytearray)) else ""
            raise CorpusError(f"item {number} of the list: expected text (str), found {type(item).__name__}{hint}")
    if len({isinstance(item, Path) for item in items}) > 1:
        raise CorpusError("a list should hold texts (str) or files (Path), not both")
    return items


def _names_a_file(text: str) -> bool:
    """Return True if a text is one line that names an existing file or folder, or looks like the name of a file."""
    if "\n" in text or len(text) > 4096:
        return False
    if text in BUILTIN or (text.startswith(_STORES) and len(text.split()) == 1):
        return True
    with suppress(OSError, ValueError):  # too long for a name, or not allowed in a name
        if text.strip() and Path(text).exists():
            return True
    if text.split() != [text]:
        return False
    ending = text.lower()
    for compressed in _COMPRESSED:
        ending = ending.removesuffix(compressed)
    return ending.endswith(FILE_ENDINGS) or (glob.has_magic(text) and any(glob.iglob(text)))  # noqa: PTH207


def _refuse_names(names: list[str]) -> NoReturn:
    first = names[0]
    if first in BUILTIN:
        raise CorpusError(f"{first!r} is text here; write Corpus.open({first!r}) for the text of that name")
    if is_address(first):
        raise CorpusError(f"{first!r} is text here; write Corpus.open({first!r}) to read what is there")
    how = f"Path({first!r}) to read the file"
    if len(names) > 1:
        how = f"[Path({first!r}), ...] to read the files"
    raise CorpusError(f"{first!r} is text here; write {how} (if it is meant as text: Corpus.from_text)")
