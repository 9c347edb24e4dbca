"""Modified Kneser-Ney is KenLM's, n-gram by n-gram: `lmplz` wrote the golden files (data/make_text.py says how)."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.ngram.ngram_model import NgramModel
from chainrule.system import parallel

DATA = Path(__file__).parent / "data"

Arpa = dict[tuple[str, ...], tuple[float, float]]


def read_arpa(path: Path) -> Arpa:
    """log10 p and log10 backoff of each n-gram."""
    entries: Arpa = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) > 1:
            entries[tuple(fields[1].split(" "))] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
    return entries


def entries_of(lm: NgramModel) -> Arpa:
    """The same of a model of ours."""
    automaton, entries = lm.automaton, {}
    trie, firsts = automaton.trie, automaton.trie.first_of_length
    for n in range(1, trie.order + 1):
        nodes = np.arange(firsts[n], firsts[n + 1])
        probs = automaton.log_prob.at(nodes - 1, n - 1)
        backoffs = automaton.log_backoff.at(nodes - 1, n - 1) if n < trie.order else np.zeros(len(nodes))
        for codes, prob, backoff in zip(trie.ngrams(firsts[n], firsts[n + 1], n), probs, backoffs, strict=True):
            words = tuple(lm.tokenizer.token(int(automaton.words[code])) for code in codes)
            entries[words] = float(prob) / math.log(10), float(backoff) / math.log(10)
    return entries


@pytest.mark.parametrize("kernel", [False, True], ids=["small", "kernel"])
@pytest.mark.parametrize(
    ("golden", "lines", "settings"),
    [
        ("trigram", None, {"order": 3}),
        ("pruned", None, {"order": 3, "prune": "0,0,1"}),
        ("fivegram", 40, {"order": 5}),
    ],
)
def test_every_ngram_has_the_probability_and_backoff_of_lmplz(
    golden: str, lines: int | None, settings: dict[str, Any], kernel: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kernel:
        monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    text = "".join((DATA / "text.txt").read_text(encoding="utf-8").splitlines(keepends=True)[:lines])
    assert text.endswith("\n")
    lm = cr.train(
        "ngram",
        cr.Corpus.from_text(text),
        smoothing="modified-kneser-ney",
        **settings,
        tokenizer="word",
        context="line",
    )
    assert isinstance(lm, NgramModel)
    ours, theirs = entries_of(lm), read_arpa(DATA / f"{golden}.arpa")
    assert ours.keys() == theirs.keys()
    assert ours[("<s>",)][0] == -math.inf  # lmplz writes 0: a matter of taste, for nobody predicts it
    ours[("<s>",)] = (theirs[("<s>",)][0], ours[("<s>",)][1])
    keys = sorted(theirs)
    np.testing.assert_allclose([ours[key] for key in keys], [theirs[key] for key in keys], atol=1e-5, rtol=0)


def test_the_mass_of_an_unknown_word_is_explicit() -> None:
    """p(<unk>) after a word that never occurred is the mass that the unigrams leave, divided by V, as in lmplz."""
    text = "".join((DATA / "text.txt").read_text(encoding="utf-8").splitlines(keepends=True)[:40])
    lm = cr.train("ngram", cr.Corpus.from_text(text), order=5, tokenizer="word")
    assert isinstance(lm, NgramModel)
    after_nothing = np.exp(lm.next_log_probs(lm.extend(lm.start(1), np.asarray([[lm.tokenizer.unk]])))[0])
    expected = 10 ** read_arpa(DATA / "fivegram.arpa")[("<unk>",)][0]
    assert math.isclose(after_nothing[lm.tokenizer.unk], expected, rel_tol=1e-5)
    assert math.isclose(after_nothing.sum(), 1.0, abs_tol=1e-5)
