"""`python -m benchmarks scale ITEM [options]`: beside other programs, and on more than one process.

counting.py    n-gram models counted by Ray beside the embedded executor
drafts.py      text with drafts beside text without
export.py      exported weights in transformers beside ours
lm_eval.py     bits per byte in lm-evaluation-harness beside ours
processes.py   training by two processes beside one
"""

from __future__ import annotations

import importlib

ITEMS = ("counting", "drafts", "export", "lm_eval", "processes")
"""Each is a module here, with a `main`."""


def main(arguments: list[str]) -> None:
    """Run the item that the first argument names."""
    if not arguments or arguments[0] not in ITEMS:
        raise SystemExit(f"usage: python -m benchmarks scale ITEM [options]; there are: {', '.join(ITEMS)}")
    importlib.import_module(f"benchmarks.scale.{arguments[0]}").main(arguments[1:])
