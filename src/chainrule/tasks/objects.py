"""The JSON objects of a file, each with its place for errors: lines of .jsonl, or the items of one JSON list."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

from chainrule.errors import CorpusError
from chainrule.text.files import Cleaning, clean_blocks, lines_in, raw_pieces, standard_input

_DECODER = json.JSONDecoder()
_SPACES = " \t\r\n"


def read_objects(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each object of a file (- is standard input) after its place: the file and the line that it begins on.

    If the first character is a bracket, the file is one list; else there is an object on each line.
    """
    raw, name = (
        (standard_input(), "standard input") if str(path) == "-" else (raw_pieces(Path(path), str(path)), str(path))
    )
    blocks = clean_blocks(raw, name, Cleaning())
    first = next(blocks, b"")
    if first.lstrip().startswith(b"["):
        yield from _items(b"".join([first, *blocks]).decode(), name)
        return
    for line, source in enumerate(lines_in(chain([first], blocks)), 1):
        if source.strip():
            place = f"{name}: line {line}"
            yield place, _object(_decoded(source.decode(), 0, place)[0], place)


def _items(text: str, name: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the items of a JSON list, decoded one by one so that the line of each is known."""
    line, counted = 1, 0
    at = _after_spaces(text, text.index("[") + 1)
    while text[at : at + 1] != "]":
        line, counted = line + text.count("\n", counted, at), at
        place = f"{name}: line {line}"
        value, end = _decoded(text, at, place)
        yield place, _object(value, place)
        at = _after_spaces(text, end)
        if text[at : at + 1] == ",":
            at = _after_spaces(text, at + 1)
        elif text[at : at + 1] != "]":
            line += text.count("\n", counted, at)
            raise CorpusError(f"{name}: line {line}: not JSON: expected , or ] after an item of the list")
    if rest := text[at + 1 :].strip():
        line += text.count("\n", counted, at)
        raise CorpusError(f"{name}: line {line}: not JSON: expected nothing after the list, found {rest[:20]!r}")


def _after_spaces(text: str, at: int) -> int:
    while at < len(text) and text[at] in _SPACES:
        at += 1
    return at


def _decoded(text: str, at: int, place: str) -> tuple[Any, int]:
    try:
        if at == 0:
            return json.loads(text), len(text)
        return _DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise CorpusError(
            f"{place}: not JSON: {error.msg} (character {error.pos - at + 1}); there should be a JSON object "
            "on each line, or one list of them"
        ) from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: not JSON: {error}") from None


def _object(value: Any, place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise CorpusError(f"{place}: expected a JSON object, found {json.dumps(value)[:40]}")
    return value


def field(record: dict[str, Any], name: str, place: str, option: str) -> Any:
    """Return a field of a record; the error for a missing one lists the fields and names the option."""
    if name not in record:
        there = ", ".join(record) or "none"
        raise CorpusError(f'{place}: there is no field "{name}"; there are: {there} (choose with {option})')
    return record[name]


def text_field(record: dict[str, Any], name: str, place: str, option: str) -> str:
    """Return a field of text; an error shows another value."""
    value = field(record, name, place, option)
    if not isinstance(value, str):
        raise CorpusError(f'{place}: the field "{name}" should hold text, not {json.dumps(value)[:40]}')
    return value
