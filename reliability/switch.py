"""Which planted fault is at work in this process; and, if a file is named for it, which test reaches which fault.

The faults of mutants.py are all in the source at once, and each asks here whether it is its turn.
"""

from __future__ import annotations

import os

CHOSEN, REACHED = "RELIABILITY_FAULT", "RELIABILITY_REACHED"
"""Variables of the environment: the number of the fault at work, and the file for what is reached."""

chosen = int(os.environ.get(CHOSEN, "-1"))
_known: set[tuple[str, int]] = set()


def at(number: int) -> bool:
    """Return True if this fault is at work."""
    if file := os.environ.get(REACHED):
        _note(file, os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0], number)
    return number == chosen


def _note(file: str, test: str, number: int) -> None:
    """Write down once that a test reaches a fault; imports while tests are collected belong to no test."""
    if (test, number) not in _known:
        _known.add((test, number))
        with open(file, "a", encoding="utf-8") as lines:  # noqa: PTH123 (pathlib would be imported before chainrule)
            lines.write(f"{number}\t{test}\n")
