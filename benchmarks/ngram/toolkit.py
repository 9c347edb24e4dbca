"""Interpolated Kneser-Ney of order 3, beside NLTK's, on as little text as NLTK can take."""

from __future__ import annotations

import importlib.util
from itertools import islice

import chainrule as cr
from benchmarks.harness import Side, race
from benchmarks.ngram.lab import Lab

ORDER = 3
LINES = 1_000
TOKENS = 40
"""As many as NLTK scores in a few seconds; we score all of the held-out text."""


def run(lab: Lab) -> None:
    if importlib.util.find_spec("nltk") is None:
        print("NLTK is left out: it is not installed (the extra `benchmarks` has it)", flush=True)
        return
    from nltk.lm import KneserNeyInterpolated
    from nltk.lm.preprocessing import pad_both_ends, padded_everygram_pipeline
    from nltk.util import ngrams

    with lab.text.open(encoding="utf-8") as file:
        lines = list(islice(file, LINES))
    split = [line.split() for line in lines]
    corpus, held_out = cr.Corpus.from_text("".join(lines)), lab.held_out.read_text(encoding="utf-8")
    words = sum(map(len, split)) + len(split)

    def by_us() -> cr.LanguageModel:
        return cr.train("ngram", corpus, order=ORDER, smoothing="kneser-ney")

    def by_nltk() -> KneserNeyInterpolated:
        model = KneserNeyInterpolated(ORDER)
        model.fit(*padded_everygram_pipeline(ORDER, split))
        return model

    title = f"Kneser-Ney of order {ORDER}, {words:,} tokens of text:"
    race(f"{title} training", "tokens", [Side("chainrule", by_us, words), Side("NLTK", by_nltk, words)])
    ours, theirs = by_us(), by_nltk()
    tokens = len(ours.surprisals(held_out))
    trigrams = [g for line in held_out.split("\n") for g in ngrams(pad_both_ends(line.split(), ORDER), ORDER)][
        :TOKENS
    ]
    race(
        f"{title} scoring",
        "tokens",
        [
            Side("chainrule", lambda: ours.surprisals(held_out), tokens),
            Side("NLTK", lambda: [theirs.score(g[-1], g[:-1]) for g in trigrams], TOKENS),
        ],
    )
