"""Something broken in chainrule that a trial must find: a trial that could find nothing would show nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from chainrule.system.disk import atomic
from chainrule.text import corpus


def _swallowing(path: Path, sync: Callable[[Path], None] = atomic.sync) -> None:
    with suppress(OSError):
        sync(path)


def _deleting_first(new: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    new.rename(folder)


@contextmanager
def _in_place(folder: Path) -> Iterator[Path]:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    yield folder


def _losing(pieces: Iterable[bytes], *args: Any, spool: Callable[..., Any] = corpus._spooled) -> Any:
    return spool(list(pieces)[:-1], *args)


BROKEN: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing is synced": lambda: patch.object(atomic, "sync", lambda path: None),
    "an error of a sync is swallowed": lambda: patch.object(atomic, "sync", _swallowing),
    "the old folder is deleted first": lambda: patch.object(atomic, "_put_in_place", _deleting_first),
    "folders are written in place": lambda: patch("chainrule.folder.manifest.new_folder", _in_place),
    "signatures are not checked": lambda: patch("chainrule.folder.manifest.is_signed", lambda content: True),
    "checksums are not checked": lambda: patch("chainrule.folder.manifest.check_file", lambda *args: None),
    "weights of mixtures are not checked": lambda: patch("chainrule.mixtures.kind._SUM", 1e300),
    "a format is trusted": lambda: patch("chainrule.text.tagged.CorpusError", RuntimeError),
    "values of other programs are trusted": lambda: patch("chainrule.interop.huggingface.reading", nullcontext),
    "damaged parquet files are not told": lambda: patch("chainrule.text.records.CorpusError", RuntimeError),
    "the last piece of a pipe is lost": lambda: patch.object(corpus, "_spooled", _losing),
}


@contextmanager
def broken(name: str) -> Iterator[None]:
    """Break something inside the block; nothing if the name is empty."""
    if not name:
        yield
        return
    with BROKEN[name]():
        yield
