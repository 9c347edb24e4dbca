"""`python -m reliability [ROW ...|all] [--small] [--seconds S] [--seed N] [--jobs N]`: see the package."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from .frame import Result, Row, added, run_row
from .page import keep
from .rows import ROWS


def main(words: list[str] | None = None) -> int:
    """Run rows, print a line for each, and write the page; return 1 if something was lost or a control missed."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"all, or some of: {', '.join(ROWS)} [default: all]")
    parser.add_argument("--small", action="store_true", help="few tries of each; the page stays as it is")
    parser.add_argument("--seconds", type=float, default=600.0, help="end each row after so long [default: 600]")
    parser.add_argument("--seed", type=int, help="of the random numbers [default: the row's own]")
    parser.add_argument("--jobs", type=int, help="processes that share a row [default: one for each core]")
    parser.add_argument("--part", type=_part, default=(0, 1), metavar="I/N", help="make only the Ith of N parts")
    parser.add_argument("--to", type=Path, metavar="FILE", help="write the results here; the page stays as it is")
    parser.add_argument(
        "--page", nargs="*", type=Path, metavar="FILE", help="only write the page, with the results of these files"
    )
    options = parser.parse_args(words)
    options.jobs = options.jobs or (1 if options.small else len(os.sched_getaffinity(0)))
    if options.page is not None:
        parts: dict[str, list[Result]] = {}
        for one in (Result(**one) for file in options.page for one in json.loads(file.read_text())):
            parts.setdefault(one.row, []).append(one)
        keep(*map(added, parts.values()))
        return 0
    names = list(ROWS) if options.rows in ([], ["all"]) else options.rows
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    results = []
    for name in names:
        if reason := ROWS[name].needs():
            print(f"{name}: not run: {reason}", flush=True)
            continue
        result = _run(ROWS[name], options)
        results.append(result)
        print(result.line(), flush=True)
        for problem, times in [*result.problems.items(), *((f"not found: {name}", 1) for name in result.blind)]:
            print(f"  {times:6,}  {problem}", flush=True)
        if options.to:
            options.to.write_text(json.dumps([asdict(one) for one in results], indent=1) + "\n")
        elif not options.small:
            keep(result)
    return 0 if all(result.is_good for result in results) else 1


def _part(words: str) -> tuple[int, int]:
    part, parts = map(int, words.split("/"))
    if not 0 < part <= parts:
        raise ValueError(words)
    return part - 1, parts


def _run(row: Row, options: argparse.Namespace) -> Result:
    """Run a row in this process, or its parts in processes of their own."""
    if options.jobs == 1 or not row.has_parts:
        return run_row(row, small=options.small, seconds=options.seconds, seed=options.seed, part=options.part)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / f"{part}.json" for part in range(options.jobs)]
        same = ["--jobs", "1", "--seconds", str(options.seconds), *(["--small"] if options.small else [])]
        same += [] if options.seed is None else ["--seed", str(options.seed)]
        commands = [
            [sys.executable, "-m", "reliability", row.name, "--part", f"{part}/{len(files)}", "--to", file, *same]
            for part, file in enumerate(files, 1)
        ]
        processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL) for command in commands]
        codes = [process.wait() for process in processes]
        if missing := [code for code, file in zip(codes, files, strict=True) if not file.exists()]:
            raise RuntimeError(f"a part of {row.name} ended with exit code {missing[0]}")
        return added([Result(**json.loads(file.read_text())[0]) for file in files])


if __name__ == "__main__":
    sys.exit(main())
