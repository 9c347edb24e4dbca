"""Work on more than one process: `python -m benchmarks scale NAME [options]`.

counting   a 5-gram model by Ray's workers, against the threads of one process
"""

from __future__ import annotations

import importlib
import sys

ITEMS = {"counting": "benchmarks.scale.counting"}


def main(arguments: list[str]) -> None:
    """Run the item that the first argument names."""
    if not arguments or arguments[0] not in ITEMS:
        sys.exit(f"usage: python -m benchmarks scale NAME [options]; there are: {', '.join(ITEMS)}")
    importlib.import_module(ITEMS[arguments[0]]).main(arguments[1:])
