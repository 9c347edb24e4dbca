"""Choose the tests of the fast run from measured durations: `python tests/choose_fast.py LOG` writes fast_run.toml.

LOG is the output of `pytest -m '' --durations=0 --durations-min=0.01`. A test function may take `--seconds` in the
fast run: as many of its cases belong to it as take that long, and at least one, unless a case takes longer than
`--most`. Functions that take less need no entry.
"""

from __future__ import annotations

import argparse
import re
from collections import defaultdict
from pathlib import Path

LINE = re.compile(r"([\d.]+)s (?:call|setup|teardown) +(\S+?::[^\[\s]+)(\[.*\])?$")
HEAD = """# What belongs to the fast run (`make test`): not these files, and of a costly test so many cases.
# Written by `python tests/choose_fast.py LOG` from measured durations.

"""
SLOW_FILES = [  # a browser, several processes, or a peer's library: their fixtures take seconds
    "tests/interop/test_serving.py",
    "tests/ray_executor/",
    "tests/report/test_browser.py",
    "tests/seq2seq/test_benchmark.py",
    "tests/serve/test_clients.py",
    "tests/serve/test_inside_page.py",
    "tests/serve/test_learn.py",
    "tests/serve/test_page.py",
    "tests/serve/test_views.py",
    "tests/test_autodiff_benchmark.py",
    "tests/test_benchmarks.py",
    "tests/test_neural_benchmarks.py",
    "tests/training/test_processes.py",
]


WHOLE = ("tests/contract/test_laws.py", "tests/contract/test_mixture_laws.py", "tests/contract/test_broken.py")
"""Files of which every case belongs to the fast run: every law, on every kind and every smoothing method."""
SECONDS_OF_LAWS = 8.0
"""What other tests of laws may take: every law on some designs, and some laws on every design."""


def seconds_of_cases(log: str) -> dict[str, dict[str, float]]:
    """Return the seconds of each case of each test function, set-up included."""
    found: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for line in log.splitlines():
        if match := LINE.match(line.strip()):
            found[match[2]][match[3] or ""] += float(match[1])
    return found


def cases_in_fast_run(seconds: list[float], limit: float, most: float) -> int:
    """Return how many cases of one function the fast run has, by their mean duration."""
    mean = sum(seconds) / len(seconds)
    return 0 if mean > most else max(1, int(limit / mean))


def main() -> None:
    """Write fast_run.toml beside this file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("log", type=Path)
    parser.add_argument("--seconds", type=float, default=0.3)
    parser.add_argument("--most", type=float, default=1.2)
    options = parser.parse_args()
    lines, total, before = [], 0.0, 0.0
    for name, cases in sorted(seconds_of_cases(options.log.read_text()).items()):
        if name.startswith(tuple(SLOW_FILES)):
            continue
        seconds = list(cases.values())
        limit = SECONDS_OF_LAWS if name.endswith("::test_law") else options.seconds
        kept = len(seconds) if name.startswith(WHOLE) else cases_in_fast_run(seconds, limit, options.most)
        before += sum(seconds)
        total += sum(seconds) * min(kept / len(seconds), 1)
        if kept < len(seconds):
            lines.append(f'"{name}" = {kept}\n')
    files = "".join(f'    "{name}",\n' for name in SLOW_FILES)
    text = f"{HEAD}slow_files = [\n{files}]\n\n[cases]\n{''.join(lines)}"
    (Path(__file__).parent / "fast_run.toml").write_text(text)
    print(f"{len(lines)} functions are cut; {total:.0f} of {before:.0f} seconds are left")


if __name__ == "__main__":
    main()
