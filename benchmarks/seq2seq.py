"""Translation: `python -m benchmarks seq2seq [PART ...] [options]`.

    quality  Multi30k, English to German: a Transformer, an LSTM with attention and one without, BLEU and chrF on
             test_2016_flickr, and BLEU against the length of the source (--plot FILE.svg)
    speed    translating 1,000 test sentences with a beam of 5, by the model of --model, or by a Transformer that is
             trained first; beside Joey NMT or OpenNMT where it is installed (--joey, --opennmt: its model)

Without a part: both. --small makes every part so small that it runs anywhere in seconds; its figures mean nothing.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import DATA, Side, race, show
from chainrule.cli.progress import terminal_progress
from chainrule.encoders.seq2seq.contract import ConditionalModel
from chainrule.encoders.seq2seq.evaluate import evaluate_pairs
from chainrule.encoders.seq2seq.length_plot import length_plot
from chainrule.system.devices import choose_device

DESIGNS: dict[str, dict[str, Any]] = {
    "transformer": {"cell": "transformer"},
    "lstm, attention": {"cell": "lstm", "attention": "general"},
    "lstm, no attention": {"cell": "lstm", "attention": "none"},
}
PAIRS = [(f"a{i % 7} b{i % 5} c", f"d b{i % 5} a{i % 7}") for i in range(60)]
"""The pairs of --small."""
BEAMS = 5


def main(arguments: list[str]) -> None:
    """Run the parts that the arguments name."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks seq2seq",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help="quality, speed [default: both]")
    parser.add_argument("--data", type=Path, default=DATA / "multi30k", help="the folder of train, val and test")
    parser.add_argument("--device", default="auto", help="torch's name of the device [default: auto]")
    parser.add_argument("--minutes", type=float, default=9.0, help="of training, each model [9]")
    parser.add_argument("--vocab-size", type=int, default=8000, help="joint subwords [8000]")
    parser.add_argument("--design", action="append", default=[], help="quality: only this one; repeatable")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting; repeatable"
    )
    parser.add_argument("--model", type=Path, help="speed: a model folder")
    parser.add_argument("--keep", type=Path, help="quality: a folder for the models")
    parser.add_argument("--plot", type=Path, help="quality: BLEU against the length of the source, as SVG")
    parser.add_argument("--rounds", type=int, default=3, help="speed: how often [3]")
    parser.add_argument("--joey", type=Path, help="speed: the configuration of a trained Joey NMT model")
    parser.add_argument("--opennmt", type=Path, help="speed: the checkpoint of a trained OpenNMT-py model")
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    options = parser.parse_args(arguments)
    parts: dict[str, Callable[[argparse.Namespace], None]] = {"quality": quality, "speed": speed}
    for part in options.parts:
        if part not in parts:
            parser.error(f"there is no part {part!r}; there are: {', '.join(parts)}")
    for name, part in parts.items():
        if name in (options.parts or parts):
            part(options)


def pairs(options: argparse.Namespace, name: str) -> cr.Pairs:
    """The pairs of a part of the data."""
    if options.small:
        return cr.Pairs.of(PAIRS)
    return cr.Pairs.open(options.data / f"{name}.en", options.data / f"{name}.de")


def trained(options: argparse.Namespace, design: str) -> ConditionalModel:
    """A model of a design."""
    settings = {**DESIGNS[design], **dict(word.split("=", 1) for word in options.set)}
    tokenizer = cr.TokenizerChoice("bpe", vocab_size=options.vocab_size)
    settings |= {"minutes": options.minutes}
    if options.small:
        settings |= {"width": 16, "layers": 1, "heads": 2, "steps": 3, "minutes": None, "batch": 64}
        tokenizer = cr.TokenizerChoice("word")
    lm = cr.train(
        "seq2seq",
        pairs(options, "train"),
        valid=pairs(options, "val"),
        tokenizer=tokenizer,
        device=choose_device(options.device),
        progress=terminal_progress(),
        **{key: value for key, value in settings.items() if value is not None},
    )
    return ConditionalModel.expect(lm)


def quality(options: argparse.Namespace) -> None:
    """Train the designs, and measure them on the test sentences."""
    test, rows, curves = pairs(options, "test_2016_flickr"), [], []
    for design in options.design or DESIGNS:
        began = time.perf_counter()
        lm = trained(options, design)
        seconds = time.perf_counter() - began
        if options.keep is not None:
            lm.save(options.keep / design.replace(", ", "-").replace(" ", "-"), overwrite=True)
        found = evaluate_pairs(lm, test, progress=terminal_progress())
        curves.append((design, found.lengths))
        figures = f"{found.bleu:.1f}", f"{found.chrf:.1f}", f"{found.perplexity:.2f}", f"{seconds:,.0f}"
        rows.append([design, *figures, f"{lm.metrics['parameters'] / 1e6:.1f}"])
    rows.append(["(copying the source)", f"{found.copied_bleu:.1f}", "", "", "", ""])
    show("Multi30k en-de, test_2016_flickr", ["model", "BLEU", "chrF", "perplexity", "s", "M parameters"], rows)
    names = [one.name for one in curves[0][1]]
    by_length = [[design, *(f"{one.bleu:.1f}" for one in curve)] for design, curve in curves]
    show("BLEU by words of the source", ["model", *names], by_length)
    print(found.signatures["bleu"])
    if options.plot is not None:
        options.plot.write_text(length_plot(curves), encoding="utf-8")


def speed(options: argparse.Namespace) -> None:
    """Time translating the test sentences, beside peers."""
    device = choose_device(options.device)
    if options.model is None:
        lm = trained(options, "transformer")
    else:
        lm = ConditionalModel.expect(cr.load(options.model, device=device))
    sources = [source for source, _ in pairs(options, "test_2016_flickr")]
    sides = [Side("chainrule", lambda: cr.translate(lm, sources, beams=BEAMS), len(sources))]
    with tempfile.TemporaryDirectory(prefix="chainrule-benchmark-") as folder:
        text = Path(folder) / "source.txt"
        text.write_text("".join(f"{source}\n" for source in sources), encoding="utf-8")
        sides += peers(options, text, len(sources), device)
        race(
            f"translation on {device}, beam of {BEAMS}", "sentences", sides, 1 if options.small else options.rounds
        )


def peers(options: argparse.Namespace, text: Path, count: int, device: str) -> list[Side]:
    """The peers that are installed and have a model; what is not there is left out, and a line says so."""
    onmt = ["onmt_translate", "-model", str(options.opennmt), "-src", str(text), "-output", f"{text}.out"]
    onmt += ["-beam_size", str(BEAMS), *(["-gpu", "0"] if device.startswith("cuda") else [])]
    joey = ["joeynmt", "translate", str(options.joey)]
    sides = []
    for name, model, command in (("Joey NMT", options.joey, joey), ("OpenNMT-py", options.opennmt, onmt)):
        program = command[0]
        if model is None or shutil.which(program) is None:
            why = "no model of it is given" if shutil.which(program) else f"{program} is not installed"
            print(f"left out: {name}: {why}")
            continue
        sides.append(Side(name, _process(command, text), count))
    return sides


def _process(command: list[str], text: Path) -> Callable[[], object]:
    """A peer's command, which reads the sources; the time of its start counts, since it has no other interface."""

    def work() -> object:
        with text.open(encoding="utf-8") as file:
            return subprocess.run(command, stdin=file, capture_output=True, check=True)

    return work
