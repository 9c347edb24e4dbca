"""Other programs and other machines: `python -m benchmarks scale ITEM [options]`.

Each item is the `run` of a module here, and takes the rest of the command line.
"""

from __future__ import annotations

import importlib
import sys

ITEMS = {
    "export": "benchmarks.scale.export",  # exported weights in transformers: logits and greedy texts
}
"""The module of each item."""


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in ITEMS:
        sys.exit(f"usage: python -m benchmarks scale ITEM [options]; there are: {', '.join(ITEMS)}")
    importlib.import_module(ITEMS[arguments[0]]).run(arguments[1:])
