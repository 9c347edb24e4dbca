"""Tools that the benchmarks share: options, races between our side and peers, timers, tables, peers' modules.

All sides of a race take turns, and the table gives ratios, since a ratio depends less on the machine than seconds.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import importlib.util
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import IO, Any, NamedTuple, TypeVar

from rich.console import Console
from rich.table import Table

from chainrule.errors import ChainruleError

T = TypeVar("T")

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
"""The folder of the real corpora, if there is one; every benchmark accepts another file or folder too."""

TEMPORARY = "chainrule-benchmark-"
"""The first part of the name of a temporary folder."""


# -- options ----------------------------------------------------------------------------------------------


def new_parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Return the parser of `python -m benchmarks NAME`, whose help is the docstring of the benchmark."""
    return argparse.ArgumentParser(
        prog=f"python -m benchmarks {name}",
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def chosen_parts(
    parser: argparse.ArgumentParser, names: list[str], parts: Mapping[str, T], default: Sequence[str] | None = None
) -> list[T]:
    """Return the named parts in the order of `parts`; without names the default ones, or all."""
    if unknown := [name for name in names if name not in parts]:
        parser.error(f"there is no part {unknown[0]!r}; there are: {', '.join(parts)}")
    wanted = names or default or parts
    return [part for name, part in parts.items() if name in wanted]


@contextmanager
def exit_on_error() -> Iterator[None]:
    """End the program with the message of a ChainruleError, without a traceback."""
    try:
        yield
    except ChainruleError as error:
        raise SystemExit(f"error: {error}") from error


def existing(path: Path) -> Path:
    """Return the path of a file of the data, or raise an error if there is no such file."""
    if not path.exists():
        raise ChainruleError(f"{path} is not there: name the folder of the data with --data")
    return path


def open_text(path: Path) -> IO[bytes]:
    """Open a text file, or one that gzip packed, to read its bytes."""
    return gzip.open(path) if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


# -- peers ------------------------------------------------------------------------------------------------


def is_installed(name: str, module: str, extra: str = "") -> bool:
    """Return True if a peer's module is installed; if not, print that the peer is left out."""
    if importlib.util.find_spec(module) is not None:
        return True
    advice = f" (the extra `{extra}` has it)" if extra else ""
    print(f"{name} is left out: the module {module} is not installed{advice}", flush=True)
    return False


def import_error(modules: Sequence[str]) -> str | None:
    """Return why the modules of a peer cannot be imported; None if they can."""
    try:
        for module in modules:
            importlib.import_module(module)
    except ImportError as error:
        return f"{modules[0].split('.')[0]} is not installed, or not all that it imports ({error})"
    return None


def load_module(path: Path, name: str, known: dict[str, ModuleType] | None = None) -> ModuleType:
    """Load a file of a peer's checkout as a module with a name of its own, since several peers have a `model`.

    `known` has the modules that its own imports find, by the names that it imports.
    """
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path} is not there: is that a checkout of the peer?")
    module = importlib.util.module_from_spec(spec)
    hidden = {other: sys.modules.get(other) for other in known or {}}
    sys.modules.update(known or {})
    sys.modules[name] = module  # the compiler looks functions up by the name of their module
    try:
        spec.loader.exec_module(module)
    finally:
        for other, before in hidden.items():
            del sys.modules[other]
            if before is not None:
                sys.modules[other] = before
    return module


# -- timers and tables ------------------------------------------------------------------------------------


class Took(NamedTuple):
    """The time that some work took."""

    seconds: float
    cpu: float
    """CPU seconds of this process, all threads together."""


def timed(work: Callable[[], object]) -> Took:
    """Do some work once, and return the time it took."""
    began, began_cpu = time.perf_counter(), time.process_time()
    work()
    return Took(time.perf_counter() - began, time.process_time() - began_cpu)


@dataclass
class Side:
    """One competitor of a race: work of a known amount."""

    name: str
    work: Callable[[], object]
    amount: float
    """In the unit of the table, for instance MB."""
    took: list[Took] = field(default_factory=list)

    @property
    def seconds(self) -> list[float]:
        """Seconds of each round."""
        return [took.seconds for took in self.took]

    @property
    def rate(self) -> float:
        """Amount per second, the median of the rounds."""
        return self.amount / statistics.median(self.seconds)


def race(title: str, unit: str, sides: Sequence[Side], rounds: int = 3) -> None:
    """Time all sides in turns, after one unmeasured round each; print rates and the ratio of the first to each."""
    for side in sides:
        warm_up = timed(side.work)
        side.took = [] if warm_up.seconds <= 20 else [warm_up]  # a side this slow runs only once
    for _ in range(rounds):
        for side in sides:
            if not side.took or side.took[0].seconds <= 20:
                side.took.append(timed(side.work))
    rows = []
    for side in sides:
        rates = [side.amount / seconds for seconds in side.seconds]
        ratio = "" if side is sides[0] else f"{sides[0].rate / side.rate:.1f}x"
        cpu = 1000 * statistics.median(took.cpu for took in side.took)
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


def show_named(title: str, rows: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of rows that all have the same headings as keys."""
    show(title, [*rows[0]], [[str(value) for value in row.values()] for row in rows])
