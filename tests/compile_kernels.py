"""Compile the kernels of n-gram models once, before several processes run tests: they find them on disk.

Each part uses models as tests do, on little text, and takes compiled code for every step of it. Two processes share
the parts. What they leave out is compiled by the first test that needs it.
"""

from __future__ import annotations

import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import chainrule as cr
from chainrule.system import parallel

TEXT = "the cat sat on the mat\nthe dog saw the cat\n\na bird sang in the tree\nthe cat ran\n" * 40
STRATEGIES = (
    cr.Greedy(),
    cr.Sample(),
    cr.Temperature(0.8) | cr.TopK(5),
    cr.TopP(0.9),
    cr.MinP(0.05),
    cr.RepetitionPenalty(1.3) | cr.TopP(0.9),
    cr.FrequencyPenalty(0.5) | cr.PresencePenalty(0.2),
)


def estimation() -> None:
    """Count, smooth, store, score, correct; read and write ARPA."""
    text = cr.Corpus.from_text(TEXT)
    for settings in ({}, {"bits": 8}, {"index": "hash"}, {"smoothing": "katz"}, {"prune": "0,1"}):
        lm = cr.train("ngram", text, order=3, **settings, tokenizer="word")
        lm.perplexity(TEXT)
        cr.score(lm, TEXT.splitlines())
        cr.suggest(lm, "the c")
    cr.tasks.correct(lm, ["teh cat sat"])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.arpa"
        cr.save_arpa(cr.train("ngram", text, order=3, tokenizer="word"), path)
        cr.load_arpa(path).perplexity(TEXT)


def sampling() -> None:
    """Sample by every strategy, search, and draft."""
    _write(cr.train("ngram", cr.Corpus.from_text(TEXT), order=3, tokenizer="word"))


def any_length() -> None:
    """The same by a model without a bound on the length of n-grams."""
    lm = cr.train("anygram", cr.Corpus.from_text(TEXT), tokenizer="word")
    lm.perplexity(TEXT)
    _write(lm)


def _write(lm: cr.LanguageModel) -> None:
    for strategy in STRATEGIES:
        cr.generate_many(lm, ["the", "a"], strategy, max_tokens=40)
        cr.generate(lm, "the", strategy, max_tokens=40)
    for best in (1, 3):
        cr.generate_many(lm, ["the", "a"], cr.Beam(3), n=best, max_tokens=20)
    cr.generate(lm, "the", cr.Greedy(), max_tokens=8, draft=lm)


def compile_part(name: str) -> tuple[str, float]:
    """Run one part, which compiles its kernels; return its seconds."""
    parallel.SLOW_NANOSECONDS = 0
    began = time.perf_counter()
    globals()[name]()
    return name, time.perf_counter() - began


if __name__ == "__main__":
    np.seterr(all="ignore")
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        for part, seconds in pool.map(compile_part, ("sampling", "estimation", "any_length")):
            print(f"{part}: {seconds:.0f} s", flush=True)
