"""Errors of the system that name their file: a full disk is reported by a write, which knows no name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def naming(path: str | Path, temporary: Path | None = None) -> Iterator[None]:
    """Yield a block whose OSErrors name `path`, unless they name a file already.

    A file that is named by its temporary name, or lies in a folder of that name, is called by its final one.
    """
    try:
        yield
    except OSError as error:
        named = str(path) if error.filename is None else str(error.filename)
        if temporary is not None and (named == str(temporary) or named.startswith(f"{temporary}{os.sep}")):
            named = str(path) + named.removeprefix(str(temporary))
        if error.errno is None or named == str(error.filename):
            raise
        raise OSError(error.errno, error.strerror, named) from error
