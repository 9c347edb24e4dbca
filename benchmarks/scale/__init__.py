"""Large models and large texts: `python -m benchmarks scale ITEM [options]`.

drafts  greedy text of a Transformer with drafts of n-gram models, beside the same without
"""

from __future__ import annotations

import importlib
import sys

ITEMS = ("drafts",)


def main(arguments: list[str]) -> None:
    if not arguments or arguments[0] not in ITEMS:
        sys.exit(f"usage: python -m benchmarks scale ITEM [options]; there are: {', '.join(ITEMS)}")
    importlib.import_module(f"benchmarks.scale.{arguments[0]}").main(arguments[1:])
