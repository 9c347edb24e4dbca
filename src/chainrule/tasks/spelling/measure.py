"""How good spelling correction is: on misspelled words, beside a baseline, and on text that is right.

The baseline knows neither errors nor context: of the words with the fewest edits it takes the most frequent, and it
leaves a word of the vocabulary as it is (Norvig 2007). How frequent words are it reads off their order there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from chainrule.errors import CorpusError
from chainrule.tasks.spelling.correct import Corrector


@dataclass(frozen=True)
class MisspellingsMeasured:
    """What becomes of misspelled texts, words by themselves or lines."""

    texts: int
    accuracy: float
    """The share of texts that become what is right; case does not count."""
    baseline: float
    """The same of the baseline."""
    kept: float
    """The share of texts that are left as they were typed."""
    unreachable: float
    """The share of texts with a right word that the vocabulary lacks."""
    words_per_second: float

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self)


@dataclass(frozen=True)
class CleanMeasured:
    """What becomes of text that is right."""

    words: int
    changed: int
    rate: float
    """The share of words that are changed, all of them falsely."""
    baseline: float
    """The same of the baseline."""
    unknown: float
    """The share of words that the vocabulary lacks."""
    words_per_second: float

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON."""
        return asdict(self)


def measure_misspellings(corrector: Corrector, pairs: Sequence[tuple[str, str]]) -> MisspellingsMeasured:
    """Correct each typed text of pairs (typed, right) by itself."""
    if not pairs:
        raise CorpusError("there are no misspelled words to correct")
    corrector.prepare()
    started = time.perf_counter()
    found = [one.corrected for one in corrector.correct(typed for typed, _ in pairs)]
    seconds = time.perf_counter() - started
    nearest = [_nearest(corrector, typed) for typed, _ in pairs]

    def share(texts: Sequence[str], of: int) -> float:
        same = sum(text.lower() == pair[of].lower() for text, pair in zip(texts, pairs, strict=True))
        return same / len(pairs)

    return MisspellingsMeasured(
        len(pairs),
        accuracy=share(found, 1),
        baseline=share(nearest, 1),
        kept=share(found, 0),
        unreachable=sum(corrector.lacks(right) > 0 for _, right in pairs) / len(pairs),
        words_per_second=sum(len(typed.split()) for typed, _ in pairs) / seconds,
    )


def measure_clean(corrector: Corrector, lines: Iterable[str]) -> CleanMeasured:
    """Correct lines that are right as they are."""
    words = changed = baseline = unknown = 0
    corrector.prepare()
    started = time.perf_counter()
    corrections = list(corrector.correct(lines))
    seconds = time.perf_counter() - started
    for one in corrections:
        words += len(one.original.split())
        changed += len(one.edits)
        baseline += sum(word.core != corrector.nearest(word.core) for word in corrector.words_of(one.original))
        unknown += corrector.lacks(one.original)
    if not words:
        raise CorpusError("the text to leave alone is empty")
    return CleanMeasured(words, changed, changed / words, baseline / words, unknown / words, words / seconds)


def _nearest(corrector: Corrector, text: str) -> str:
    """The text with each word as the baseline corrects it."""
    pieces, done = [], 0
    for word in corrector.words_of(text):
        pieces += [text[done : word.core_start], corrector.nearest(word.core)]
        done = word.core_start + len(word.core)
    return "".join([*pieces, text[done:]])
