"""Progress bars with rates and the time left on a terminal or in a notebook; elsewhere a line now and then."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec

import rich.progress
from rich.console import Console, RenderableType
from rich.text import Text

from chainrule.system.progress import Task

LOG_SECONDS = 30.0
"""The least seconds between two lines, if no bar can be drawn."""


class _Amount(rich.progress.ProgressColumn):
    """The column with the amount done and the rate: 12.1/144.6 MB 98.2 MB/s, or 3/12 models."""

    def render(self, task: rich.progress.Task) -> Text:
        scale, unit = (1e6, "MB") if task.fields["unit"] == "B" else (1, task.fields["unit"])
        form = ".1f" if scale > 1 else ",.0f"
        total = f"/{task.total / scale:{form}}" if task.total is not None else ""
        is_fast = task.speed is not None and task.speed > scale and unit != "s"
        rate = f"  {task.speed / scale:{form}} {unit}/s" if is_fast and task.speed else ""
        return Text(f"{task.completed / scale:{form}}{total} {unit}{rate}" if unit else "", style="cyan")


class _Bars(rich.progress.Progress):
    """Bars, with the figures of their tasks below."""

    def get_renderables(self) -> Iterator[RenderableType]:
        yield from super().get_renderables()
        for task in self.tasks:
            if task.fields["figures"]:
                yield Text(task.fields["figures"], style="green", no_wrap=True, overflow="ellipsis")


@dataclass
class _Bar:
    bars: rich.progress.Progress
    number: rich.progress.TaskID

    def advance(self, amount: float) -> None:
        self.bars.advance(self.number, amount)

    def show(self, figures: str) -> None:
        self.bars.update(self.number, figures=figures)


@dataclass
class _Log:
    """A task without a bar, which prints a line with its figures now and then."""

    console: Console
    description: str
    total: float | None
    unit: str
    done: float = 0.0
    printed_at: float = field(default_factory=time.monotonic)

    def advance(self, amount: float) -> None:
        self.done += amount

    def show(self, figures: str) -> None:
        now = time.monotonic()
        if now - self.printed_at < LOG_SECONDS:
            return
        self.printed_at = now
        total = "" if self.total is None else f"/{self.total:,.0f}"
        line = f"{self.description}: {self.done:,.0f}{total} {self.unit}  {figures}"
        self.console.print(line, markup=False, soft_wrap=True)


class VisibleProgress:
    """Shows progress and notes on standard error, or in the cell of a notebook."""

    def __init__(self, console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.bars = _Bars(
            rich.progress.TextColumn("{task.description}"),
            rich.progress.BarColumn(bar_width=30),
            _Amount(),
            rich.progress.TimeRemainingColumn(elapsed_when_finished=True),
            console=self.console,
            transient=True,
        )
        self.running = 0
        # in a notebook Rich draws by a widget, and warns each time if widgets are not installed
        in_notebook = self.console.is_jupyter and find_spec("ipywidgets") is not None
        self.has_bars = self.console.is_terminal or in_notebook

    @contextmanager
    def task(self, description: str, total: float | None = None, unit: str = "") -> Iterator[Task]:
        """Show a bar for as long as the block lasts."""
        if not self.has_bars:
            yield _Log(self.console, description, total, unit)
            return
        if self.running == 0:
            self.bars.start()
        self.running += 1
        number = self.bars.add_task(description, total=total, unit=unit, figures="")
        try:
            yield _Bar(self.bars, number)
        finally:
            self.bars.remove_task(number)
            self.running -= 1
            if self.running == 0:
                self.bars.stop()

    def note(self, message: str) -> None:
        """Print a line that is not erased."""
        whole = not self.console.is_terminal  # on a terminal it wraps between words
        self.console.print(f"note: {message}", style="yellow", markup=False, soft_wrap=whole)
