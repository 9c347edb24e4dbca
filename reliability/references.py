"""Numbers beside those of other programs: KenLM, NLTK, transformers (architectures.py), tiktoken, sacrebleu.

Golden files of KenLM stand in tests/ngram/data. Sentences are generated and scored by the textbook's recursion over
KenLM's own file; the other peers have tests, which this row runs and counts.
"""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from random import Random

import numpy as np

import chainrule as cr

from .architectures import DESIGNS, compare
from .frame import Trial
from .tested import ROOT, run_tests

TESTS = [
    "tests/ngram/test_kenlm.py",
    "tests/ngram/test_smooth.py",
    "tests/tokens/test_subword.py",
    "tests/tokens/test_merges.py",
    "tests/interop/test_huggingface.py",
    "tests/interop/test_bart.py",
    "tests/interop/test_bert.py",
    "tests/interop/test_weights.py",
    "tests/interop/test_vocabularies.py",
    "tests/seq2seq/test_translate.py",
]
DATA = ROOT / "tests" / "ngram" / "data"
KENLM, NLTK = "KenLM, sentences", "NLTK, next words"
TOLERANCE = 1e-4
"""log10 p of a sentence may differ by so much for each token: the golden file has six digits."""


def run(trial: Trial) -> None:
    """Score `count` sentences beside KenLM's file, as many words beside NLTK, and run the tests of other peers.

    A tenth as many prompts go to each architecture; a small run, in which transformers would take most of the time,
    leaves them out.
    """
    names = trial.chosen([KENLM, NLTK] if trial.small and not trial.only else [KENLM, NLTK, *DESIGNS, *TESTS])
    for name in names[trial.part :: trial.parts]:
        peer = {KENLM: None, NLTK: "nltk"}.get(name, "transformers" if name in DESIGNS else None)
        if peer and importlib.util.find_spec(peer) is None:
            trial.left_out[name] = f"{peer} is not installed"
        elif name == KENLM:
            _kenlm(trial)
        elif name == NLTK:
            _nltk(trial)
        elif name in DESIGNS:
            compare(trial, name, trial.count // 10)
        else:
            run_tests(trial, [name])


Entries = dict[tuple[str, ...], tuple[float, float]]


def _kenlm(trial: Trial) -> None:
    text = (DATA / "text.txt").read_text(encoding="utf-8")
    lm = cr.train(
        "ngram",
        cr.Corpus.from_text(text),
        order=3,
        smoothing="modified-kneser-ney",
        tokenizer="word",
        context="line",
    )
    entries = _entries(DATA / "trigram.arpa")
    words = sorted({word for ngram in entries for word in ngram} - {"<s>", "</s>", "<unk>"})
    for _ in range(trial.count):
        if trial.is_over:
            return
        sentence = _sentence(trial.random, words, text)
        ours = lm.log_prob(" ".join(sentence)) / math.log(10)
        theirs = _log10_prob(entries, sentence, 3)
        problem = f"{ours} and {theirs} for {' '.join(sentence)!r}"
        trial.note(KENLM, None if abs(ours - theirs) < TOLERANCE * (len(sentence) + 1) else problem)


def _sentence(random: Random, words: list[str], text: str) -> list[str]:
    """A stretch of the text, and then words of the vocabulary and one that the model does not know."""
    known = text.split()
    place = random.randrange(len(known))
    stretch = known[place : place + random.randrange(6)]
    return [*stretch, *random.choices([*words, "zzyzx"], k=random.randrange(1, 8))]


def _entries(path: Path) -> Entries:
    found: Entries = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        fields = line.split("\t")
        if len(fields) > 1:
            found[tuple(fields[1].split(" "))] = (float(fields[0]), float(fields[2]) if len(fields) > 2 else 0.0)
    return found


def _log10_prob(entries: Entries, sentence: list[str], order: int) -> float:
    """log10 p of a sentence by definition: the longest n-gram that is there, and backoffs of longer contexts."""
    words = ["<s>", *(word if (word,) in entries else "<unk>" for word in sentence), "</s>"]
    total = 0.0
    for place in range(1, len(words)):
        for first in range(max(0, place - order + 1), place + 1):
            if (ngram := tuple(words[first : place + 1])) in entries:
                total += entries[ngram][0]
                break
            total += entries.get(tuple(words[first:place]), (0.0, 0.0))[1]
    return total


def _nltk(trial: Trial) -> None:
    """Relative frequencies after one and two words; NLTK's other methods count <s> among the words."""
    from nltk.lm import MLE
    from nltk.lm.preprocessing import padded_everygram_pipeline

    words = ["a", "b", "c", "d", "e", "f"]
    for number in range(max(1, trial.count // 100)):
        if trial.is_over:
            return
        lines = [trial.random.choices(words, k=trial.random.randrange(1, 7)) for _ in range(20)]
        order, theirs = 2 + number % 2, MLE(2 + number % 2)
        theirs.fit(*padded_everygram_pipeline(order, lines))
        lm = cr.train("ngram", [" ".join(line) for line in lines], order=order, smoothing="mle", tokenizer="word")
        for line in lines:
            if len(line) < order:
                continue
            place = trial.random.randrange(len(line) - order + 1)
            *context, word = [*line[place : place + order - 1], trial.random.choice(words)]
            ours, expected = math.exp(_last(lm, [*context, word])), theirs.score(word, context)
            is_close = math.isclose(ours, expected, rel_tol=1e-5, abs_tol=1e-12)
            trial.note(NLTK, None if is_close else f"{ours} and {expected} for {word!r} after {context}")


def _last(lm: cr.LanguageModel, words: list[str]) -> float:
    """ln p of the last of these words after the others, which need not begin a line."""
    ids = [int(lm.tokenizer.encode(word)[0]) for word in words]
    state = lm.extend(lm.start(1), np.asarray([[int(lm.tokenizer.encode("a")[0]), *ids[:-1]]]))
    return float(cr.to_numpy(lm.next_log_probs(state))[0, ids[-1]])
