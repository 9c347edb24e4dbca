"""Bits per byte in lm-evaluation-harness beside ours, on the same text: `python -m benchmarks scale lm_eval`.

The harness itself runs a rolling task whose only document is the text, with our adapter as its model. By default
models are trained first: word 5-grams of lines, and byte-level BPE and characters in one stream, which the text's
lines continue. `--model DIR` takes models that exist. It fails if a figure of the harness is not ours to 1e-6.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import chainrule as cr
from benchmarks.harness import DATA
from chainrule.errors import ChainruleError

CLOSE = 1e-6
"""How far apart the figures may be."""

_DESIGNS: dict[str, dict[str, Any]] = {
    "word 5-gram, lines": {"order": 5},
    "bpe 4-gram, stream": {
        "order": 4,
        "tokenizer": cr.TokenizerChoice("bpe", vocab_size=4096),
        "context": "stream",
    },
    "char 6-gram, stream": {"order": 6, "tokenizer": "char", "context": "stream"},
}


def main(arguments: list[str]) -> None:
    """Measure each model twice, and print both figures."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks scale lm_eval",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--train", type=Path, default=DATA / "wikitext-2" / "train.txt", help="text to train on")
    parser.add_argument("--text", type=Path, default=DATA / "wikitext-2" / "valid.txt", help="text to measure on")
    parser.add_argument("--model", action="append", default=[], metavar="DIR", help="a model folder; repeatable")
    options = parser.parse_args(arguments)
    try:
        text = options.text.read_text(encoding="utf-8")
        models = {name: cr.load(name) for name in options.model} or {
            name: cr.train("ngram", options.train, **design) for name, design in _DESIGNS.items()
        }
        rows = [(name, *compare(lm, text)) for name, lm in models.items()]
    except (ChainruleError, OSError) as error:
        sys.exit(f"Error: {error}")
    table = Table(title=f"bits per byte of {options.text.name}, {len(text.encode()):,} bytes")
    for heading in ("model", "harness", "ours", "difference", "harness s", "ours s"):
        table.add_column(heading, justify="left" if heading == "model" else "right")
    for name, theirs, ours, their_seconds, our_seconds in rows:
        figures = (
            f"{theirs:.9f}",
            f"{ours:.9f}",
            f"{theirs - ours:.1e}",
            f"{their_seconds:.1f}",
            f"{our_seconds:.1f}",
        )
        table.add_row(name, *figures)
    Console().print(table)
    if far := [name for name, theirs, ours, *_ in rows if not abs(theirs - ours) <= CLOSE]:
        sys.exit(f"further apart than {CLOSE}: {', '.join(far)}")


def compare(lm: cr.LanguageModel, text: str) -> tuple[float, float, float, float]:
    """Bits per byte of a text in the harness and by `evaluate`, and the seconds that each took."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    from chainrule.interop.lm_eval import ChainruleLM

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "text.jsonl")
        data.write_text(json.dumps({"page": text}) + "\n", encoding="utf-8")
        task = {
            "task": "text",
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(data)}, "cache_dir": folder},
            "test_split": "test",
            "output_type": "loglikelihood_rolling",
            "doc_to_text": "",
            "doc_to_target": "{{page}}",
            "metric_list": [{"metric": "bits_per_byte", "aggregation": "bits_per_byte", "higher_is_better": False}],
        }
        began = time.perf_counter()
        manager = TaskManager(include_defaults=False)
        found = lm_eval.simple_evaluate(ChainruleLM(lm), tasks=[task], bootstrap_iters=0, task_manager=manager)
        between = time.perf_counter()
    ours = cr.evaluate(lm, text).bits_per_byte
    theirs = float(found["results"]["text"]["bits_per_byte,none"])
    return theirs, ours, between - began, time.perf_counter() - between
