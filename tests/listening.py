"""A progress that shows nothing and records every call."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from chainrule.system.progress import Silent


class Listening(Silent):
    """The messages, tasks, figures and amounts of work that were reported."""

    def __init__(self) -> None:
        self.tasks: list[tuple[str, float | None, str]] = []
        """The description, total and unit of each task."""
        self.notes: list[str] = []
        self.shown: list[str] = []
        """Figures beside the bar."""
        self.done = 0.0
        """The work of all tasks together."""

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Any]:
        self.tasks.append((description, total, unit))
        yield self

    def advance(self, amount: float) -> None:
        """Part of the task's interface."""
        self.done += amount

    def show(self, figures: str) -> None:
        """Part of the task's interface."""
        self.shown.append(figures)

    def note(self, message: str) -> None:
        self.notes.append(message)
