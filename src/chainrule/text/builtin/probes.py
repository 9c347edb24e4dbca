"""Made texts that ask one thing of a model: to remember a word over a distance, or to tell apart two orders.

Every sentence ends in a word that an earlier word decides. The words in between are drawn at random, so that they
say nothing of it:

    gaps        the strawberry best field sunny with cream; the hair picked farmer with clippers
    order       the hair ... the strawberry ... with cream: the later of two nouns decides, and both are there
    agreement   the car near the trees behind the house breaks: the first noun decides, whatever comes between

>>> builtin_lines("builtin:gaps")[0]
'the hair picked with clippers'
>>> questions("gaps", 3)[0]
Question(prompt='the strawberry long field farmer with', right='cream', wrong='clippers', gap=3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import TypeVar

LINES = 4000
"""The sentences of a made text."""
LONGEST = 12
"""The most words between the two in a sentence of a made text."""
QUESTIONS = 40
"""The questions of each distance."""
_FILLERS = (
    *("picked", "field", "best", "farmer", "world", "sunny", "tall", "green", "by"),
    *("in", "of", "near", "market", "summer", "basket", "early", "fresh", "long"),
)
_ENDS = {"strawberry": "cream", "hair": "clippers"}
_NOUNS = ("car", "tree", "house", "dog", "road", "girl")
_VERBS = {"": "breaks", "s": "break"}
_PLACES = ("near", "behind", "beside", "above")
_One = TypeVar("_One")


@dataclass(frozen=True)
class Question:
    """The beginning of a sentence, the word that should follow, and the word that would be right in another."""

    prompt: str
    right: str
    wrong: str
    gap: int
    """The words between the one that decides and the last one of the prompt, or between a noun and its verb."""


def _gaps(gap: int, random: Random) -> Question:
    cue, other = _drawn([("strawberry", "hair"), ("hair", "strawberry")], random)
    prompt = " ".join(["the", cue, *_fillers(gap, random), "with"])
    return Question(prompt, _ENDS[cue], _ENDS[other], gap)


def _order(gap: int, random: Random) -> Question:
    cue, other = _drawn([("strawberry", "hair"), ("hair", "strawberry")], random)
    between = _fillers(int(random.random() * 3), random)
    prompt = " ".join(["the", other, *between, "the", cue, *_fillers(gap, random), "with"])
    return Question(prompt, _ENDS[cue], _ENDS[other], gap)


def _agreement(gap: int, random: Random) -> Question:
    ending, other = _drawn([("", "s"), ("s", "")], random)
    words = ["the", _drawn(_NOUNS, random) + ending]
    for _ in range(gap // 3):
        words += [_drawn(_PLACES, random), "the", _drawn(_NOUNS, random) + _drawn(("", "s"), random)]
    return Question(" ".join(words), _VERBS[ending], _VERBS[other], gap)


PROBES: dict[str, tuple[Callable[[int, Random], Question], int]] = {
    "gaps": (_gaps, 1),
    "order": (_order, 1),
    "agreement": (_agreement, 3),
}
"""By name: what makes a sentence of a gap, and by how many words gaps grow."""


def questions(name: str, gap: int, count: int = QUESTIONS) -> list[Question]:
    """Return questions of one gap, the same in every run: drawn as the sentences are, from another seed."""
    random = Random(f"questions {name} {gap}")
    return [PROBES[name][0](gap, random) for _ in range(count)]


def gaps_of(name: str, longest: int = LONGEST) -> list[int]:
    """Return the gaps of a probe up to the longest."""
    return list(range(0, longest + 1, PROBES[name][1]))


def builtin_lines(name: str) -> list[str]:
    """Return the sentences of a made text, the same in every run."""
    make, _ = PROBES[name.removeprefix("builtin:")]
    random, gaps = Random(name), gaps_of(name.removeprefix("builtin:"))
    made = (make(_drawn(gaps, random), random) for _ in range(LINES))
    return [f"{one.prompt} {one.right}" for one in made]


def _fillers(count: int, random: Random) -> list[str]:
    return [_drawn(_FILLERS, random) for _ in range(count)]


def _drawn(values: list[_One] | tuple[_One, ...], random: Random) -> _One:
    # not `choice`, whose draws may differ between versions of Python
    return values[int(random.random() * len(values))]
