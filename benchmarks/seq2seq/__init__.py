"""Translation: `python -m benchmarks seq2seq [PART ...] [options]`.

    quality  Multi30k, English to German: a Transformer, an LSTM with attention and one without, BLEU and chrF on
             test_2016_flickr, and BLEU against the length of the source (--plot FILE.svg)
    speed    translating 1,000 test sentences with a beam of 5, by the model of --model, or by a Transformer that is
             trained first; on the CPU beside Joey NMT and OpenNMT-py with the same weights, if they are installed.
             The model needs their design: train it with --set preset=lecture --set placement=pre

Without a part: both. --small makes every part so small that it runs anywhere in seconds, with figures that mean
nothing.
"""

from __future__ import annotations

import argparse
import operator
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch

import chainrule as cr
from benchmarks.harness import DATA, Side, chosen_parts, import_error, new_parser, race, show, timed
from benchmarks.seq2seq.peers import DESIGN, PEERS, unlike
from chainrule.cli.output import terminal_progress
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from chainrule.seq2seq.evaluate import evaluate_pairs
from chainrule.seq2seq.pictures import length_plot
from chainrule.seq2seq.quality import Quality
from chainrule.settings import split_words
from chainrule.system.devices import choose_device

DESIGNS: dict[str, dict[str, Any]] = {
    "transformer": {"cell": "transformer"},
    "lstm, attention": {"cell": "lstm", "attention": "general"},
    "lstm, no attention": {"cell": "lstm", "attention": "none"},
}
PAIRS = [(f"a{i % 7} b{i % 5} c", f"d b{i % 5} a{i % 7}") for i in range(60)]
"""The pairs of --small."""
BEAMS = 5
OTHER = "chainrule, any ending"
"""The side whose hypotheses may end at every step."""
PEER_BATCHES = (16, 32, 64, 128)
"""The numbers of sentences at once that are tried for a peer."""


def main(arguments: list[str]) -> None:
    """Run the parts that the arguments name."""
    parser = new_parser("seq2seq", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="quality, speed [default: both]")
    parser.add_argument("--data", type=Path, default=DATA / "multi30k", help="the folder of train, val and test")
    parser.add_argument("--device", default="auto", help="torch's name of the device [default: auto]")
    parser.add_argument("--minutes", type=float, default=9.0, help="of training, each model [9]")
    parser.add_argument("--vocab-size", type=int, default=8000, help="joint subwords [8000]")
    parser.add_argument("--design", action="append", default=[], help="quality: only this one; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a setting; repeatable")
    parser.add_argument("--model", type=Path, help="speed: a model folder")
    parser.add_argument("--keep", type=Path, help="quality: a folder for the models")
    parser.add_argument("--plot", type=Path, help="quality: BLEU against the length of the source, as SVG")
    parser.add_argument("--rounds", type=int, default=3, help="speed: how often [3]")
    parser.add_argument("--threads", type=int, help="speed: of torch, on all sides [as torch chooses]")
    batches = f"speed: sentences at once; repeatable {list(PEER_BATCHES)}"
    parser.add_argument("--peer-batch", type=int, action="append", help=batches)
    parser.add_argument("--check", action="store_true", help="speed: compare greedy translations too")
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    options = parser.parse_args(arguments)
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    parts: dict[str, Callable[[argparse.Namespace], None]] = {"quality": quality, "speed": speed}
    for part in chosen_parts(parser, options.parts, parts):
        part(options)


def pairs(options: argparse.Namespace, name: str) -> cr.Pairs:
    """Return the pairs of a part of the data."""
    if options.small:
        return cr.Pairs.of(PAIRS)
    return cr.Pairs.open(options.data / f"{name}.en", options.data / f"{name}.de")


def trained(options: argparse.Namespace, design: str) -> ConditionalModel:
    """Train a model of a design."""
    settings: dict[str, Any] = {**(DESIGN if design == "speed" else DESIGNS[design]), **split_words(options.set)}
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
    """Time translating the test sentences, beside peers that have the same weights."""
    device = choose_device(options.device)
    if options.model is None:
        lm = trained(options, "speed")
    else:
        lm = ConditionalModel.expect(cr.load(options.model, device=device))
    test = list(pairs(options, "test_2016_flickr"))
    sources = [source for source, _ in test]
    other = cr.Beam(BEAMS, ending="any")
    works: dict[str, Callable[[], list[str]]] = {
        "chainrule": lambda: cr.translate(lm, sources, beams=BEAMS),
        OTHER: lambda: cr.translate(lm, sources, other),
    }
    agreement: dict[str, str] = {}
    for peer, batch in installed_peers(options, lm, sources):
        works[f"{peer.name}, {batch} at once"] = partial(peer.translate, sources, batch)
        if options.check:
            greedy = cr.translate(lm, sources, cr.Beam(1, ending="best"))
            agreement[peer.name] = _same(type(peer)(peer.lm, 1).translate(sources, batch), greedy)
    written: dict[str, list[str]] = {}
    sides = [Side(name, _noted(name, work, written), len(sources)) for name, work in works.items()]
    rounds = 1 if options.small else options.rounds
    race(
        f"translation on {device}, {options.threads or 'all'} threads, beam of {BEAMS}", "sentences", sides, rounds
    )
    rows = []
    for name, texts in written.items():
        found = Quality.of(texts, [target for _, target in test])
        words = sum(len(text.split()) for text in texts) / len(texts)
        same = _same(texts, written["chainrule"]), _same(texts, written[OTHER])
        rows.append([name, f"{found.bleu:.1f}", f"{words:.1f}", *same, agreement.get(name.split(",")[0], "")])
    headings = ["side", "BLEU", "words", "as chainrule", "as the second", "greedy, as chainrule"]
    show("translations", headings, rows)


def _noted(name: str, work: Callable[[], list[str]], written: dict[str, list[str]]) -> Callable[[], None]:
    """Return work that also keeps its translations under its name."""

    def noted() -> None:
        written[name] = work()

    return noted


def _same(texts: list[str], others: list[str]) -> str:
    """Return the share of texts that are the same on both sides."""
    return f"{sum(map(operator.eq, texts, others)) / len(texts):.1%}"


def installed_peers(
    options: argparse.Namespace, lm: ConditionalModel, sources: list[str]
) -> Iterator[tuple[Any, int]]:
    """Yield the installed peers, each with its fastest size of a batch; print why others are left out."""
    if not isinstance(lm, EncoderDecoderModel) or lm.device != "cpu":
        print(f"left out: peers: they are compared on the CPU, the model is on {lm.device}")
        return
    sample = sources[::5]  # to choose a size
    for make, modules in PEERS.values():
        if (why := unlike(lm) or import_error(modules)) is not None:
            print(f"left out: {make.name}: {why}")
            continue
        peer = make(lm, BEAMS)
        batches = options.peer_batch or PEER_BATCHES
        seconds = {batch: timed(partial(peer.translate, sample, batch)).seconds for batch in batches}
        tried = ", ".join(f"{batch}: {len(sample) / spent:.1f}" for batch, spent in seconds.items())
        print(f"{make.name}: sentences/s of {len(sample)}, by sentences at once: {tried}", flush=True)
        yield peer, min(seconds, key=seconds.__getitem__)
