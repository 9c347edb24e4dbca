"""Taggers on UD English EWT: `python -m benchmarks tagging [NAME ...] [options]`.

Each row is a network, trained for --minutes, with its accuracy on the sentences of dev and test, and on the unknown
words of test; the first row is the most frequent tag of each word. NAMEs choose rows:

    words        each word by itself
    elman-one    an Elman network that reads from left to right
    lstm-one     an LSTM that reads from left to right
    elman        Elman networks in both directions
    gru          GRUs in both directions
    lstm         LSTMs in both directions
    deep         two layers of LSTMs in both directions
    characters   deep, with the spelling of words
    transformer  a Transformer encoder, with the spelling of words
    pretrained   a masked model (--pretrained DIR), with training of its weights
    frozen       the same, without training of its weights
    recipe       the tagger of `python -m recipes ewt_tagger`
    spacy        spaCy's tagger (width 96, 4 layers), trained from random weights
    spacy-accurate   the same, in the size that its quickstart calls accurate

The speed is that of tagging the words of the test sentences, the best of three times. Without NAMEs: all rows but
the last five.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import recipes

import chainrule as cr
from benchmarks.harness import DATA, exit_on_error, new_parser, show, timed
from benchmarks.tagging.peers import DESIGNS, SpacyTagger, missing
from chainrule.cli.output import terminal_progress
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
    parser = new_parser("tagging", __doc__)
    parser.add_argument("names", nargs="*", help="the rows [default: the first ones]")
    folder = DATA / "ud-english-ewt"
    parser.add_argument("--data", type=Path, default=folder, help="a folder of *-train.conllu, ...")
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
    with exit_on_error():
        _compare(names, options)


def _compare(names: list[str], options: argparse.Namespace) -> None:
    texts = [Tagged.open(_found(options.data, part)) for part in ("train", "dev", "test")]
    rows: list[list[str]] = []
    for name in names:
        if name not in DESIGNS:
            baseline, row = _ours(name, options, *texts)
            rows += [row] if rows and rows[0][0] == baseline[0] else [baseline, row]
        elif (why := missing()) is not None:
            print(f"left out: {name}: {why}")
            continue
        else:
            rows.append(_spacy(name, options, *map(list, texts)))
        print(f"{name}: {dict(zip(HEADINGS[1:], rows[-1][1:], strict=True))}", flush=True)
    show("UD English EWT, UPOS", HEADINGS, rows)


HEADINGS = ["tagger", "size", "M parameters", "dev", "test", "unknown", "epochs", "s", "words/s"]


def _ours(
    name: str, options: argparse.Namespace, train: Tagged, dev: Tagged, test: Tagged
) -> tuple[list[str], list[str]]:
    """Return the row of the most frequent tags, and that of one of our taggers."""
    began = time.perf_counter()
    settings = {**ROWS[name], "minutes": options.minutes, **_pretrained(name, options), **split_words(options.set)}
    how: dict[str, Any] = {"device": options.device, "seed": options.seed, "progress": terminal_progress()}
    tagger: Any = cr.train("tagger", train, valid=dev, **how, **settings)
    seconds = time.perf_counter() - began
    of_dev, of_test = (cr.tagging.evaluate_tagger(tagger, part) for part in (dev, test))
    shares = of_dev.baseline, of_test.baseline, of_test.baseline_unknown
    baseline = ["most frequent tag", "", "", *(f"{share:.2%}" for share in shares), "", "", ""]
    row = _row(
        name,
        f"{tagger.settings.width} x {tagger.settings.layers}",
        tagger.metrics["parameters"],
        (of_dev.accuracy, of_test.accuracy, of_test.unknown_accuracy),
        tagger.metrics["tokens_seen"] / tagger.provenance["corpus_tokens"],
        seconds,
        _speed(tagger.tag, list(test)),
    )
    return baseline, row


def _spacy(
    name: str, options: argparse.Namespace, train: list[Sentence], dev: list[Sentence], test: list[Sentence]
) -> list[str]:
    """Return the row of a tagger of spaCy."""
    began = time.perf_counter()
    tagger = SpacyTagger(name, train, options.seed)
    tagger.train(options.minutes, dev)
    seconds = time.perf_counter() - began
    known = {word for sentence in train for word in sentence.words}
    return _row(
        name,
        tagger.size,
        tagger.parameters,
        (tagger.accuracy(dev), tagger.accuracy(test), tagger.accuracy(test, without=known)),
        tagger.words / sum(len(sentence.words) for sentence in train),
        seconds,
        _speed(tagger.tag, test),
    )


def _row(
    name: str, size: str, parameters: float, shares: Sequence[float], epochs: float, seconds: float, speed: float
) -> list[str]:
    accuracies = (f"{share:.2%}" for share in shares)
    return [name, size, f"{parameters / 1e6:.1f}", *accuracies, f"{epochs:.0f}", f"{seconds:.0f}", f"{speed:,.0f}"]


def _speed(tag: Callable[[list[Sequence[str]]], object], test: list[Sentence]) -> float:
    """Return the words tagged in a second."""
    sentences: list[Sequence[str]] = [sentence.words for sentence in test]
    return sum(map(len, sentences)) / min(timed(lambda: tag(sentences)).seconds for _ in range(3))


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
