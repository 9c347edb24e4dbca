"""How good the rule for default settings is: its regret against a small search around it.

    python -m benchmarks defaults [KIND ...] [--texts NAME ...] [--changes NAME ...] [--minutes 1] [--record FILE]

Each family is trained on each text by the plain command. Then it is trained again with one choice of the rule
changed at a time: half and twice the learning rate, half and twice the batch, no regularisation, all of it from the
beginning, a smaller and a larger network. The regret is how much higher the perplexity of the plain command is than
the lowest one that was found, on held-out text. `--steps` gives every run so many steps instead of minutes, so that
other load on the machine changes nothing; `--part` takes only the beginning of each text.

A file of records, a line of JSON for each run, is read first: runs that it has are not repeated.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import DATA, existing, exit_on_error, new_parser, open_text, show
from chainrule.contract.kinds import find_kind
from chainrule.networks.config import regularisers
from chainrule.system.devices import choose_device

KINDS = ("feedforward", "bagofwords", "elman", "gru", "lstm", "transformer")
HELD_OUT = 300_000
"""The bytes of a text that are held out where it has no file of its own for that."""


@dataclass(frozen=True)
class Source:
    """A text to train on, the text that is held out, and how they are read."""

    train: str
    valid: str | None
    tokenizer: str
    context: Any = "stream"

    def texts(self, data: Path, part: int | None) -> tuple[str, str]:
        """Return both texts; of the training text, the first `part` bytes."""
        train = _text(existing(data / self.train))
        if self.valid is None:
            return train[:-HELD_OUT][:part], train[-HELD_OUT:]
        return train[:part], _text(existing(data / self.valid))[:HELD_OUT]


SOURCES = {
    "wikitext": Source("wikitext-2/train.txt", "wikitext-2/valid.txt", "word"),
    "shakespeare": Source("tinyshakespeare/input.txt", None, "char"),
    "wiki": Source("simplewiki/train.txt.gz", "simplewiki/valid.txt", "bpe"),
    "german": Source("multi30k/train.de", "multi30k/val.de", "word", "line"),
}


def _text(path: Path) -> str:
    with open_text(path) as file:
        return file.read(40_000_000).decode(errors="ignore")


def changes(kind: str, chosen: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the names of the changes to settings that the rule chose, and the settings that each sets."""
    for name, factor in (("half", 0.5), ("twice", 2.0)):
        yield f"{name} the rate", {"learning_rate": chosen.learning_rate * factor}
        yield f"{name} the batch", {"batch": max(64, int(chosen.batch * factor))}
    if any(getattr(chosen, name) for name in regularisers(chosen)):
        yield "no dropout", dict.fromkeys(regularisers(chosen), 0.0)
        yield "all dropout at once", {"regularise": "always"}
    sizes = find_kind(kind).settings().sizes()
    place = next((i for i, size in enumerate(sizes) if all(getattr(chosen, k) == size[k] for k in size)), None)
    if place is not None:
        for name, other in (("smaller", place - 1), ("larger", place + 1)):
            if 0 <= other < len(sizes):
                yield name, sizes[other]


class Trials:
    """Trainings by their settings; those that a file has are not repeated."""

    def __init__(self, record: Path | None, device: str, length: dict[str, Any]) -> None:
        self.record, self.device, self.length = record, device, length
        lines = record.read_text().splitlines() if record is not None and record.exists() else []
        self.done: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def train(self, source: str, texts: tuple[str, str], kind: str, name: str, **settings: Any) -> dict[str, Any]:
        """Return the record of a training; `name` is that of the change of settings."""
        key = {"text": source, "kind": kind, "change": name, "device": self.device, **self.length}
        for record in self.done:
            if all(record[field] == value for field, value in key.items()):
                return record
        made = SOURCES[source]
        more = {"tokenizer": made.tokenizer, "context": made.context, "device": self.device}
        lm = cr.train(kind, texts[0], valid=texts[1], **more, **self.length, **settings)
        figures = {name: lm.metrics[name] for name in ("steps", "tokens_seen", "parameters")}
        record = {
            **key,
            "perplexity": math.exp(lm.metrics["validation_nats"]),
            **figures,
            "settings": vars(lm.settings),
        }
        self.done.append(record)
        if self.record is not None:
            with self.record.open("a") as file:
                file.write(json.dumps(record, default=str) + "\n")
        print(f"{source}, {kind}, {name}: {record['perplexity']:.2f} in {figures['steps']:,} steps", flush=True)
        return record


def regret(
    trials: Trials, source: str, texts: tuple[str, str], kind: str, names: Sequence[str] | None
) -> list[str]:
    """Return the row of a table: the perplexity of the plain command, the best one, and the regret.

    `names` are those of the changes that are tried; None for all.
    """
    plain = trials.train(source, texts, kind, "plain")
    chosen = find_kind(kind).settings(**plain["settings"])
    tried = [(name, set_to) for name, set_to in changes(kind, chosen) if names is None or name in names]
    others = [trials.train(source, texts, kind, name, **set_to) for name, set_to in tried]
    best = min([plain, *others], key=lambda record: record["perplexity"])
    figures = f"{plain['perplexity']:.2f}", f"{best['perplexity']:.2f}", best["change"]
    return [source, kind, *figures, f"{plain['perplexity'] / best['perplexity'] - 1:.1%}"]


def main(arguments: Sequence[str]) -> None:
    """Train all families on all texts, and print the table of regrets."""
    parser = new_parser("defaults", __doc__)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"families; default: {' '.join(KINDS)}")
    parser.add_argument("--texts", nargs="+", choices=SOURCES, default=[*SOURCES], help="texts; default: all")
    parser.add_argument(
        "--changes", nargs="*", metavar="NAME", help='changes of settings, as "half the rate"; default: all'
    )
    parser.add_argument("--minutes", type=float, default=1.0, help="the time of each training")
    parser.add_argument("--steps", type=int, help="the steps of each training, instead of minutes")
    parser.add_argument("--part", type=int, help="the bytes of each training text that are read")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the texts")
    parser.add_argument("--record", type=Path, help="a file that keeps the runs")
    options = parser.parse_args(arguments)
    length = {"minutes": options.minutes} if options.steps is None else {"steps": options.steps}
    with exit_on_error():
        trials, rows = Trials(options.record, choose_device(options.device), length), []
        for source in options.texts:
            texts = SOURCES[source].texts(options.data, options.part)
            rows += [regret(trials, source, texts, kind, options.changes) for kind in options.kinds or KINDS]
    words = f"{options.steps:,} steps" if options.steps is not None else f"{options.minutes:g} minutes"
    headings = ["text", "family", "plain", "best", "change", "regret"]
    show(f"regret of the default settings, {words}, {trials.device}", headings, rows)
