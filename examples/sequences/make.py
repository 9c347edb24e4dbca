"""Small sequences that are not language: sessions of a service, melodies, DNA; the same in every run.

python make.py FOLDER writes, for each kind of sequence, KIND.txt to train on and KIND-test.jsonl, some of whose
records are odd.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable
from pathlib import Path

EVENTS = {  # what follows an event, as often as it stands here
    "start": ["login", "login", "login", "browse"],
    "login": ["browse", "browse", "search"],
    "browse": ["browse", "search", "add_to_cart", "logout"],
    "search": ["browse", "browse", "search"],
    "add_to_cart": ["browse", "checkout", "checkout"],
    "checkout": ["pay"],
    "pay": ["logout"],
}
CHORDS = {"I": "C E G", "IV": "F A C", "V": "G B D"}
CODONS = ["GCT", "GAA", "AAA", "CTG", "GGC", "ATT"]  # of the stretches that code for a protein here


def session(draw: random.Random) -> str:
    """Return the events of a session, one after the other."""
    events = ["start"]
    while events[-1] in EVENTS and len(events) < 30:
        events.append(draw.choice(EVENTS[events[-1]]))
    return " ".join(events[1:])


def melody(draw: random.Random) -> str:
    """Return four bars over I, IV, V, I; each note is one of the chord of its bar."""
    return " | ".join(
        " ".join(draw.choice(CHORDS[chord].split()) for _ in range(4)) for chord in ("I", "IV", "V", "I")
    )


def gene(draw: random.Random) -> str:
    """Return a start codon, a dozen codons, and a stop codon."""
    return "ATG" + "".join(draw.choice(CODONS) for _ in range(12)) + "TAA"


MAKERS: dict[str, tuple[Callable[[random.Random], str], str]] = {
    "sessions": (session, " "),
    "melodies": (melody, " "),
    "genes": (gene, ""),
}


def odd(sequence: str, separator: str, draw: random.Random) -> str:
    """Return the same parts in another order."""
    parts = sequence.split(separator) if separator else list(sequence)
    return separator.join(draw.sample(parts, len(parts)))


def main(folder: Path) -> None:
    """Write the files."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, (make, separator) in MAKERS.items():
        draw = random.Random(kind)
        (folder / f"{kind}.txt").write_text("".join(f"{make(draw)}\n" for _ in range(2000)))
        with (folder / f"{kind}-test.jsonl").open("w") as file:
            for number in range(200):
                text, is_odd = make(draw), number % 10 == 0
                while is_odd and (len(set(text)) < 3 or odd(text, separator, random.Random(0)) == text):
                    text = make(draw)
                record = {"text": odd(text, separator, draw) if is_odd else text, "odd": is_odd}
                file.write(json.dumps(record) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "data"))
