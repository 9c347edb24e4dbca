"""Words that a vocabulary lacks but that its words make likely: their other forms, by endings learned from it.

If most words that end in "ing" have a form in "ed", then "embarked" is likely where there is "embarking". A rule
replaces one ending by another, and its confidence is

    p(b | a) = (stems with both endings) / (stems with the ending a)

The endings come from the vocabulary itself, so the language does not matter.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

_WORDS = 30_000  # the most frequent words, from which rules are learned and forms made
_LONGEST_ENDING, _SHORTEST_STEM = 4, 3  # letters
_LEAST_STEMS = 20  # that a rule is learned from
_LEAST_CONFIDENCE = 0.2


def likely_forms(vocabulary: Sequence[str]) -> dict[str, float]:
    """Return words that are not in a vocabulary, the most frequent word first, each with the best confidence.

    >>> words = [f"{stem}{ending}" for stem in range(100, 130) for ending in ("ed", "ing")]
    >>> likely_forms([*words, "seated"])
    {'seating': 0.967741935483871}
    """
    endings: defaultdict[str, list[str]] = defaultdict(list)
    for word in vocabulary[:_WORDS]:
        for cut in range(max(len(word) - _LONGEST_ENDING, _SHORTEST_STEM), len(word) + 1):
            endings[word[:cut]].append(word[cut:])
    stems = Counter(ending for some in endings.values() for ending in some)
    both = Counter((a, b) for some in endings.values() if len(some) > 1 for a in some for b in some if a is not b)
    rules: defaultdict[str, list[tuple[str, float]]] = defaultdict(list)
    for (a, b), count in both.items():
        if count >= _LEAST_STEMS and count >= _LEAST_CONFIDENCE * stems[a]:
            rules[a].append((b, count / stems[a]))
    known, forms = set(vocabulary), dict[str, float]()
    for stem, some in endings.items():
        for a in some:
            for b, confidence in rules.get(a, ()):
                if (form := stem + b) not in known:
                    forms[form] = max(forms.get(form, 0.0), confidence)
    return forms
