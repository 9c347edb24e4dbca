"""Our side and a peer's, timed in turns, and the ratio: machines are noisy, ratios less so."""

from __future__ import annotations

import os
import platform
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""Where real corpora lie, if they do; every benchmark takes a file of your own too."""


@dataclass
class Side:
    """One competitor: work of a known amount."""

    name: str
    work: Callable[[], object]
    amount: float
    """In the unit of the table, for instance MB."""
    seconds: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    """CPU seconds of this process, all threads together."""

    @property
    def rate(self) -> float:
        """Amount per second, the median of the rounds."""
        return self.amount / statistics.median(self.seconds)

    def timed(self) -> float:
        """Do the work once; returns the seconds it took, and notes them."""
        began, began_cpu = time.perf_counter(), time.process_time()
        self.work()
        self.seconds.append(time.perf_counter() - began)
        self.cpu.append(time.process_time() - began_cpu)
        return self.seconds[-1]


def race(title: str, unit: str, sides: Sequence[Side], rounds: int = 3) -> None:
    """Time all sides in turns, after one unmeasured round each; print rates and the ratio of the first to each."""
    for side in sides:
        if side.timed() <= 20:  # else too slow to warm up: once must do
            side.seconds, side.cpu = [], []
    for _ in range(rounds):
        for side in sides:
            if not side.seconds or side.seconds[0] <= 20:
                side.timed()
    rows = []
    for side in sides:
        rates = [side.amount / seconds for seconds in side.seconds]
        ratio = "" if side is sides[0] else f"{sides[0].rate / side.rate:.1f}x"
        cpu = 1000 * statistics.median(side.cpu)
        figures = f"{side.rate:,.1f}", f"{min(rates):,.1f}", f"{max(rates):,.1f}"
        rows.append([side.name, *figures, ratio, f"{cpu:,.1f}"])
    show(f"{title}, median of {rounds}", ["side", f"{unit}/s", "slowest", "fastest", "ours is", "CPU ms"], rows)


def show(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table: names on the left, figures on the right."""
    table = Table(title=f"{title} ({os.cpu_count()} cores, {platform.machine()})")
    table.add_column(headings[0])
    for heading in headings[1:]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row)
    Console(width=110).print(table)
