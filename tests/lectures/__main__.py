"""Run rows of the lectures, and print a line for each."""

import sys
import tempfile
from pathlib import Path

from tests.lectures import Bench, lectures


def main() -> int:
    """Run the rows whose numbers are given, or all; the exit status is 1 if one does not hold."""
    wanted, failed, count = set(sys.argv[1:]), 0, 0
    with tempfile.TemporaryDirectory() as folder:
        for lecture in lectures():
            bench = Bench(lecture, Path(folder) / lecture.name)
            for row in lecture.rows:
                if wanted and row.row not in wanted:
                    continue
                wrong, count = bench.check(row), count + 1
                failed += wrong is not None
                kind = "prose" if row.prose else "ran"
                print(f"{row.row:>6}  {'FAILS' if wrong else kind:6} {row.item}", flush=True)
                if wrong:
                    print(wrong)
    print(f"{count} rows, {failed} do not hold")
    return 1 if failed else 0


sys.exit(main())
