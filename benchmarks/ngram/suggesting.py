"""Suggestions while someone writes: milliseconds of `chainrule.suggest` for texts that stop anywhere.

The first call of a model does not count: it loads kernels. The suggestions are compared with those of the plain
way, which computes ln p of every token by NumPy.
"""

from __future__ import annotations

import statistics

import numpy as np

import chainrule as cr
from benchmarks.harness import show, timed
from benchmarks.ngram.lab import ORDER, Lab
from chainrule.arrays import Array
from chainrule.contract.lm import LanguageModel, State
from chainrule.decode import suggest as suggesting
from chainrule.ngram.ngram_model import NgramModel, NgramState

CALLS, MOST = 15, 5.0
SAME = 1e-4
"""The largest relative difference of probabilities that counts as none."""
LONG = "The city has about two hundred thousand people and is the largest of the region . " * 12
TEXTS = {
    "nothing": "",
    "a letter": "T",
    "inside a word": "The capital of Fr",
    "inside a rare word": "In 1987 the Zoroas",
    "inside a number": "In 19",
    "after a word": "The capital of France",
    "after a long word": "the internationalization of",
    "after a comma": "However,",
    "after a space": "The capital of France ",
    "letters never seen": "He said qxzj",
    "not ASCII": "Beyonc\u00e9 gew",
    "long, inside a word": LONG + "It was fou",
    "long, after a space": LONG + "It was ",
}
CHOICES = {
    "words, 100,000": cr.TokenizerChoice("word", vocab_size=100_000),
    "BPE, 8,192": cr.TokenizerChoice("bpe", vocab_size=8192),
    "characters": cr.TokenizerChoice("char"),
}


class Plain(LanguageModel):
    """An n-gram model without its fast paths."""

    def __init__(self, inner: NgramModel) -> None:
        self.inner, self.tokenizer, self.context = inner, inner.tokenizer, inner.context

    def tensors(self) -> dict[str, np.ndarray]:
        return self.inner.tensors()

    def on(self, device: str, dtype: str = "float32") -> Plain:
        return Plain(self.inner.on(device, dtype))

    def start(self, batch_size: int) -> State:
        return self.inner.start(batch_size)

    def extend(self, state: State, ids_BT: Array) -> State:
        return self.inner.extend(state, ids_BT)

    def next_log_probs(self, state: State) -> Array:
        assert isinstance(state, NgramState)
        return self.inner.automaton.next_slowly(state.words)

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return self.inner.score(ids_BT, state)


def run(lab: Lab) -> None:
    corpus = cr.Corpus.open(str(lab.text))
    for name, choice in CHOICES.items():
        lm = cr.train("ngram", corpus, order=ORDER, tokenizer=choice)
        assert isinstance(lm, NgramModel)
        cr.suggest(lm, "The")
        rows = [[text, *_figures(lm, TEXTS[text])] for text in TEXTS]
        title = f"{name}, vocabulary {lm.tokenizer.vocab_size:,}, order {ORDER}: ms of {CALLS} calls"
        show(title, ["text", "first", "median", "worst", "CPU, median", "first word", ""], rows)


def _figures(lm: NgramModel, text: str) -> list[str]:
    """Return milliseconds of the first call and of the median and the worst other call, and a note of faults."""
    first, *others = (timed(lambda: cr.suggest(lm, text)) for _ in range(1 + CALLS))
    seconds = [took.seconds for took in others]
    middle, found = 1000 * statistics.median(took.cpu for took in others), cr.suggest(lm, text)
    note = "" if same(found, cr.suggest(Plain(lm), text)) else "NOT THE SAME"
    note += f" above {MOST:.0f} ms" if middle > MOST else ""
    figures = (1000 * each for each in (first.seconds, statistics.median(seconds), max(seconds)))
    return [*(f"{figure:.2f}" for figure in (*figures, middle)), found[0].word if found else "", note.strip()]


def same(ours: list[suggesting.Suggestion], theirs: list[suggesting.Suggestion]) -> bool:
    """Return True if two lists have the same probabilities and, ties apart, the same words."""
    if len(ours) != len(theirs):
        return False
    least = max((s.probability for s in theirs[-1:]), default=0.0) * (1 + SAME)
    words = [{s.word for s in found if s.probability > least} for found in (ours, theirs)]
    probabilities = [[s.probability for s in found] for found in (ours, theirs)]
    return words[0] == words[1] and np.allclose(*probabilities, rtol=SAME, atol=0)
