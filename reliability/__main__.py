"""`python -m reliability [ROW ...|all] [--small] [--seconds S] [--seed N]`: see the package."""

from __future__ import annotations

import argparse
import sys

from .frame import run_row
from .page import keep, read, write_page
from .rows import ROWS


def main(words: list[str] | None = None) -> int:
    """Run rows, print a line for each, and write the page; return 1 if something was lost or a control missed."""
    parser = argparse.ArgumentParser(prog="python -m reliability", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help=f"all, or some of: {', '.join(ROWS)} [default: all]")
    parser.add_argument("--small", action="store_true", help="few tries of each; the page stays as it is")
    parser.add_argument("--seconds", type=float, default=600.0, help="end each row after so long [default: 600]")
    parser.add_argument("--seed", type=int, help="of the random numbers [default: the row's own]")
    parser.add_argument(
        "--page", action="store_true", help="only write the page anew, of the results that are kept"
    )
    options = parser.parse_args(words)
    if options.page:
        write_page(read())
        return 0
    names = list(ROWS) if options.rows in ([], ["all"]) else options.rows
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    is_good = True
    for name in names:
        if reason := ROWS[name].needs():
            print(f"{name}: not run: {reason}", flush=True)
            continue
        result = run_row(ROWS[name], small=options.small, seconds=options.seconds, seed=options.seed)
        print(result.line(), flush=True)
        for problem, times in [*result.problems.items(), *((f"not found: {name}", 1) for name in result.blind)]:
            print(f"  {times:6,}  {problem}", flush=True)
        is_good = is_good and result.is_good
        if not options.small:
            keep(result)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
