"""Interpolated Kneser-Ney of order 3 beside NLTK's, on as little text as NLTK can take."""

from __future__ import annotations

from itertools import islice
from typing import Any

import chainrule as cr
from benchmarks.harness import Side, is_installed, race
from benchmarks.ngram.lab import Lab

ORDER = 3
LINES = 1_000
TOKENS = 40
"""As many as NLTK scores in a few seconds; ours scores all of the held-out text."""


def first_lines(lab: Lab) -> list[str]:
    """Return the lines that NLTK is trained on."""
    with lab.text.open(encoding="utf-8") as file:
        return list(islice(file, LINES))


def train_nltk(lines: list[str]) -> Any:
    """Train a model of NLTK."""
    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import padded_everygram_pipeline

    model = KneserNeyInterpolated(ORDER)
    model.fit(*padded_everygram_pipeline(ORDER, [line.split() for line in lines]))
    return model


def run(lab: Lab) -> None:
    if not is_installed("NLTK", "nltk", extra="benchmarks"):
        return
    from nltk.lm.preprocessing import pad_both_ends
    from nltk.util import ngrams

    lines = first_lines(lab)
    corpus, held_out = cr.Corpus.from_text("".join(lines)), lab.held_out.read_text(encoding="utf-8")
    words = sum(len(line.split()) + 1 for line in lines)

    def train_ours() -> cr.LanguageModel:
        return cr.train("ngram", corpus, order=ORDER, smoothing="kneser-ney", tokenizer="word", context="line")

    title = f"Kneser-Ney of order {ORDER}, {words:,} tokens of text:"
    sides = [Side("chainrule", train_ours, words), Side("NLTK", lambda: train_nltk(lines), words)]
    race(f"{title} training", "tokens", sides)
    ours, theirs = train_ours(), train_nltk(lines)
    trigrams = [g for line in held_out.split("\n") for g in ngrams(pad_both_ends(line.split(), ORDER), ORDER)]
    sides = [
        Side("chainrule", lambda: ours.surprisals(held_out), len(ours.surprisals(held_out))),
        Side("NLTK", lambda: [theirs.score(g[-1], g[:-1]) for g in trigrams[:TOKENS]], TOKENS),
    ]
    race(f"{title} scoring", "tokens", sides)
