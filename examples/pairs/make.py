"""Pairs to summarise, to answer and to converse with; the same in every run.

python make.py FOLDER writes, for each task, pairs to learn from and pairs to measure on (.jsonl), and for questions
and dialogue the text that a model is first trained on.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path

import chainrule as cr

TOWNS = [
    "Aldby",
    "Birkholm",
    "Carvin",
    "Dunmore",
    "Elsted",
    "Farley",
    "Grafton",
    "Holme",
    "Ilford",
    "Jarrow",
    "Kelso",
    "Lindow",
    "Marlow",
    "Norby",
]
THINGS = {"fire": "broke out in", "flood": "reached", "theft": "was reported from", "storm": "damaged"}
PLACES = ["warehouse", "school", "station", "library", "bakery", "harbour", "museum", "hospital"]
NUMBERS = ["two", "three", "four", "five", "six", "seven", "eight", "nine"]
ASIDES = [
    "The cause is not known yet.",
    "The police have closed the road.",
    "Neighbours heard a loud noise before.",
    "The mayor thanked everybody who had helped.",
    "It is the second time this year.",
    "Work may begin again next week.",
]

FIRST = [
    "Ada",
    "Bruno",
    "Clara",
    "David",
    "Elena",
    "Felix",
    "Greta",
    "Hugo",
    "Ines",
    "Jonas",
    "Karin",
    "Leo",
    "Mira",
    "Nils",
    "Olga",
    "Paul",
]
LAST = ["Berg", "Costa", "Duarte", "Ekman", "Fischer"]
FACTS = {  # what is said of a person, and asked
    "home": (
        ["Lisbon", "Oslo", "Vienna", "Dublin", "Prague", "Athens", "Riga", "Turin"],
        "lives in",
        "Where does {} live?",
    ),
    "work": (
        ["painter", "baker", "doctor", "pilot", "teacher", "judge", "sailor", "tailor"],
        "works as a",
        "What is the job of {}?",
    ),
    "play": (
        ["chess", "tennis", "piano", "golf", "violin", "cards", "rugby", "drums"],
        "likes to play",
        "What does {} play?",
    ),
}


def reports(draw: random.Random, count: int) -> Iterator[tuple[str, str]]:
    """Yield reports of a few sentences with their headlines."""
    for _ in range(count):
        thing, place, town, hurt = (draw.choice(one) for one in ([*THINGS], PLACES, TOWNS, NUMBERS))
        when = draw.choice(["On Monday morning", "Late on Tuesday", "In the night", "Yesterday"])
        sentences = [
            f"{when} a {thing} {THINGS[thing]} the {place} of {town}.",
            draw.choice([f"The doctors treated {hurt} people.", f"Of those inside, {hurt} people were hurt."]),
            *draw.sample(ASIDES, draw.randint(1, 3)),
        ]
        if draw.random() < 0.3:  # the news does not always come first
            sentences.insert(0, sentences.pop())
        yield " ".join(sentences), f"{thing.capitalize()} at {town} {place} hurts {hurt}"


def facts(draw: random.Random) -> tuple[list[str], dict[str, list[tuple[str, str]]]]:
    """Return sentences about persons, and questions about each of them with their answers."""
    sentences, asked = [], dict[str, list[tuple[str, str]]]()
    for person in (f"{first} {last}" for first in FIRST for last in LAST):
        values = {name: draw.choice(choices) for name, (choices, _, _) in FACTS.items()}
        said = [f"{FACTS[name][1]} {value}" for name, value in values.items()]
        for _ in range(12):  # a fact is known if it was read in many ways
            draw.shuffle(said)
            sentences += [f"{person} {said[0]} and {person} {said[1]}.", f"{person} {said[2]}."]
            sentences.append(f"It is said of {person} that {person} {draw.choice(said)}.")
        asked[person] = [
            (asks.format(person), f"{person} {says} {values[name]}.") for name, (_, says, asks) in FACTS.items()
        ]
    return sentences, asked


def speeches() -> list[str]:
    """Return the speeches of Shakespeare's plays, in order, each after a line with the name of its speaker."""
    return b"".join(cr.Corpus.open("builtin:shakespeare").blocks()).decode().strip().split("\n\n")


def turns(spoken: list[str], most: int = 200) -> Iterator[tuple[str, str]]:
    """Yield speeches of at most so many characters, each with the speech after it."""
    said = [" ".join(one.partition("\n")[2].split()) for one in spoken]
    return ((a, b) for a, b in pairwise(said) if 0 < len(a) <= most and 0 < len(b) <= most)


def write(path: Path, pairs: Iterable[tuple[str, str]]) -> None:
    path.write_text("".join(json.dumps({"prompt": a, "reply": b}) + "\n" for a, b in pairs), encoding="utf-8")


def main(folder: Path) -> None:
    draw = random.Random(1)
    folder.mkdir(parents=True, exist_ok=True)
    write(folder / "reports.jsonl", reports(draw, 4000))
    write(folder / "reports-test.jsonl", reports(draw, 300))
    sentences, asked = facts(draw)
    draw.shuffle(sentences)
    (folder / "facts.txt").write_text("\n".join(sentences) + "\n", encoding="utf-8")
    persons = sorted(asked)
    draw.shuffle(persons)
    known, others = persons[:50], persons[50:]
    write(folder / "questions.jsonl", [pair for person in known for pair in asked[person]])
    write(folder / "questions-test.jsonl", [pair for person in others for pair in asked[person]])
    spoken = speeches()
    begin, rest = spoken[:6800], spoken[6800:]
    (folder / "plays.txt").write_text("\n\n".join(begin) + "\n", encoding="utf-8")
    write(folder / "turns.jsonl", turns(begin))
    write(folder / "turns-test.jsonl", turns(rest))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
