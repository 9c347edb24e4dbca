"""Beside other programs and on more than one machine: `python -m benchmarks scale ITEM [options]`.

lm_eval   bits per byte in lm-evaluation-harness beside ours, on the same text
"""

from __future__ import annotations

import importlib
import sys

ITEMS = ("lm_eval",)
"""The items; each is a module here with a `main`."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in ITEMS:
        sys.exit(f"usage: python -m benchmarks scale ITEM [options]; there are: {', '.join(ITEMS)}")
    importlib.import_module(f"benchmarks.scale.{arguments[0]}").main(arguments[1:])
