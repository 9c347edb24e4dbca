"""How much texts repeat themselves and how much they vary: distinct n-grams, repeated n-grams, self-BLEU."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from chainrule.errors import MissingExtraError


@dataclass(frozen=True)
class Variety:
    """How much some texts repeat and vary; of more words more is repeated."""

    words: int
    repeated_4grams: float
    """The share of the 4-grams of words that stand earlier in these texts."""
    distinct_2: float
    """The number of different bigrams of words over that of all bigrams."""
    distinct_1: float
    """The number of different words over that of all words."""
    loops: float
    """The share of the 4-grams of words that stand earlier in the same text."""


def variety_of(texts: Iterable[str]) -> Variety:
    """Return how much texts repeat and vary; their n-grams are counted together, and none spans two texts.

    >>> found = variety_of(["a b c d e", "a b c d"])  # 4-grams: abcd, bcde and abcd again
    >>> found.words, round(found.repeated_4grams, 3), round(found.distinct_2, 3), found.loops
    (9, 0.333, 0.571, 0.0)
    """
    words = [text.split() for text in texts]

    def grams(n: int) -> list[list[tuple[str, ...]]]:
        return [[tuple(one[i : i + n]) for i in range(len(one) - n + 1)] for one in words]

    def distinct(n: int) -> float:
        every = [gram for text in grams(n) for gram in text]
        return len(set(every)) / len(every) if every else 1.0

    of_4 = grams(4)
    loops = sum(len(text) - len(set(text)) for text in of_4) / max(1, sum(map(len, of_4)))
    return Variety(sum(map(len, words)), 1 - distinct(4), distinct(2), distinct(1), loops)


def self_bleu(texts: Sequence[str]) -> float | None:
    """Return BLEU of each text with all others as its references, 0 to 100: how alike the texts are.

    It is that of the corpus (sacrebleu): n-grams of all texts are counted together. None for fewer than two texts.

    >>> same = "the cat sat on the mat"
    >>> round(self_bleu([same, same])), round(self_bleu([same, "we went home by train at night"]))
    (100, 0)
    """
    if len(texts) < 2:
        return None
    try:
        from sacrebleu.metrics.bleu import BLEU
    except ImportError:
        raise MissingExtraError("sacrebleu", "translation", "self-BLEU") from None
    # each further list has, for each text, another of the others
    others = [[*texts[shift:], *texts[:shift]] for shift in range(1, len(texts))]
    return float(BLEU().corpus_score(list(texts), others).score)
