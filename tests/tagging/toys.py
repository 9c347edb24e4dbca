"""Toy sentences, and a small masked model of them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import chainrule as cr

TINY: dict[str, Any] = {
    "width": 16,
    "embedding": 8,
    "spelling": 8,
    "layers": 1,
    "batch": 64,
    "precision": "float32",
}
_NOUNS, _VERBS = ["cat", "dog", "mouse", "house"], ["sees", "likes", "hears"]


def sentences(count: int = 60, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Sentences such as the/DET cat/NOUN sees/VERB a/DET dog/NOUN."""
    draw = random.Random(seed)

    def phrase() -> list[tuple[str, str]]:
        return [(draw.choice(["the", "a"]), "DET"), (draw.choice(_NOUNS), "NOUN")]

    return [[*phrase(), (draw.choice(_VERBS), "VERB"), *phrase()] for _ in range(count)]


def tagged_by_the_last_word(count: int, seed: int = 0, *, longest: int = 6) -> list[list[tuple[str, str]]]:
    """Sentences whose words are all tagged by the last one, which only the other direction has read."""
    return [[(word, words[-1].upper()) for word in words] for words in _letters(count, seed, longest)]


def tagged_by_the_first_word(count: int, seed: int = 0, *, longest: int = 6) -> list[list[tuple[str, str]]]:
    """Sentences whose end, a question mark, is tagged by their first word: many to one."""
    every = _letters(count, seed, longest)
    return [[*((word, "O") for word in words), ("?", words[0].upper())] for words in every]


def _letters(count: int, seed: int, longest: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice("abc") for _ in range(draw.randint(2, longest))] for _ in range(count)]


def save_masked(folder: Path | str, *, width: int = 16, window: int = 8) -> None:
    """Save a masked model of the words of these sentences, which a tagger can begin from."""
    text = [" ".join(word for word, _ in one) for one in sentences()]
    sizes: Any = {"layers": 1, "width": width, "heads": 2, "window": window, "steps": 2, "batch": 64}
    cr.train("masked", text, tokenizer="bpe", **sizes).save(folder)
