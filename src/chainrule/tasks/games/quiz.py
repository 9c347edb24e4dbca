"""The quiz: of two texts that begin alike, which is real, and which did a model generate?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from chainrule.contract.lm import LanguageModel
from chainrule.decode.generate import generate_many
from chainrule.decode.strategies import Sample
from chainrule.system.display import Part, ResultTable
from chainrule.tasks.games.lines import GIVEN_WORDS, MOST_WORDS, Ask, Tell, drawn_lines
from chainrule.tasks.pairs import wilson

_TRIES = 8  # texts that a model writes for a round of a quiz, of which a long one is taken


@dataclass(frozen=True)
class Quizzed:
    """The result of a quiz: for each model, how often the player recognised the real text."""

    rounds: dict[str, int] = field(default_factory=dict)
    right: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> tuple[int, int]:
        """The right answers and the rounds of all models together."""
        return sum(self.right.values()), sum(self.rounds.values())

    def to_json(self) -> dict[str, Any]:
        """Return the result as plain values, with Wilson's 95 % intervals."""
        every = {name: (self.right[name], rounds) for name, rounds in self.rounds.items()}
        return {
            name: {"right": right, "rounds": rounds, "interval": [*wilson(right / rounds, rounds)]}
            for name, (right, rounds) in {**every, "all": self.total}.items()
        }

    def parts(self) -> list[Part]:
        """Return a row for each model and, of several, one for all."""
        rows = []
        for name, one in self.to_json().items():
            if name != "all" or len(self.rounds) > 1:
                share, interval = one["right"] / one["rounds"], "{:.0%} - {:.0%}".format(*one["interval"])
                rows.append([name, f"{one['rounds']:,}", f"{one['right']:,}", f"{share:.0%}", interval])
        table = ResultTable(["text of", "rounds", "told apart", "share", "95 % interval"], rows)
        return [table, "50 % is chance: a model whose texts are not told apart writes like the real one"]


def real_or_written(
    models: Mapping[str, LanguageModel],
    lines: Sequence[str],
    ask: Ask,
    tell: Tell,
    *,
    rounds: int = 10,
    seed: int = 0,
) -> Quizzed | None:
    """Show two texts that begin alike, one of `lines` and one by a model, and ask which is real.

    The model, and which text comes first, are drawn at random; the right answers are shown at the end. None if the
    player answered nothing.

    >>> import chainrule as cr
    >>> lines = ["the cat sat on the mat", "the dog sat on the cat"]
    >>> lm = cr.train("ngram", lines * 3, order=2, tokenizer="word")
    >>> found = real_or_written({"bigram": lm}, lines, lambda question: "a", lambda said: None)
    >>> found.rounds
    {'bigram': 2}
    """
    random = np.random.default_rng([seed % 2**64, 1])
    answers: list[tuple[str, str, str]] = []  # the model, the letter of the real text, the answer
    names, drawn = [*models], drawn_lines(lines, seed)
    for number, line in zip(range(1, rounds + 1), drawn, strict=False):
        name = names[int(random.integers(len(names)))]
        real, written = _alike(models[name], line, int(random.integers(2**31)))
        right = "ab"[int(random.integers(2))]
        tell(f"\n{number}. Which is real?")
        for letter in "ab":
            tell(f"  {letter}: {real if letter == right else written}")
        while (answer := ask("a or b? ")) is not None and answer.strip().lower() not in ("a", "b"):
            tell("answer a or b")
        if answer is None:
            break
        answers.append((name, right, answer.strip().lower()))
    if not answers:
        return None
    tell("\n" + ", ".join(f"{number}: {right}" for number, (_, right, _) in enumerate(answers, start=1)))
    asked = Counter(name for name, _, _ in answers)
    found = Counter(name for name, right, answer in answers if right == answer)
    return Quizzed(dict(asked), {name: found[name] for name in asked})


def _alike(lm: LanguageModel, line: str, seed: int) -> tuple[str, str]:
    """Return a line, and a text of the model with the same first words; both have the same number of words."""
    ids = lm.tokenizer.encode(line).tolist()
    # as the model would write it: lower-case letters alone would give its texts away
    words = (line if lm.tokenizer.unk in ids else lm.tokenizer.decode(ids)).split()
    prompt = " ".join(words[:GIVEN_WORDS])
    tokens = 3 * len(line) // 2 if lm.tokenizer.splitting is None else MOST_WORDS
    tried = generate_many(lm, [prompt], Sample(), n=_TRIES, max_tokens=tokens, seed=seed, heal=False)
    every = [one.text.split() for one in tried]
    # the first that is as long as the line, or the longest: short ones would give the model away
    written = next((one for one in every if len(one) >= len(words)), max(every, key=len))
    length = min(len(words), len(written))
    return " ".join(words[:length]), " ".join(written[:length])
