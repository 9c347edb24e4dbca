"""Misspelled words corrected one by one: `python -m benchmarks spelling MISSPELLED... [options]`.

Each file has lines such as "right: typed typed ..." or "typed TAB right"; without files, it is the set of words
with which our settings were tuned. All sides read the same words: a trigram model of the corpus, with our default
settings and with keep=0 (all words are known to be wrong); Norvig's corrector with the words of the corpus; and
symspellpy, if it is installed, with the words of the corpus and with the dictionary that it brings along. Case does
not count. The time is that of words seen for the first time, without the time to read the corpus.
"""

from __future__ import annotations

import argparse
import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib.resources import files
from itertools import chain
from pathlib import Path

import chainrule as cr
from benchmarks.harness import DATA, Side, existing, exit_on_error, is_installed, new_parser, race, show
from chainrule.tasks.spelling.channel import read_misspellings
from chainrule.tasks.spelling.correct import Corrector

Correct = Callable[[Sequence[str]], list[str]]
CALLS = 5
"""Of each side for each file: one that counts right words, one to warm up, and three rounds of a race."""


def main(arguments: list[str]) -> None:
    parser = new_parser("spelling", __doc__)
    folder = DATA / "spelling"
    parser.add_argument("misspelled", nargs="*", type=Path, default=[folder / "spell-testset1.txt"])
    parser.add_argument(
        "--corpus", type=Path, default=folder / "big.txt", help="the text that all sides learn from"
    )
    with exit_on_error():
        _measure(parser.parse_args(arguments))


def _measure(options: argparse.Namespace) -> None:
    lm = cr.train("ngram", existing(options.corpus), order=3, tokenizer="word:unicode")
    counts = Counter(re.findall(r"\w+", options.corpus.read_text().lower()))
    calls = CALLS * len(options.misspelled)
    sides = {"chainrule": _ours(lm, calls), "chainrule, keep=0": _ours(lm, calls, 0), "Norvig": _norvig(counts)}
    if is_installed("symspellpy", "symspellpy"):
        sides |= {"symspellpy": _symspell(counts), "symspellpy, its own dictionary": _symspell(None)}
    for file in options.misspelled:
        pairs = read_misspellings(existing(file))
        typed = [word for word, _ in pairs]
        rows = []
        for name, correct in sides.items():
            found = correct(typed)
            right = sum(one.lower() == word.lower() for one, (_, word) in zip(found, pairs, strict=True))
            kept = sum(one.lower() == word.lower() for one, word in zip(found, typed, strict=True))
            rows.append([name, f"{right / len(pairs):.1%}", f"{kept / len(pairs):.1%}"])
        show(f"{file.name}, {len(pairs)} words", ["side", "right", "left as typed"], rows)
        race(file.name, "words", [Side(name, partial(side, typed), len(typed)) for name, side in sides.items()])


def _ours(lm: cr.LanguageModel, calls: int, keep: float | None = None) -> Correct:
    """Return our side: a corrector remembers words, so that each call takes another one that was made before."""

    ready = [Corrector(lm, keep=keep) for _ in range(calls)]
    for corrector in ready:
        corrector.prepare()
    return lambda typed: [one.corrected for one in ready.pop().correct(typed)]


def _norvig(counts: Counter[str]) -> Correct:
    """Norvig's method: the word itself if it is known, else the most frequent known word one or two edits away."""

    def edits(word: str) -> Iterator[str]:
        for i in range(len(word) + 1):
            left, right = word[:i], word[i:]
            yield from (left + letter + right for letter in string.ascii_lowercase)
            if right:
                yield left + right[1:]
                yield from (left + letter + right[1:] for letter in string.ascii_lowercase)
            if len(right) > 1:
                yield left + right[1] + right[0] + right[2:]

    def known(words: Iterator[str]) -> set[str]:
        return {word for word in words if word in counts}

    def corrected(typed: str) -> str:
        word = typed.lower()
        if word in counts:
            return word
        near = known(edits(word)) or known(chain.from_iterable(map(edits, edits(word)))) or {word}
        return max(near, key=counts.__getitem__)

    return lambda typed: [corrected(word) for word in typed]


def _symspell(counts: Counter[str] | None) -> Correct:
    """Symspellpy's best suggestion within two edits, with these words or with the dictionary of the package."""
    from symspellpy import SymSpell, Verbosity

    peer = SymSpell()
    if counts is None:
        peer.load_dictionary(str(files("symspellpy") / "frequency_dictionary_en_82_765.txt"), 0, 1)
    else:
        for word, count in counts.items():
            peer.create_dictionary_entry(word, count)
    return lambda typed: [
        peer.lookup(word.lower(), Verbosity.TOP, 2, include_unknown=True)[0].term for word in typed
    ]
