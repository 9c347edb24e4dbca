"""Files at addresses such as s3://bucket/books/*.txt: found and read by fsspec.

    s3://bucket/file.txt, gs://...   a file, a pattern or a folder in an object store
    https://host/file.jsonl.gz       a file of a server
    hf://datasets/OWNER/NAME/x.csv   files of the Hugging Face hub; hf://OWNER/NAME is a dataset (hub.py)
    file:///home/me/file.txt         a local file, which needs no package

Files that are not local are copied to temporary files, since a corpus is read several times.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from chainrule.errors import ChainruleError, CorpusError, MissingExtraError, importing
from chainrule.text.files import BLOCK_SIZE
from chainrule.text.sources import matches

_ADDRESS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")
_SHORTENED = re.compile(r"(s3|gs|gcs|hf|https?|file):/(?!/)")  # an address that became a Path
_SERVERS = ("http", "https")  # whose addresses may have a question mark that is not a pattern


class RemoteFile(NamedTuple):
    """A file that is not local."""

    name: str
    """Its address, which messages name."""
    suffix: str
    """The end of its name, which tells its form."""
    pieces: Callable[[], Iterator[bytes]]
    """The function that reads its bytes."""


def is_address(source: object) -> bool:
    """Return True if a source is an address rather than a local file; an address as a Path is an error."""
    text = str(source)
    if isinstance(source, Path) and (shortened := _SHORTENED.match(text)):
        address = f"{shortened[1]}://{text[shortened.end() :]}"
        raise CorpusError(f"{text}: an address is not a Path: write Corpus.open({address!r})")
    return _ADDRESS.match(text) is not None


def protocol_of(address: str) -> str:
    """Return the part of an address before ://, such as s3."""
    return address.partition("://")[0].lower()


def local_path(address: str) -> str:
    """Return the path of a file:// address."""
    parts = urlsplit(address)
    if parts.netloc not in ("", "localhost"):
        raise CorpusError(
            f"{address}: a file of this machine has three slashes: file:///{parts.netloc}{parts.path}"
        )
    return unquote(parts.path)


def find_remote(address: str, patterns: Sequence[str] = ()) -> list[RemoteFile]:
    """Return the files of an address: one, those that match it, or those of a folder that match `patterns`."""
    with plain_errors(address):
        system, path = _file_system(address)
        found = []
        for file in _files(system, path, address, patterns):
            name = address if file == path else str(system.unstrip_protocol(file))
            suffix = "".join(PurePosixPath(urlsplit(file).path).suffixes) or ".txt"
            found.append(RemoteFile(name, suffix, partial(_pieces, system, file, name)))
        return found


def _files(system: Any, path: str, address: str, patterns: Sequence[str]) -> list[str]:
    if glob.has_magic(path) and protocol_of(address) not in _SERVERS:
        found = sorted(file for file, info in system.glob(path, detail=True).items() if info["type"] == "file")
        if not found:
            raise CorpusError(f"no file matches {address!r}")
        return found
    if system.isfile(path):
        return [path]
    if not system.isdir(path):
        raise CorpusError(f"{address}: no such file")
    names = {file: file.removeprefix(path).lstrip("/") for file in sorted(system.find(path))}
    seen = [file for file, name in names.items() if not any(part.startswith(".") for part in name.split("/"))]
    if not seen:
        raise CorpusError(f"{address}: there is no file in this folder")
    chosen = [file for file in seen if matches(names[file], patterns)]
    if not chosen:
        raise CorpusError(f"{address}: none of its {len(seen):,} files matches {' or '.join(map(repr, patterns))}")
    return chosen


def _pieces(system: Any, file: str, name: str) -> Iterator[bytes]:
    with plain_errors(name), system.open(file, "rb") as opened:
        while piece := opened.read(BLOCK_SIZE):
            yield piece


def _file_system(address: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    with importing("fsspec", "remote", f"reading {address}"):
        import fsspec
        from fsspec.registry import known_implementations, registry

    protocol = protocol_of(address)
    if protocol not in registry and protocol not in known_implementations:
        raise CorpusError(f"{address}: there is no kind of store {protocol}://")
    try:
        system, path = fsspec.core.url_to_fs(address)
    except ImportError:
        library = known_implementations[protocol]["class"].partition(".")[0]
        if library == "fsspec":  # a class of fsspec that needs another package, such as aiohttp
            library = {"http": "aiohttp", "https": "aiohttp"}.get(protocol, f"the package for {protocol}://")
        raise MissingExtraError(library, "hub" if protocol == "hf" else "remote", f"reading {address}") from None
    return system, path


@contextmanager
def plain_errors(address: str) -> Iterator[None]:
    """Turn errors of any store into one line that names the address."""
    try:
        yield
    except ChainruleError:
        raise
    except FileNotFoundError:
        raise CorpusError(f"{address}: no such file") from None
    except Exception as error:
        message = " ".join(str(error).split())
        raise CorpusError(f"{address}: {type(error).__name__}{f': {message}' if message else ''}") from error
