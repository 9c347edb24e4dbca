"""The measurements of a run: each is printed when it is made, kept in a file, and is in a table at the end."""

from __future__ import annotations

import json
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from benchmarks.decode.peers import Write, precision
from benchmarks.harness import show
from benchmarks.neural.lab import Lab, ratio
from chainrule.errors import ChainruleError

OURS = "chainrule"
WARM_STEPS = 2560
"""The tokens of each row that our side writes before it is timed: after 2,048 it may compile a choice of tokens."""
LONG_WARM_UP, LONG_ENOUGH = 10.0, 5.0
"""The seconds after which no further call is made to warm a side up, and none to time it."""


class OutOfTime(ChainruleError):
    """The minutes of the run are over."""


@dataclass(frozen=True)
class Row:
    """The speed of one side at some work."""

    part: str
    work: str
    side: str
    unit: str
    rate: float | None = None
    """The median of the rounds; None if the side failed."""
    slowest: float | None = None
    fastest: float | None = None
    first: float | None = None
    """The seconds of the first call, in which code is compiled and steps are captured."""
    beside: str = ""
    """The work of our side in the same part that this one is compared with."""
    error: str = ""


@dataclass
class Results:
    """The rows of a run."""

    lab: Lab
    rounds: int
    until: float
    """The time at which no further work begins."""
    json_file: Path | None
    is_alone: bool
    """True if peers are left out."""
    rows: list[Row] = field(default_factory=list)

    def measure(
        self,
        part: str,
        work: str,
        ours: Callable[[], Write],
        peers: Mapping[str, Callable[[], Write]] | None = None,
        *,
        rows: int = 1,
        unit: str = "tokens/s",
        beside: str = "",
    ) -> None:
        """Measure our side and then each peer; a side that fails has a row that says why."""
        steps = 1 if self.lab.small else WARM_STEPS * rows
        self._measure(Row(part, work, OURS, unit, beside=beside), ours, steps)
        for side, make in ({} if self.is_alone else peers or {}).items():
            self.measure_peer(part, work, side, make, unit=unit)

    def measure_peer(
        self, part: str, work: str, side: str, make: Callable[[], Write], *, unit: str = "tokens/s"
    ) -> None:
        """Measure another program at work that our side has done."""
        self._measure(Row(part, work, side, unit), make, None)

    def _measure(self, row: Row, make: Callable[[], Write], warm_up: int | None) -> None:
        self.check_time(row.part, row.work)
        try:
            row = self._timed(row, make(), warm_up)
        except Exception as error:  # the others are measured all the same
            row = replace(row, error=_reason(error))
        self.add(row)

    def attempt(self, part: str, run: Callable[[Results], None]) -> None:
        """Run a part; if it fails outside of a measurement, a row says why."""
        try:
            run(self)
        except OutOfTime:
            raise
        except Exception as error:  # the others are measured all the same
            self.add(Row(part, "", OURS, "", error=_reason(error)))

    def check_time(self, part: str, work: str) -> None:
        """Raise OutOfTime if the minutes are over."""
        if time.monotonic() > self.until:
            raise OutOfTime(f"{part}: {work}")

    def add_seconds(self, part: str, work: str, seconds: list[float]) -> None:
        """Keep the median of some seconds."""
        self.add(Row(part, work, OURS, "s", statistics.median(seconds), min(seconds), max(seconds)))

    def add(self, row: Row) -> None:
        """Print a row, and keep it."""
        self.rows.append(row)
        print(f"{row.part}: {row.work}, {row.side}: {row.error or f'{row.rate:,.1f} {row.unit}'}", flush=True)
        if self.json_file is not None:
            self.json_file.write_text(json.dumps({**self._machine(), "rows": [asdict(row) for row in self.rows]}))

    def _timed(self, row: Row, write: Write, warm_up: int | None) -> Row:
        """Time calls after a warm-up, which is over when so many tokens are written; None: after two calls."""
        first, done = self._call(write)
        spent, warm_up = first, done + 1 if warm_up is None else warm_up
        while done < warm_up and spent < LONG_WARM_UP:
            seconds, tokens = self._call(write)
            spent, done = spent + seconds, done + tokens
        calls = [self._call(write)]
        while len(calls) < self.rounds and sum(seconds for seconds, _ in calls) < LONG_ENOUGH:
            calls.append(self._call(write))
        rates = [tokens / seconds for seconds, tokens in calls]
        return replace(row, rate=statistics.median(rates), slowest=min(rates), fastest=max(rates), first=first)

    def _call(self, write: Write) -> tuple[float, int]:
        """Return the seconds that the texts took, and the number of their tokens."""
        self.lab.wait()
        began, tokens = time.perf_counter(), write()
        self.lab.wait()
        return time.perf_counter() - began, tokens

    # -- what is printed and kept -------------------------------------------------------------------------

    def show(self) -> None:
        """Print a table for each part."""
        for part in dict.fromkeys(row.part for row in self.rows):
            mine = [row for row in self.rows if row.part == part]
            ours = {row.work: row.rate for row in mine if row.side == OURS}
            rows = []
            for row in mine:
                figures = [_figure(row.rate), _figure(row.slowest), _figure(row.fastest), _figure(row.first, 2)]
                compared = "" if row.side == OURS else _ratio(ours.get(row.work), row.rate)
                figures += [compared, _ratio(row.rate, ours.get(row.beside))]
                rows.append(
                    [f"{row.work}: {row.side}", row.unit, *figures]
                    if not row.error
                    else [f"{row.work}: {row.side}", row.error[:30], *[""] * 6]
                )
            headings = [
                "work: side",
                "unit",
                "median",
                "slowest",
                "fastest",
                "first call, s",
                "ours is",
                "to top-k",
            ]
            show(f"{part}, {self._machine()['device']}, {self._machine()['dtype']}", headings, rows)

    @property
    def failures(self) -> int:
        """The number of sides that failed."""
        return sum(bool(row.error) for row in self.rows)

    def _machine(self) -> dict[str, object]:
        return {
            "device": torch.cuda.get_device_name(self.lab.device) if self.lab.on_gpu else platform.machine(),
            "dtype": precision(self.lab),
            "torch": torch.__version__,
            "weights": "random",
            "is_small": self.lab.small,
        }


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".partition("\n")[0]


def _figure(value: float | None, digits: int = 0) -> str:
    return "" if value is None else f"{value:,.{digits if value >= 10 or digits else 2}f}"


def _ratio(one: float | None, other: float | None) -> str:
    return "" if one is None or other is None else ratio(one, other)
