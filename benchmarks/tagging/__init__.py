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
    recipe       what `python -m recipes ewt_tagger` trains
    spacy        spaCy's tagger (width 96, 4 layers), trained from nothing
    spacy-accurate   the same, as large as its quickstart's accurate one

The speed is that of tagging the test sentences, of given words; the best of three times. Without NAMEs: all but the
last five.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import recipes

import chainrule as cr
from benchmarks.harness import DATA, show
from benchmarks.tagging.peers import DESIGNS, SpacyTagger, missing
from chainrule.cli.output.progress import terminal_progress
from chainrule.errors import ChainruleError
from chainrule.settings import split_words
from chainrule.text.tagged import Sentence, Tagged

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
    "recipe": dict(recipes.find("ewt_tagger").settings),
    **{name: {} for name in DESIGNS},
}
NOT_USUAL = ("pretrained", "frozen", "recipe", *DESIGNS)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks tagging",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", help="the rows [default: the first ones]")
    parser.add_argument(
        "--data", type=Path, default=DATA / "ud-english-ewt", help="a folder of *-train.conllu, ..."
    )
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... [default: an accelerator if there is one]")
    parser.add_argument("--minutes", type=float, default=1.0, help="the time of each training [default: 1]")
    parser.add_argument("--pretrained", help="the folder of a masked model")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting of all rows")
    options = parser.parse_args(arguments)
    needing = ("pretrained", "frozen") if options.pretrained else ()
    names = options.names or [name for name in ROWS if name in needing or name not in NOT_USUAL]
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
        if name in DESIGNS:
            if (why := missing()) is not None:
                print(f"left out: {name}: {why}")
                continue
            rows.append(_spacy(name, options, list(train), list(dev), list(test)))
            print(f"{name}: {dict(zip(HEADINGS[1:], rows[-1][1:], strict=True))}", flush=True)
            continue
        tagger: Any = cr.train(
            "tagger",
            train,
            valid=dev,
            device=options.device,
            seed=options.seed,
            progress=terminal_progress(),
            **{**ROWS[name], "minutes": options.minutes, **_pretrained(name, options), **split_words(options.set)},
        )
        seconds = time.perf_counter() - began
        of_dev, of_test = (cr.tagging.evaluate_tagger(tagger, part) for part in (dev, test))
        if not any(row[0] == BASELINE for row in rows):
            baseline = f"{of_test.baseline:.2%}", f"{of_test.baseline_unknown:.2%}"
            rows.append([BASELINE, "", "", f"{of_dev.baseline:.2%}", *baseline, "", "", ""])
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
                f"{_speed(tagger.tag, list(test)):,.0f}",
            ]
        )
        print(f"{name}: {dict(zip(HEADINGS[1:], rows[-1][1:], strict=True))}", flush=True)
    show("UD English EWT, UPOS", HEADINGS, rows)


BASELINE = "most frequent tag"
HEADINGS = ["tagger", "size", "M parameters", "dev", "test", "unknown", "epochs", "s", "words/s"]


def _spacy(
    name: str, options: argparse.Namespace, train: list[Sentence], dev: list[Sentence], test: list[Sentence]
) -> list[str]:
    """The row of a tagger of spaCy."""
    began = time.perf_counter()
    tagger = SpacyTagger(name, train, options.seed)
    tagger.train(options.minutes, dev)
    seconds = time.perf_counter() - began
    known = {word for sentence in train for word in sentence.words}
    found = tagger.tag([sentence.words for sentence in test])
    unknown = [
        mine == tag
        for tags, sentence in zip(found, test, strict=True)
        for mine, word, tag in zip(tags, sentence.words, sentence.tags, strict=True)
        if word not in known
    ]
    return [
        name,
        tagger.size,
        f"{tagger.parameters / 1e6:.1f}",
        f"{tagger.accuracy(dev):.2%}",
        f"{tagger.accuracy(test):.2%}",
        f"{sum(unknown) / max(len(unknown), 1):.2%}",
        f"{tagger.words / sum(len(sentence.words) for sentence in train):.0f}",
        f"{seconds:.0f}",
        f"{_speed(tagger.tag, test):,.0f}",
    ]


def _speed(tag: Callable[[list[Sequence[str]]], object], test: list[Sentence]) -> float:
    """Words tagged in a second."""
    sentences: list[Sequence[str]] = [sentence.words for sentence in test]
    seconds = []
    for _ in range(3):
        began = time.perf_counter()
        tag(sentences)
        seconds.append(time.perf_counter() - began)
    return sum(map(len, sentences)) / min(seconds)


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
