"""All trials at full scale, or those that are named, with counts."""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable

from . import faults, kills, mutations, syncs, terminations, texts

TRIALS: dict[str, Callable[[int], Counter[str]]] = {
    "kills": kills.run,
    "faults": lambda count: faults.run(),
    "syncs": syncs.run,
    "mutations": mutations.run,
    "imports": mutations.run_imports,
    "parquet": mutations.run_parquet,
    "texts": texts.run,
    "terminations": terminations.run,
}
COUNTS = {
    "kills": 2000,
    "faults": 0,
    "syncs": 20,
    "mutations": 20_000,
    "imports": 2000,
    "parquet": 500,
    "texts": 400,
    "terminations": 500,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m reliability.trials", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*TRIALS, []], help="[default: all]")
    parser.add_argument("--count", type=int, help="how many of each; faults are always all")
    options = parser.parse_args()
    for name in options.names or TRIALS:
        began = time.perf_counter()
        found = TRIALS[name](options.count or COUNTS[name])
        wrong = {what: times for what, times in found.items() if what.startswith("wrong")}
        tried, seconds = sum(found.values()) - sum(wrong.values()), time.perf_counter() - began
        print(f"{name}: {tried:,} in {seconds:.0f} s, {sum(wrong.values()):,} wrong", flush=True)
        for what, times in found.items():
            print(f"  {times:6,}  {what}", flush=True)


if __name__ == "__main__":
    main()
