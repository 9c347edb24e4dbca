"""Records: files whose text is in fields of objects or rows.

    form               a record             its fields
    *.jsonl, *.ndjson  an object on a line  its keys; `meta.title` is the key title of the object under meta
    *.csv, *.tsv       a row                the names in the first row
    *.parquet          a row                its columns; `meta.title` is a field of the struct column meta

Strings, numbers and truth values are text; a number in JSON keeps its spelling. Several fields are joined, each on
a new line. A field that is null, absent or empty adds nothing; a record without text is skipped and counted.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from chainrule.errors import CorpusError, importing
from chainrule.text.files import Cleaning, clean_blocks, form_of, lines_in, raw_pieces

_ENOUGH_OBJECTS = 1000  # a field that this many objects at the start of a file lack has a wrong name
_MOST_NAMES = 20  # the most fields that an error lists
_LONGEST_CELL = 1 << 26  # characters; a longer one has a quote that is never closed
_ROWS_AT_ONCE = 4096


@dataclass(frozen=True)
class Fields:
    """The names of the fields with the text of a record, and of the field that identifies it."""

    text: tuple[str, ...] = ("text",)
    id: str | None = None

    @classmethod
    def parse(cls, text: Iterable[str] = (), id: str | None = None) -> Fields:  # noqa: A002
        """Return the fields of words such as "title,body"; without words, the field `text`.

        >>> Fields.parse(["title,body", "notes"]).text
        ('title', 'body', 'notes')
        """
        names = tuple(name.strip() for word in text for name in word.split(","))
        if not all(names) or id == "":
            raise CorpusError("the name of a field is empty")
        return cls(names or cls.text, id)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all fields, the id last."""
        return self.text if self.id is None else (*self.text, self.id)


TEXT = Fields()
"""The field `text`, if none is named."""


class Record(NamedTuple):
    """A record of a file."""

    label: int | str
    """Its id, or the number of its line or row, from 1."""
    text: bytes
    """Its clean text, which ends in LF."""
    number: int
    """The number of its line or row, from 1."""
    source: bytes
    """Its whole lines in the file; none for a parquet file."""


_Row: TypeAlias = tuple[int, Sequence[bytes | None], bytes]
"""The number of a record, a value for each of `Fields.names`, and its whole lines; none for a parquet file."""


def read_records(path: Path, name: str, fields: Fields, cleaning: Cleaning) -> Iterator[Record]:
    """Yield the records of a file that have text; errors name the file `name`."""
    form = form_of(path)
    rows = {"jsonl": _jsonl_rows, "csv": _csv_rows, "tsv": _csv_rows, "parquet": _parquet_rows}[form]
    unit = "row" if form == "parquet" else "line"
    for number, values, source in rows(path, name, fields.names, cleaning):
        chosen = values[: len(fields.text)]
        text = chosen[0] if len(chosen) == 1 else b"\n".join(one.removesuffix(b"\n") for one in chosen if one)
        if not text:
            cleaning.skipped += 1
            continue
        text = cleaning.valid_utf8(text, f"{name}: {unit} {number}", 1)
        text = text.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
        text = text if text.endswith(b"\n") else text + b"\n"
        label = values[-1] if fields.id is not None else None
        yield Record(label.decode("utf-8", "replace") if label else number, text, number, source)


def no_field(name: str, wanted: Iterable[str], there: Iterable[str]) -> CorpusError:
    """Return the error for records without a wanted field, with the names of their fields."""
    missing = " and ".join(f'"{field}"' for field in wanted)
    names = list(there)
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    known = ", ".join(names[:_MOST_NAMES]) or "none"
    return CorpusError(
        f"{name}: there is no field {missing}; there are: {known}{more} (choose with --field, --id-field "
        'and --label-field; in Python with Corpus.open(path, fields="..."))'
    )


# -- jsonl ------------------------------------------------------------------------------------------------

_ABSENT: Any = object()
_JSON_NAMES = {list: "a list", str: "a text or a number", bool: "true or false", type(None): "null"}
_DECODER = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=str)  # numbers as they are spelled


def _jsonl_rows(path: Path, name: str, fields: Sequence[str], cleaning: Cleaning) -> Iterator[_Row]:
    objects = 0
    unseen, seen = dict.fromkeys(fields), dict[str, None]()
    for line, source in enumerate(lines_in(clean_blocks(raw_pieces(path, name), name, cleaning)), 1):
        if not source.strip():
            continue
        place = f"{name}: line {line}"
        record = _object(source, place)
        found = [_lookup(record, field) for field in fields]
        if unseen:
            objects += 1
            for key, value in record.items():  # an object in it has fields such as meta.title
                seen |= dict.fromkeys([f"{key}.{inner}" for inner in value] if isinstance(value, dict) else [key])
            for field, value in zip(fields, found, strict=True):
                if value is not _ABSENT:
                    unseen.pop(field, None)
            if unseen and objects == _ENOUGH_OBJECTS:
                raise no_field(name, unseen, seen)
        values = [_json_text(value, field, place) for field, value in zip(fields, found, strict=True)]
        yield line, values, source + b"\n"
    if unseen and objects:
        raise no_field(name, unseen, seen)


def _object(source: bytes, place: str) -> dict[str, Any]:
    try:
        record: Any = _DECODER.decode(source.decode())
    except json.JSONDecodeError as error:
        raise CorpusError(f"{place}: not JSON: {error.msg} (character {error.pos + 1})") from None
    except (ValueError, RecursionError) as error:
        raise CorpusError(f"{place}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise CorpusError(f"{place}: expected a JSON object, found {_JSON_NAMES[type(record)]}")
    return record


def _lookup(record: dict[str, Any], field: str) -> Any:
    """Return the value of a field; a name with dots is a path through objects, unless there is such a key."""
    if field in record:
        return record[field]
    first, dot, rest = field.partition(".")
    if dot and isinstance(record.get(first), dict):
        return _lookup(record[first], rest)
    return _ABSENT


def _json_text(value: Any, field: str, place: str) -> bytes | None:
    if isinstance(value, str):
        # a JSON escape can spell a lone surrogate (half a character), whose encoding is not valid UTF-8
        return value.encode("utf-8", "surrogatepass")
    if value is None or value is _ABSENT:
        return None
    if isinstance(value, bool):
        return b"true" if value else b"false"
    what = "a list" if isinstance(value, list) else "an object"
    raise CorpusError(f'{place}: the field "{field}" holds {what}, not text or a number')


# -- CSV and TSV ------------------------------------------------------------------------------------------


def csv_header(path: Path, name: str, cleaning: Cleaning) -> bytes:
    """Return the first row of a CSV file, with the names of its fields, as bytes; empty if there is none."""
    return next((source for _, _, source in _cells(path, name, cleaning)), b"")


def _csv_rows(path: Path, name: str, fields: Sequence[str], cleaning: Cleaning) -> Iterator[_Row]:
    header: list[str] = []
    places: list[int] = []
    for line, row, source in _cells(path, name, cleaning):
        if not header:
            header = row
            if missing := [field for field in fields if field not in header]:
                raise no_field(name, dict.fromkeys(missing), header)
            places = [header.index(field) for field in fields]
        elif len(row) != len(header):
            raise CorpusError(f"{name}: line {line}: {len(row)} cells, where the first row has {len(header)}")
        else:
            yield line, [row[place].encode() for place in places], source


def _cells(path: Path, name: str, cleaning: Cleaning) -> Iterator[tuple[int, list[str], bytes]]:
    """Yield the rows of a CSV file that have cells: the number of the first line, the cells, and the lines."""
    blocks = clean_blocks(raw_pieces(path, name), name, cleaning)
    # lines with their ends; unlike for str.splitlines, only LF ends one
    lines = (line for block in blocks for line in io.StringIO(block.decode(), newline="\n"))
    first = next(lines, None)
    if first is None:
        return
    # of the whole process: there is no other limit
    csv.field_size_limit(max(csv.field_size_limit(), _LONGEST_CELL))
    taken: list[str] = []  # the lines of the row that is being read
    # cells are separated by tabs, by commas, or by semicolons if the first row has no comma
    delimiter = "\t" if form_of(path) == "tsv" else ";" if ";" in first and "," not in first else ","
    reader = csv.reader(_noted(chain([first], lines), taken), delimiter=delimiter, strict=True)
    while True:
        line = reader.line_num + 1
        taken.clear()
        try:
            row = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise CorpusError(
                f"{name}: line {line}: {error} (a cell with a quote, a line end or a separator is quoted, "
                "and a quote in it doubled)"
            ) from None
        if row:
            yield line, row, "".join(taken).removesuffix("\n").encode() + b"\n"


def _noted(lines: Iterable[str], taken: list[str]) -> Iterator[str]:
    """Yield the lines, and add each to `taken`."""
    for line in lines:
        taken.append(line)
        yield line


# -- parquet ----------------------------------------------------------------------------------------------


def _parquet_rows(path: Path, name: str, fields: Sequence[str], cleaning: Cleaning) -> Iterator[_Row]:
    with importing("pyarrow", "files", f"reading {name}"):
        import pyarrow
        import pyarrow.parquet
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            there = _flat(file.schema_arrow.empty_table()).column_names
            if missing := [field for field in fields if field not in there]:
                raise no_field(name, dict.fromkeys(missing), there)
            number = 0
            for batch in file.iter_batches(columns=list(dict.fromkeys(fields)), batch_size=_ROWS_AT_ONCE):
                table = _flat(pyarrow.Table.from_batches([batch]))
                columns = [_as_bytes(table.column(one), f'{name}: the field "{one}"') for one in fields]
                for values in zip(*columns, strict=True):
                    number += 1
                    yield number, values, b""
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        problem = " ".join(str(error).split())
        raise CorpusError(f"{name}: not a parquet file, or a damaged one: {problem}") from error


def _flat(table: Any) -> Any:
    """Return an Arrow table with the fields of each struct column, such as meta.title, as columns of their own."""
    import pyarrow

    while any(pyarrow.types.is_struct(column.type) for column in table.schema):
        table = table.flatten()
    return table


def _as_bytes(column: Any, what: str) -> list[bytes | None]:
    """Return the values of a column as bytes; Arrow's conversion to text fails if one is not UTF-8."""
    import pyarrow

    types = pyarrow.types
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    kind = column.type
    if types.is_null(kind):
        return [None] * len(column)
    if types.is_primitive(kind) or types.is_decimal(kind):  # numbers, truth values, dates and times
        column = column.cast(pyarrow.string())
    elif not (types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)):
        raise CorpusError(f"{what} holds {kind}, not text or numbers")
    wide = pyarrow.large_binary() if types.is_large_string(kind) else pyarrow.binary()
    values: list[bytes | None] = column.cast(wide).to_pylist()
    return values
