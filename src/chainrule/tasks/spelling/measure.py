"""The quality of spelling correction: on misspelled words, beside a baseline, and on text without errors.

The baseline knows neither the probabilities of errors nor the context: it leaves a word of the vocabulary as it is,
and corrects others to the most frequent of the words with the fewest edits (Norvig 2007).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chainrule.errors import CorpusError
from chainrule.system.display import PlainResult
from chainrule.tasks.spelling.correct import Corrector
from chainrule.tasks.spelling.words import replaced


@dataclass(frozen=True)
class MisspellingsMeasured(PlainResult):
    """How many misspelled texts, single words or lines, are corrected."""

    texts: int
    accuracy: float
    """The share of texts that are corrected to the right text; case does not count."""
    baseline: float
    """The same share for the baseline."""
    kept: float
    """The share of texts that are left as they were typed."""
    unreachable: float
    """The share of texts with a right word that the vocabulary lacks."""
    precision: float
    """The share of changed words that are right then."""
    recall: float
    """The share of wrong words that become right."""
    spoiled: float
    """The share of right words that are changed."""
    words_per_second: float

    @property
    def shares(self) -> tuple[float, float, float, float]:
        """The shares that a table shows."""
        return self.accuracy, self.kept, self.precision, self.recall


@dataclass(frozen=True)
class CleanMeasured(PlainResult):
    """How many words of a text without errors are changed."""

    words: int
    changed: int
    rate: float
    """The share of words that are changed, all of them wrongly."""
    baseline: float
    """The same share for the baseline."""
    unknown: float
    """The share of words that the vocabulary lacks."""
    words_per_second: float


def measure_misspellings(corrector: Corrector, pairs: Sequence[tuple[str, str]]) -> MisspellingsMeasured:
    """Correct each typed text of pairs (typed, right) by itself."""
    if not pairs:
        raise CorpusError("there are no misspelled words to correct")
    words_of = corrector.words_of
    corrector.prepare()
    started = time.perf_counter()
    found = [one.corrected for one in corrector.correct(typed for typed, _ in pairs)]
    seconds = time.perf_counter() - started
    by_baseline = corrector.nearest(word.core for typed, _ in pairs for word in words_of(typed))
    nearest = [
        replaced(typed, ((word.core_start, word.core_end, by_baseline[word.core]) for word in words_of(typed)))
        for typed, _ in pairs
    ]

    def share(texts: Sequence[str], of: int) -> float:
        same = sum(text.lower() == pair[of].lower() for text, pair in zip(texts, pairs, strict=True))
        return same / len(pairs)

    # words are compared where the texts have as many: the right one, the typed one, the one that was found
    triples = [
        words
        for (typed, right), one in zip(pairs, found, strict=True)
        if len(right.split()) == len(typed.split()) == len(one.split())
        for words in zip(right.lower().split(), typed.lower().split(), one.lower().split(), strict=True)
    ]
    wrong = [(right, one) for right, typed, one in triples if typed != right]
    changed = [(right, one) for right, typed, one in triples if one != typed]
    mended = sum(right == one for right, one in wrong)
    spoiled = sum(one != typed == right for right, typed, one in triples)

    return MisspellingsMeasured(
        len(pairs),
        accuracy=share(found, 1),
        baseline=share(nearest, 1),
        kept=share(found, 0),
        unreachable=sum(corrector.lacks(right) > 0 for _, right in pairs) / len(pairs),
        precision=mended / max(1, len(changed)),
        recall=mended / max(1, len(wrong)),
        spoiled=spoiled / max(1, len(triples) - len(wrong)),
        words_per_second=sum(len(typed.split()) for typed, _ in pairs) / seconds,
    )


def measure_clean(corrector: Corrector, lines: Iterable[str]) -> CleanMeasured:
    """Correct lines that have no errors."""
    corrector.prepare()
    started = time.perf_counter()
    corrections = list(corrector.correct(lines))
    seconds = time.perf_counter() - started
    words = sum(len(one.original.split()) for one in corrections)
    if not words:
        raise CorpusError("the text to leave alone is empty")
    changed = sum(len(one.edits) for one in corrections)
    cores = [word.core for one in corrections for word in corrector.words_of(one.original)]
    by_baseline = corrector.nearest(cores)
    baseline = sum(core != by_baseline[core] for core in cores)
    unknown = sum(corrector.lacks(one.original) for one in corrections)
    return CleanMeasured(words, changed, changed / words, baseline / words, unknown / words, words / seconds)
