"""Taggers on UD English EWT: `python -m benchmarks tagging [NAME ...] [options]`.

Each row is a network, trained for as many minutes, and its accuracy on the test sentences: of words of the training
text, of unknown ones, and of all; above them the most frequent tag of each word. NAMEs choose rows:

    words        each word by itself
    elman-one    an Elman network that reads from left to right
    lstm-one     an LSTM that does
    elman        Elman networks in both directions
    gru          GRUs in both directions
    lstm         LSTMs in both directions
    deep         two layers of them
    characters   the same, with the spelling of words
    transformer  a Transformer encoder, with the spelling of words
    pretrained   a masked model (--pretrained DIR), tuned
    frozen       the same, left as it is
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import DATA, show
from chainrule.cli.progress import terminal_progress
from chainrule.errors import ChainruleError
from chainrule.settings import split_words
from chainrule.text.tagged import Tagged

ROWS: dict[str, dict[str, Any]] = {
    "words": {"layers": 0, "characters": "none"},
    "elman-one": {"cell": "elman", "bidirectional": False, "layers": 1, "characters": "none"},
    "lstm-one": {"cell": "lstm", "bidirectional": False, "layers": 1, "characters": "none"},
    "elman": {"cell": "elman", "layers": 1, "characters": "none"},
    "gru": {"cell": "gru", "layers": 1, "characters": "none"},
    "lstm": {"cell": "lstm", "layers": 1, "characters": "none"},
    "deep": {"cell": "lstm", "layers": 2, "characters": "none"},
    "characters": {"cell": "lstm", "layers": 2, "characters": "lstm"},
    "transformer": {"cell": "transformer", "characters": "lstm"},
    "pretrained": {"cell": "lstm", "layers": 1, "characters": "lstm"},
    "frozen": {"cell": "lstm", "layers": 1, "characters": "lstm", "frozen": True},
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks tagging", description=__doc__)
    parser.add_argument("names", nargs="*", help="the rows [default: all but those that need --pretrained]")
    parser.add_argument(
        "--data", type=Path, default=DATA / "ud-english-ewt", help="a folder of *-train.conllu, ..."
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... [default: an accelerator if there is one]")
    parser.add_argument("--minutes", type=float, default=1.0, help="the time of each training [default: 1]")
    parser.add_argument("--pretrained", help="the folder of a masked model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all rows")
    options = parser.parse_args(arguments)
    names = options.names or [name for name in ROWS if options.pretrained or name not in ("pretrained", "frozen")]
    if unknown := [name for name in names if name not in ROWS]:
        parser.error(f"there is no row {unknown[0]!r}; there are: {', '.join(ROWS)}")
    try:
        _compare(names, options)
    except ChainruleError as error:
        raise SystemExit(f"error: {error}") from error


def _compare(names: list[str], options: argparse.Namespace) -> None:
    train, dev, test = (Tagged.open(_found(options.data, part)) for part in ("train", "dev", "test"))
    rows: list[list[str]] = []
    for name in names:
        began = time.perf_counter()
        tagger: Any = cr.train(
            "tagger",
            train,
            valid=dev,
            device=options.device,
            seed=options.seed,
            progress=terminal_progress(),
            **{"minutes": options.minutes, **ROWS[name], **_pretrained(name, options), **split_words(options.set)},
        )
        seconds = time.perf_counter() - began
        of_dev, of_test = (cr.evaluate_tagger(tagger, part) for part in (dev, test))
        if not rows:
            baseline = f"{of_test.baseline:.2%}", f"{of_test.baseline_unknown:.2%}"
            rows.append(["most frequent tag", "", "", f"{of_dev.baseline:.2%}", *baseline, "", ""])
        size, settings = tagger.metrics["parameters"] / 1e6, tagger.settings
        rows.append(
            [
                name,
                f"{settings.width} x {settings.layers}",
                f"{size:.1f}",
                f"{of_dev.accuracy:.2%}",
                f"{of_test.accuracy:.2%}",
                f"{of_test.unknown_accuracy:.2%}",
                f"{tagger.metrics['tokens_seen'] / tagger.provenance['corpus_tokens']:.0f}",
                f"{seconds:.0f}",
            ]
        )
        print(f"{name}: {dict(zip(HEADINGS[1:], rows[-1][1:], strict=True))}", flush=True)
    show("UD English EWT, UPOS", HEADINGS, rows)


HEADINGS = ["tagger", "units x layers", "M parameters", "dev", "test", "unknown words", "epochs", "seconds"]


def _pretrained(name: str, options: argparse.Namespace) -> dict[str, Any]:
    if name not in ("pretrained", "frozen"):
        return {}
    if options.pretrained is None:
        raise ChainruleError(f"the row {name} needs a masked model: --pretrained DIR")
    return {"pretrained": options.pretrained}


def _found(folder: Path, part: str) -> Path:
    paths = sorted(folder.glob(f"*-{part}.conllu"))
    if not paths:
        raise ChainruleError(f"{folder} has no *-{part}.conllu: name the folder of the data with --data")
    return paths[0]
