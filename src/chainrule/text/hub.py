"""Datasets of the Hugging Face hub, or of a local folder, as records: read by the package `datasets`.

    hf://OWNER/NAME                                the split "train" of a dataset
    hf://OWNER/NAME?config=NAME&split=validation   another split; &revision=... for another version
    hf:///home/me/dataset, hf://./dataset          a folder by `save_to_disk`, or of parquet, jsonl or CSV files

The fields of text are read row by row, and kept in a temporary file of JSON lines.
"""

from __future__ import annotations

import datetime
import decimal
import json
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, unquote

from chainrule.errors import CorpusError, importing
from chainrule.text.records import no_field
from chainrule.text.remote import RemoteFile, is_address, plain_errors, protocol_of

_FILES = ("datasets/", "buckets/", "spaces/", "models/")  # addresses of files, which fsspec reads
_OPTIONS = ("config", "split", "revision")
_SAVED = ("state.json", "dataset_dict.json")  # files that save_to_disk writes
_USUAL = "train"


class Address(NamedTuple):
    """The parts of the address of a dataset."""

    name: str
    config: str | None = None
    split: str | None = None
    revision: str | None = None

    @property
    def is_local(self) -> bool:
        """True if it is a local folder."""
        return self.name.startswith(("/", "./", "../"))


def is_dataset(source: object) -> bool:
    """Return True if a source is the address of a dataset."""
    text = str(source)
    return is_address(source) and protocol_of(text) == "hf" and not text[len("hf://") :].startswith(_FILES)


def parse_address(address: str) -> Address:
    """Return the parts of the address of a dataset.

    >>> parse_address("hf://owner/name?split=test")
    Address(name='owner/name', config=None, split='test', revision=None)
    """
    name, _, query = address[len("hf://") :].partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := [option for option in options if option not in _OPTIONS]:
        raise CorpusError(f"{address}: there is no {unknown[0]}=; there are: {', '.join(_OPTIONS)}")
    found = Address(unquote(name).rstrip("/"), **options)
    if not found.name or (not found.is_local and found.name.count("/") > 1):
        raise CorpusError(
            f"{address}: expected hf://OWNER/NAME, a folder as hf:///FOLDER, or hf://datasets/... for files"
        )
    return found


def open_dataset(address: str, fields: Sequence[str]) -> RemoteFile:
    """Return the rows of a dataset as lines of JSON with these fields; a missing one is an error now."""
    wanted = parse_address(address)
    with plain_errors(address):
        dataset = _split(_loaded(wanted, address), wanted.split, address)
    rows = iter(dataset)
    with plain_errors(address):
        first = next(rows, None)
        if first is None:
            raise CorpusError(f"{address}: the dataset has no rows")
    columns = _columns(fields, first, address)

    def pieces() -> Iterator[bytes]:
        with plain_errors(address):
            for number, row in enumerate(chain([first], rows), start=1):
                kept = {name: row.get(name) for name in columns}
                plain = partial(_plain, f"{address}: row {number}")
                yield json.dumps(kept, ensure_ascii=True, default=plain).encode() + b"\n"

    return RemoteFile(address, ".jsonl", pieces)


def _loaded(wanted: Address, address: str) -> Any:
    """Return the splits of a dataset by name, or the only one; rows are read later."""
    with importing("datasets", "hub", f"reading {address}"):
        import datasets
    if wanted.is_local:
        folder = Path(wanted.name)
        if not folder.is_dir():
            raise CorpusError(f"{address}: no such folder")
        if any((folder / name).is_file() for name in _SAVED):
            return datasets.load_from_disk(str(folder))
    try:
        return datasets.load_dataset(wanted.name, wanted.config, revision=wanted.revision, streaming=True)
    except datasets.exceptions.DatasetNotFoundError:
        raise CorpusError(f"{address}: no such dataset, or one that takes a login") from None


def _split(loaded: Any, wanted: str | None, address: str) -> Any:
    """Return the wanted split of a dataset; by default "train", or the only one."""
    if not isinstance(loaded, dict):
        if wanted is not None and wanted != str(loaded.split):
            raise CorpusError(f"{address}: the dataset has no splits to choose from")
        return loaded
    names = [*loaded]
    name = wanted or (_USUAL if _USUAL in names or len(names) != 1 else names[0])
    if name not in loaded:
        raise CorpusError(f"{address}: there is no split {name!r}; there are: {', '.join(map(str, names))}")
    return loaded[name]


def _columns(fields: Sequence[str], row: dict[str, Any], address: str) -> list[str]:
    """Return the columns of the fields; the field meta.title is in the column meta."""
    found = {field: next((one for one in (field, field.partition(".")[0]) if one in row), None) for field in fields}
    if missing := [field for field, column in found.items() if column is None]:
        raise no_field(address, missing, row)
    return list(dict.fromkeys(column for column in found.values() if column is not None))


def _plain(place: str, value: Any) -> str:
    """Return a date or a decimal as text; other types that JSON lacks are errors."""
    if isinstance(value, (datetime.date, datetime.time, datetime.timedelta, decimal.Decimal)):
        return str(value)
    raise CorpusError(f"{place}: {type(value).__name__} is not text or a number")
