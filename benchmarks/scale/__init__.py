"""`python -m benchmarks scale ITEM`: what more than one process gains, and what it costs."""

from __future__ import annotations

import importlib

ITEMS = {"processes": "benchmarks.scale.processes"}
"""The module of each item, which has a `main`."""


def main(arguments: list[str]) -> None:
    """Run the item that the first argument names."""
    if not arguments or arguments[0] not in ITEMS:
        raise SystemExit(f"usage: python -m benchmarks scale ITEM [options]; there are: {', '.join(ITEMS)}")
    importlib.import_module(ITEMS[arguments[0]]).main(arguments[1:])
