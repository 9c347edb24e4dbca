"""Made texts that ask one thing of a model: to remember a word, to tell apart two orders, to learn from a prompt.

Every sentence ends in a word that an earlier word decides. The words in between are drawn at random, so that they
say nothing of it:

    gaps        the strawberry best field sunny with cream; the hair picked farmer with clippers
    order       the hair ... the strawberry ... with cream: the later of two nouns decides, and both are there
    agreement   the car near the trees behind the house breaks: the first noun decides, whatever comes between
    shots       cat wug hen dax cat wug hen dax: what two animals are called differs from sentence to sentence, and
                some ways to call them are in no sentence, only in questions

>>> builtin_lines("builtin:gaps")[0]
'the hair picked with clippers'
>>> questions("gaps", 3)[0]
Question(prompt='the strawberry long field farmer with', right='cream', wrong='clippers', gap=3)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import combinations, product
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
_ANIMALS = ("cat", "dog", "cow", "pig", "hen", "fox", "bee", "ant", "owl", "rat")
_NAMES = ("wug", "dax")
_NEW = 7
"""One in so many ways to call two animals is kept for questions."""
_One = TypeVar("_One")


@dataclass(frozen=True)
class Question:
    """The beginning of a sentence, the word that should follow, and the word that would be right in another."""

    prompt: str
    right: str
    wrong: str
    gap: int
    """The words between the one that decides and the last one of the prompt, or between a noun and its verb.

    Of shots, the examples in the prompt.
    """


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


def _shots(shots: int, random: Random, *, new: bool = False) -> Question:
    names = dict(_drawn([one for i, one in enumerate(_CALLED) if (i % _NEW == 0) is new], random))
    *before, asked = (_drawn([*names], random) for _ in range(shots + 1))
    right = names[asked]
    prompt = " ".join([*(f"{animal} {names[animal]}" for animal in before), asked])
    return Question(prompt, right, _NAMES[right == _NAMES[0]], shots)


_CALLED = [
    [*zip(pair, names, strict=True)] for pair in combinations(_ANIMALS, 2) for names in product(_NAMES, repeat=2)
]
"""Every way to call two animals."""


@dataclass(frozen=True)
class Probe:
    """The source of the sentences of a made text, and of its questions."""

    make: Callable[[int, Random], Question]
    """Makes a sentence of a gap."""
    step: int = 1
    """By how many words gaps grow."""
    counts: str = "words between"
    """What a gap counts."""
    ask: Callable[[int, Random], Question] | None = None
    """Makes a question, where questions have other sources than sentences."""


PROBES = {
    "gaps": Probe(_gaps),
    "order": Probe(_order),
    "agreement": Probe(_agreement, step=3),
    "shots": Probe(_shots, counts="examples before", ask=partial(_shots, new=True)),
}
"""By name."""


def questions(name: str, gap: int, count: int = QUESTIONS) -> list[Question]:
    """Return questions of one gap, the same in every run: drawn as the sentences are, from another seed."""
    random, probe = Random(f"questions {name} {gap}"), PROBES[name]
    return [(probe.ask or probe.make)(gap, random) for _ in range(count)]


def gaps_of(name: str, longest: int = LONGEST) -> list[int]:
    """Return the gaps of a probe up to the longest."""
    return list(range(0, longest + 1, PROBES[name].step))


def builtin_lines(name: str) -> list[str]:
    """Return the sentences of a made text, the same in every run."""
    make = PROBES[name.removeprefix("builtin:")].make
    random, gaps = Random(name), gaps_of(name.removeprefix("builtin:"))
    made = (make(_drawn(gaps, random), random) for _ in range(LINES))
    return [f"{one.prompt} {one.right}" for one in made]


def _fillers(count: int, random: Random) -> list[str]:
    return [_drawn(_FILLERS, random) for _ in range(count)]


def _drawn(values: list[_One] | tuple[_One, ...], random: Random) -> _One:
    # not `choice`, whose draws may differ between versions of Python
    return values[int(random.random() * len(values))]
