"""The recipes for WikiText-2, each in at most nine minutes, beside our own 5-gram model of the same tokens."""

from __future__ import annotations

import time
from itertools import islice
from pathlib import Path
from typing import Any

import recipes

import chainrule as cr
from benchmarks.harness import show
from benchmarks.neural.lab import Lab

RECIPES = [name for name in recipes.names() if name.startswith("wikitext2_")]
MINUTES = 9.0
SMALL = {"embedding": 8, "hidden": 16, "batch": 64, "length": 8}
SMALL_TRANSFORMER = {"layers": 1, "width": 16, "heads": 2, "window": 16, "batch": 64}


def run(lab: Lab) -> None:
    data = _few_lines(lab) if lab.small else lab.data
    ngram_row, ngram = _ngram(lab, data)
    rows = [ngram_row]
    for name in lab.options.recipe or RECIPES:
        recipe = recipes.find(name)
        minutes = min(MINUTES, recipe.settings.get("minutes", MINUTES))
        sizes = SMALL if "embedding" in recipe.settings else SMALL_TRANSFORMER
        small = {**sizes, "minutes": 0.01, "steps": 4}
        settings = {"minutes": minutes, **lab.pick({}, small), **lab.settings}
        lm, measured = recipes.run(recipe, data, device=lab.device, settings=settings)
        figures = lm.metrics
        row = [
            f"{measured.perplexity:.2f}",
            f"{measured.perplexity / ngram:.2f}",
            f"{figures['parameters'] / 1e6:.1f}",
            f"{figures['training_seconds']:.0f}",
            f"{figures['tokens_per_second_in_training']:,.0f}",
        ]
        rows.append([name.removeprefix("wikitext2_"), *row])
        print(f"{name}: validation {figures['validation_nats']:.4f} nats, test {row[0]}", flush=True)
    headings = ["model", "test perplexity", "of the 5-gram's", "M parameters", "seconds", "tokens/s"]
    show("WikiText-2, words, context flows", headings, rows)


def _ngram(lab: Lab, data: Path) -> tuple[list[str], float]:
    """Return the row of the 5-gram model, and its perplexity."""
    recipe = recipes.find(RECIPES[0])
    texts = recipe.texts(data, lab.folder)
    began = time.perf_counter()
    same: dict[str, Any] = {"tokenizer": recipe.tokenizer, "context": recipe.context}
    lm = cr.train("ngram", texts.train, order=5, smoothing="modified-kneser-ney", **same)
    seconds = time.perf_counter() - began
    found = cr.evaluate(lm, texts.test).perplexity
    return ["5-gram, modified Kneser-Ney", f"{found:.2f}", "", "", f"{seconds:.0f}", ""], found


def _few_lines(lab: Lab) -> Path:
    """Write the first lines of each text to a folder."""
    recipe = recipes.find(RECIPES[0])
    for name in map(str, (recipe.train, recipe.valid, recipe.test)):
        path = lab.folder / name
        path.parent.mkdir(exist_ok=True)
        with lab.text(name).open(encoding="utf-8") as text:
            path.write_text("".join(islice(text, 60)), encoding="utf-8")
    return lab.folder
