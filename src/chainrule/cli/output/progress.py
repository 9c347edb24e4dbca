"""Progress of the verbs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from chainrule.cli.output import WAITING
from chainrule.system.progress import Task
from chainrule.system.progress.bars import VisibleProgress

_on_screen: list[VisibleProgress] = []
"""The displays that have bars on the screen."""


class TerminalProgress(VisibleProgress):
    """Progress that takes the place of the line which says that a verb is starting."""

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        WAITING.end()
        _on_screen.append(self)
        try:
            with super().task(description, total, unit) as task:
                yield task
        finally:
            _on_screen.remove(self)

    def note(self, message: str) -> None:
        WAITING.end()
        super().note(message)


def say_above_bars(message: str) -> bool:
    """Print a line above the bars on the screen, from any thread; return False if there are none."""
    if not _on_screen or not _on_screen[-1].has_bars:
        return False
    _on_screen[-1].console.print(message, markup=False)
    return True
