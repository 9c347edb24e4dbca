"""Progress reports of long work.

Functions that can take long have a `progress` argument: False is silent, True draws bars on a terminal or in a
notebook (bars.py), as the command line does, and a `Progress` object receives all reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TypeAlias


class Task(Protocol):
    """One piece of work in progress."""

    def advance(self, amount: float) -> None:
        """Report that `amount` more units are done."""

    def show(self, figures: str) -> None:
        """Show a few figures beside the bar, in place of the previous ones."""


class Progress(Protocol):
    """A receiver of progress reports."""

    def task(self, description: str, total: float | None = None, unit: str = "") -> AbstractContextManager[Task]:
        """Return a context that yields a Task; `unit` "B" stands for bytes."""

    def note(self, message: str) -> None:
        """Show the user a line, such as that text was replaced or a model left out of a comparison."""


class Silent:
    """The default `Progress`: it shows nothing, and is its own task."""

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        yield self

    def _ignore(self, report: object) -> None:
        pass

    note = advance = show = _ignore

    def __repr__(self) -> str:
        return "SILENT"


SILENT = Silent()


class Gathered:
    """A `Progress` that passes tasks on and keeps notes, so that they can be shown in one line."""

    def __init__(self, progress: Progress) -> None:
        self.task = progress.task
        self._notes: list[str] = []
        self.note = self._notes.append

    def take(self) -> str:
        """Return the notes since the last call as one line, each once.

        >>> gathered = Gathered(SILENT)
        >>> for note in ("chosen batch=8", "slow", "slow"):
        ...     gathered.note(note)
        >>> gathered.take(), gathered.take()
        ('chosen batch=8; slow', '')
        """
        found = "; ".join(dict.fromkeys(self._notes))
        self._notes.clear()
        return found


Reports: TypeAlias = Progress | bool
"""True or False to show progress or not, or the receiver of the reports."""


def as_progress(reports: Reports) -> Progress:
    """Return the receiver of the reports: for True one that draws bars, for False one that shows nothing."""
    if isinstance(reports, bool):
        if not reports:
            return SILENT
        from chainrule.system.progress.bars import VisibleProgress  # only now: Rich takes a while to import

        return VisibleProgress()
    return reports
