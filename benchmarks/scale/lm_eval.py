"""Bits per byte in lm-evaluation-harness beside ours, on the same text: `python -m benchmarks scale lm_eval`.

The harness runs a rolling task whose only document is the text, with our adapter as its model. By default three
models are trained first: one of words in separate lines, one of byte-level BPE and one of characters in a stream.
`--model DIR` measures existing models instead. The benchmark fails if a figure differs from ours by more than 1e-6.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import DATA, new_parser, show
from chainrule.errors import ChainruleError

CLOSE = 1e-6
"""The largest difference of the figures that counts as none."""

_DESIGNS: dict[str, dict[str, Any]] = {
    "word 5-gram, lines": {"order": 5, "tokenizer": "word"},
    "bpe 4-gram, stream": {
        "order": 4,
        "tokenizer": cr.TokenizerChoice("bpe", vocab_size=4096),
        "context": "stream",
    },
    "char 6-gram, stream": {"order": 6, "tokenizer": "char", "context": "stream"},
}


def main(arguments: list[str]) -> None:
    """Measure each model in the harness and here, and print both figures."""
    parser = new_parser("scale lm_eval", __doc__)
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
    shown = [
        [name, f"{theirs:.9f}", f"{ours:.9f}", f"{theirs - ours:.1e}", *(f"{each:.1f}" for each in seconds)]
        for name, theirs, ours, *seconds in rows
    ]
    title = f"bits per byte of {options.text.name}, {len(text.encode()):,} bytes"
    show(title, ["model", "harness", "ours", "difference", "harness s", "ours s"], shown)
    if far := [name for name, theirs, ours, *_ in rows if not abs(theirs - ours) <= CLOSE]:
        sys.exit(f"further apart than {CLOSE}: {', '.join(far)}")


def compare(lm: cr.LanguageModel, text: str) -> tuple[float, float, float, float]:
    """Return bits per byte of a text in the harness and by `evaluate`, and the seconds of each."""
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
