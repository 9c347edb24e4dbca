"""What running a verb gives, and the texts the tests of the command line share."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

SENTENCES = [
    " ".join(words) for words in itertools.product(("i", "you", "we"), ("love", "chase"), ("cats", "mice"))
]
TEXT = "".join(f"{sentence}\n" for sentence in SENTENCES * 3) + "the café is closed\n"
HELD_OUT = "i love mice\nwe chase zebras\n\nyou love cats\n"
TOY = "i love cats\ni love dogs\ncats chase mice\n"


@dataclass(frozen=True)
class Ran:
    """What a run left behind."""

    code: Any
    out: str
    err: str

    @property
    def json(self) -> Any:
        """Standard output as standard JSON."""
        assert self.code == 0, self.err
        return strict_json(self.out)


Run: TypeAlias = Callable[..., Ran]
Fails: TypeAlias = Callable[..., str]


def strict_json(text: str) -> Any:
    """JSON as the standard has it, which knows neither Infinity nor NaN."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    return json.loads(text, parse_constant=refuse)
