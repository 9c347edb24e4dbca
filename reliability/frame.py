"""What a row of the scorecard is, and how one is run: tries from a fixed seed, and controls that must fail."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from .controls import broken

ROOT = Path(__file__).parents[1]
FAST = "/dev/shm" if Path("/dev/shm").is_dir() else None
"""A folder in memory, where a sync takes no time; None: the usual folder for temporary files."""


class Trial:
    """One run of a row: how much is to be tried, what was tried so far, and what went wrong."""

    def __init__(
        self,
        count: int,
        seed: int = 0,
        *,
        seconds: float = float("inf"),
        small: bool = False,
        control: str = "",
        only: Sequence[str] = (),
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self.count, self.seed, self.small = count, seed, small
        self.control, self.only = control, only
        self.part, self.parts = part
        self.random = random.Random(seed)
        self.tries = Counter[str]()
        """How often each sort of thing was tried."""
        self.lost = Counter[str]()
        """What went wrong, in words, and how often."""
        self.left_out: dict[str, str] = {}
        """Sorts of things that were not tried, and why."""
        self.ends = time.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time for it is up."""
        return time.monotonic() > self.ends

    def __iter__(self) -> Iterator[int]:
        """Yield the numbers of the tries, or of one part of them, until the time is up."""
        for number in range(self.part, self.count, self.parts):
            if self.is_over:
                return
            yield number

    def chosen(self, names: Sequence[str]) -> list[str]:
        """Return the names of the sorts to try: all, or those that a control is about."""
        return [name for name in names if not self.only or name in self.only]

    def note(self, sort: str, problem: str | None = None, times: int = 1) -> None:
        """Count tries of a sort; `problem` says what went wrong with one of them."""
        self.tries[sort] += times
        if problem:
            words = problem.replace(
                f"{ROOT}{os.sep}", ""
            ).split()  # the page is one line for each, without our paths
            self.lost[f"{sort}: {' '.join(words)}"] += 1


@dataclass(frozen=True)
class Control:
    """Something broken in chainrule, which a row must find."""

    name: str
    """Its name in controls.py."""
    only: Sequence[str] = ()
    """The sorts of tries that can find it; empty: all."""
    count: int = 0
    """How many tries it takes; 0: as many as a small run has."""
    needs: Callable[[], str | None] = lambda: None
    """Why this machine cannot run it; None if it can."""


@dataclass(frozen=True)
class Row:
    """One row of the scorecard."""

    name: str
    recipe: str
    """What is tried."""
    promise: str
    """What must hold after each try."""
    run: Callable[[Trial], None]
    count: int
    """Tries of a full run."""
    small: int
    """Tries of a small run, which takes a few seconds."""
    controls: Sequence[Control]
    needs: Callable[[], str | None] = lambda: None
    """Why this machine cannot run it; None if it can."""
    seed: int = 1
    tolerated: float = 0.0
    """The share of the tries that may be lost."""
    size: str = ""
    """What a full run tries, where `count` is not the number of tries."""
    has_parts: bool = False
    """Whether processes can share its tries: what a try does depends on the seed and its number alone."""


@dataclass
class Result:
    """What a run of a row found."""

    row: str
    seed: int
    tries: int
    lost: int
    seconds: float
    sorts: dict[str, int] = field(default_factory=dict)
    problems: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    controls: dict[str, int] = field(default_factory=dict)
    """How many problems the row found with each thing broken."""
    tolerated: float = 0.0
    """The share of the tries that may be lost."""

    @property
    def blind(self) -> list[str]:
        """The controls of which nothing was found."""
        return [name for name, found in self.controls.items() if not found]

    @property
    def is_good(self) -> bool:
        return self.tries > 0 and self.lost <= self.tolerated * self.tries and not self.blind

    def line(self) -> str:
        """The result in one line."""
        survived = f"{self.tries:,} tries, {self.tries - self.lost:,} survived, {self.lost:,} lost"
        found = f"{len(self.controls) - len(self.blind)} of {len(self.controls)} controls found"
        without = f"; not tried: {', '.join(self.left_out)}" if self.left_out else ""
        return f"{self.row}: seed {self.seed}, {survived}, {found}, {self.seconds:.0f} s{without}"


def run_row(
    row: Row,
    *,
    small: bool = False,
    seconds: float = float("inf"),
    seed: int | None = None,
    part: tuple[int, int] = (0, 1),
) -> Result:
    """Try what a row tries, or one part of it, then (with the first part) the same with each of its controls."""
    number = row.seed if seed is None else seed
    trial = Trial(row.small if small else row.count, number, seconds=seconds, small=small, part=part)
    began = time.perf_counter()
    row.run(trial)
    took = time.perf_counter() - began
    controls = {
        control.name: run_control(row, control) for control in row.controls if part[0] == 0 and not control.needs()
    }
    return Result(
        row.name,
        number,
        sum(trial.tries.values()),
        sum(trial.lost.values()),
        took,
        dict(trial.tries),
        dict(trial.lost),
        trial.left_out,
        controls,
        row.tolerated,
    )


def added(results: Sequence[Result]) -> Result:
    """The parts of a row as one result."""
    first = results[0]
    sorts, problems, controls = Counter[str](), Counter[str](), Counter[str]()
    for one in results:
        sorts.update(one.sorts)
        problems.update(one.problems)
        controls.update(one.controls)
    left_out = {sort: why for one in results for sort, why in one.left_out.items() if sort not in sorts}
    return Result(
        first.row,
        first.seed,
        sum(one.tries for one in results),
        sum(one.lost for one in results),
        max(one.seconds for one in results),
        dict(sorts),
        dict(problems),
        left_out,
        dict(controls),
        first.tolerated,
    )


def run_control(row: Row, control: Control) -> int:
    """Return how many problems a row finds with something broken."""
    trial = Trial(control.count or row.small, row.seed, small=True, control=control.name, only=control.only)
    with broken(control.name):
        row.run(trial)
    return sum(trial.lost.values())
