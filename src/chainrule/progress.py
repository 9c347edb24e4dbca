"""Progress reports from work that takes long, whoever shows them.

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
        """Report that `amount` more units are done."""

    def show(self, figures: str) -> None:
        """Show a few figures beside the bar, in place of the previous ones."""


class Progress(Protocol):
    """A receiver of progress reports."""

    def task(self, description: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """A context that yields a Task; `unit` "B" stands for bytes."""

    def note(self, message: str) -> None:
        """Show the user one line: a fallback taken, text replaced, a model left out of a comparison."""


class _Nothing:
    def advance(self, amount: float) -> None:
        pass

    def show(self, figures: str) -> None:
        pass


class Silent:
    """A `Progress` that shows nothing; the default."""

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield _Nothing()

    def note(self, message: str) -> None:
        pass

    def __repr__(self) -> str:
        return "SILENT"


SILENT = Silent()
