"""docs/reliability.md, made of the results of the last full run of each row, which results.json keeps."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .frame import Result, Row
from .rows import ROWS

RESULTS = Path(__file__).with_name("results.json")
PAGE = Path(__file__).parents[1] / "docs" / "reliability.md"
HEAD = """# Reliability

chainrule is broken on purpose, many times, and what went wrong is counted. `python -m reliability ROW` repeats a
row of the table from its seed and writes this page; `python -m reliability all --small` takes a few minutes, and
`make test` runs every row that small. [reliability/](../reliability) has the code. Where a row finds something, the
product is mended.

A *try* is one kill, one fault, one changed file, one comparison. A *control* is the same row with something broken
in chainrule: the row must find it, or it would show nothing. A run that is ended early (`--seconds`) has fewer
tries than a full one; both numbers are here.

| row | tries | of a full run | survived | lost | controls found | seed | seconds | date |
| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |
"""


def keep(*found: Result) -> None:
    """Keep results in the place of the last ones of their rows, and write the page."""
    results = read()
    for result in found:
        results[result.row] = {**asdict(result), "date": datetime.now(UTC).date().isoformat()}
    RESULTS.write_text(json.dumps({name: results[name] for name in ROWS if name in results}, indent=1) + "\n")
    write_page(results)


def write_page(results: dict[str, dict[str, Any]]) -> None:
    """Write the page of these results."""
    PAGE.write_text(page(results), encoding="utf-8")


def read() -> dict[str, dict[str, Any]]:
    """Return the kept results by the names of their rows."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def page(results: dict[str, dict[str, Any]]) -> str:
    """Return the page in Markdown."""
    lines, parts = [], []
    for name, row in ROWS.items():
        kept = results.get(name)
        lines.append(_line(row, kept))
        parts.append(_part(row, kept))
    return HEAD + "\n".join(lines) + "\n\n" + "\n".join(parts)


def _line(row: Row, kept: dict[str, Any] | None) -> str:
    name, full = row.name, row.size or f"{row.count:,}"
    if kept is None:
        return f"| [{name}](#{name}) | not run yet | {full} | | | | | | |"
    found = sum(1 for problems in kept["controls"].values() if problems)
    cells = [
        f"[{name}](#{name})",
        f"{kept['tries']:,}",
        full,
        *(f"{number:,}" for number in (kept["tries"] - kept["lost"], kept["lost"])),
        f"{found} of {len(kept['controls'])}",
        f"{kept['seed']}",
        f"{kept['seconds']:.0f}",
        kept["date"],
    ]
    return f"| {' | '.join(cells)} |"


def _part(row: Row, kept: dict[str, Any] | None) -> str:
    lines = [f"## {row.name}", "", f"{row.recipe} Must hold: {row.promise}", ""]
    lines += [f"- control: {control.name}" for control in row.controls]
    for problem, times in (kept or {}).get("problems", {}).items():
        lines.append(f"- lost: {problem} ({times:,} times)")
    for sort, reason in (kept or {}).get("left_out", {}).items():
        lines.append(f"- not tried: {sort}: {reason}")
    if kept and len(kept["sorts"]) > 1:
        tried = ", ".join(f"{sort} {times:,}" for sort, times in kept["sorts"].items())
        lines += ["", f"Tried: {tried}."]
    return "\n".join([*lines, ""])
