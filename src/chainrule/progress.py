"""How long work says how far it is, without knowing who listens.

Functions that can take long have a `progress` argument. The default is silent; the command line
passes one that draws bars on a terminal.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Task(Protocol):
    """One piece of work under way."""

    def advance(self, amount: float) -> None:
        """`amount` more units are done."""

    def show(self, figures: str) -> None:
        """A few figures to stand by the bar, instead of those before."""


class Progress(Protocol):
    """Something that is told how far work is."""

    def task(self, description: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """A context that yields a Task; `unit` "B" stands for bytes."""

    def note(self, message: str) -> None:
        """One line the user should see: a fallback taken, text replaced, a rung left out."""


class _Nothing:
    def advance(self, amount: float) -> None:
        pass

    def show(self, figures: str) -> None:
        pass


class Silent:
    """Says nothing; the default."""

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield _Nothing()

    def note(self, message: str) -> None:
        pass

    def __repr__(self) -> str:
        return "SILENT"


SILENT = Silent()
