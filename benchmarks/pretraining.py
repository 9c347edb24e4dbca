"""The gain of denoising pretraining on a small task: `python -m benchmarks pretraining [options]`.

A toy language has sentences such as "the old dog sleeps near the river". One task is to generate the sentence from
its words of content, "old dog sleep river"; the other (--task preposition) is to generate the preposition that is
missing in "the old dog sleeps the river". There are few pairs, and much more text without pairs. An encoder-decoder
learns the pairs three times, with equally many steps: from random weights, and from weights that were pretrained on
the text, by spans and by infilling. Figures are exact matches on sentences that are in neither.
"""

from __future__ import annotations

import argparse
import random
import tempfile
import time
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import TEMPORARY, new_parser, show
from chainrule.decode.strategies import Beam
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import translate_ids
from chainrule.text.pairs import Pairs
from chainrule.tokens.base import Tokenizer

KINDS = ("old", "young", "grey", "small", "tall", "quiet", "brave", "tired", "happy", "lazy")
ANIMALS = ("dog", "cat", "horse", "bird", "fish", "fox", "bear", "mouse", "sheep", "goat", "wolf", "frog")
VERBS = ("sleep", "eat", "sing", "hide", "wait", "play", "rest", "hunt", "dream", "drink")
PLACES = {
    **dict.fromkeys(("river", "tree", "road", "wall", "gate"), "near"),
    **dict.fromkeys(("house", "forest", "garden", "barn", "field"), "in"),
    **dict.fromkeys(("hill", "roof", "bridge", "rock", "table"), "on"),
}


def sentences(count: int, seed: int) -> list[tuple[str, str]]:
    """Return different sentences, each with its words of content before it."""
    draw, found = random.Random(seed), {}
    while len(found) < count:
        kind, animal, verb, place = (draw.choice(words) for words in (KINDS, ANIMALS, VERBS, list(PLACES)))
        found[f"{kind} {animal} {verb} {place}"] = f"the {kind} {animal} {verb}s {PLACES[place]} the {place}"
    return list(found.items())


def main(arguments: list[str]) -> None:
    parser = new_parser("pretraining", __doc__)
    parser.add_argument("--task", choices=["sentence", "preposition"], default="sentence", help="[sentence]")
    parser.add_argument("--pairs", type=int, default=40, help="pairs of the task [40]")
    parser.add_argument("--text", type=int, default=2000, help="sentences to pretrain on [2000]")
    parser.add_argument("--joined", type=int, default=1, help="sentences of a line to pretrain on [1]")
    parser.add_argument("--steps", type=int, default=100, help="steps on the pairs [100]")
    parser.add_argument("--pretraining-steps", type=int, default=300, help="steps on the text [300]")
    parser.add_argument("--width", type=int, default=64, help="features of a token [64]")
    parser.add_argument("--test", type=int, default=100, help="sentences to test on [100]")
    parser.add_argument("--device", default="cpu", help="torch's name of the device [cpu]")
    options = parser.parse_args(arguments)
    every = sentences(options.pairs + options.test + options.text, seed=0)
    asked = [(" ".join(target.split()[:4] + target.split()[5:]), target.split()[4]) for _, target in every]
    tasks = {"sentence": every, "preposition": asked}[options.task]
    pairs, test = tasks[: options.pairs], tasks[options.pairs : options.pairs + options.test]
    lone = [target for _, target in every[options.pairs + options.test :]]
    text = [" ".join(lone[i : i + options.joined]) for i in range(0, len(lone), options.joined)]
    tokenizer = cr.train_tokenizer("word", [*(" ".join(pair) for pair in every)])
    sizes = {"layers": 2, "width": options.width, "heads": 2, "window": 32 * options.joined, "dropout": 0.1}
    rows = [_row("none", _tuned(pairs, options, tokenizer=tokenizer, **sizes), test, 0.0)]
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        for pretrain in ("spans", "infilling"):
            began, start = time.process_time(), Path(folder, pretrain)
            how: dict[str, Any] = {"steps": options.pretraining_steps, "batch": 512, "pretrain": pretrain, **sizes}
            cr.train("seq2seq", text, tokenizer=tokenizer, device=options.device, **how).save(start)
            seconds = time.process_time() - began
            rows.append(_row(pretrain, _tuned(pairs, options, pretrained=str(start)), test, seconds))
    title = f"{options.pairs} pairs, {options.steps} steps, after {options.pretraining_steps} on {len(text)} lines"
    show(title, ["pretraining", "exact", "tokens right", "CPU s before"], rows)


def _tuned(
    pairs: list[tuple[str, str]], options: argparse.Namespace, tokenizer: Tokenizer | None = None, **settings: Any
) -> ConditionalModel:
    model = cr.train(
        "seq2seq",
        pairs,
        valid=Pairs.of(pairs[:10]),  # for the record only: the last weights are as good as any
        tokenizer=tokenizer,
        device=options.device,
        steps=options.steps,
        batch=256,
        dropout=settings.pop("dropout", 0.1),
        **settings,
    )
    return ConditionalModel.expect(model)


def _row(name: str, model: ConditionalModel, test: list[tuple[str, str]], seconds: float) -> list[str]:
    """Return a row with the shares of sentences and of words that the model generates correctly."""
    sources = [model.encode_source(source) for source, _ in test]
    found = [best for best, *_ in translate_ids(model, sources, Beam(width=2))]
    exact = sum(one.text == target for one, (_, target) in zip(found, test, strict=True)) / len(test)
    words = [
        mine == theirs
        for one, (_, target) in zip(found, test, strict=True)
        for mine, theirs in zip([*one.text.split(), *[""] * 9], target.split(), strict=False)
    ]
    return [name, f"{exact:.1%}", f"{sum(words) / len(words):.1%}", f"{seconds:.0f}"]
