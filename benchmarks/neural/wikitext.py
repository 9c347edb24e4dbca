"""The recipes for WikiText-2, each in at most nine minutes, beside our own 5-gram model of the same tokens."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path

import recipes

import chainrule as cr
from benchmarks.harness import show
from benchmarks.neural.lab import Lab

RECIPES = [name for name in recipes.names() if name.startswith("wikitext2_")]
MINUTES = 9.0
SMALL = {
    "feedforward": {"embedding": 8, "hidden": 16, "batch": 64, "length": 8},
    "elman": {"embedding": 8, "hidden": 16, "batch": 64, "length": 8},
    "lstm": {"embedding": 8, "hidden": 16, "batch": 64, "length": 8},
    "transformer": {"layers": 1, "width": 16, "heads": 2, "window": 16, "batch": 64},
}


def run(lab: Lab) -> None:
    data = _few_lines(lab) if lab.small else lab.data
    ngram_row, ngram = _ngram(lab, data)
    rows = [ngram_row]
    for name in lab.options.recipe or RECIPES:
        recipe = recipes.find(name)
        minutes = min(MINUTES, recipe.settings.get("minutes", MINUTES))
        small = {**SMALL.get(recipe.kind, {}), "minutes": 0.01, "steps": 4}
        settings = {"minutes": minutes, **lab.pick({}, small), **lab.settings}
        lm, measured = recipes.run(recipe, data, device=lab.device, settings=settings)
        figures = lm.metrics
        rows.append(
            [
                name.removeprefix("wikitext2_"),
                f"{measured.perplexity:.2f}",
                f"{measured.perplexity / ngram:.2f}",
                f"{figures['parameters'] / 1e6:.1f}",
                f"{figures['training_seconds']:.0f}",
                f"{figures['tokens_per_second_in_training']:,.0f}",
            ]
        )
        print(
            f"{name}: validation {figures['validation_nats']:.4f} nats, test {measured.perplexity:.2f}", flush=True
        )
    headings = ["model", "test perplexity", "of the 5-gram's", "M parameters", "seconds", "tokens/s"]
    show("WikiText-2, words, context flows", headings, rows)


def _ngram(lab: Lab, data: Path) -> tuple[list[str], float]:
    """The 5-gram model's row of the table, and its perplexity."""
    recipe = recipes.find(RECIPES[0])
    texts = recipe.texts(data, lab.folder)
    began = time.perf_counter()
    lm = cr.train(
        "ngram",
        texts.train,
        tokenizer=recipe.tokenizer,
        context=recipe.context,
        order=5,
        smoothing="modified-kneser-ney",
    )
    seconds = time.perf_counter() - began
    found = cr.evaluate(lm, texts.test).perplexity
    return ["5-gram, modified Kneser-Ney", f"{found:.2f}", "", "", f"{seconds:.0f}", ""], found


def _few_lines(lab: Lab) -> Path:
    """A folder with the beginning of each text."""
    recipe = recipes.find(RECIPES[0])
    for name in map(str, (recipe.train, recipe.valid, recipe.test)):
        path = lab.folder / name
        path.parent.mkdir(exist_ok=True)
        with lab.text(name).open(encoding="utf-8") as text:
            path.write_text("".join(islice(text, 60)), encoding="utf-8")
    return lab.folder
