"""Samples of models: after the same prompts, with the same strategy and the same seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from chainrule.contract.kinds import load
from chainrule.decode.generate import generate_many
from chainrule.decode.strategies import TopP
from chainrule.errors import ChainruleError
from chainrule.report.surprise import Words
from chainrule.system.progress import Progress

TOP_P = 0.9
MAX_TOKENS = 60
MOST_MEGABYTES = 500.0
"""The size of all models together up to which they are loaded for samples."""
_PROMPT_WORDS = 3
_PROMPTS = 2
_SHORTEST_LINE = 6  # words; the beginnings of shorter lines are no prompts


@dataclass(frozen=True)
class Samples:
    """The texts of each model, one for each prompt; the prompt comes first in each."""

    how: str
    prompts: list[str]
    """The empty prompt, if any, stands for the samples that the comparison took."""
    texts: dict[str, list[str]] = field(default_factory=dict)
    """By the name of the model."""


def prompts_from(words: Words) -> list[str]:
    """Return the first words of some long lines of the held-out text, at equal distances in it."""
    lines: dict[int, list[str]] = {}
    for word, line in zip(words.words, words.line.tolist(), strict=True):
        if not word.isspace():
            lines.setdefault(line, []).append(word)
    long = [line for line in lines.values() if len(line) >= _SHORTEST_LINE]
    places = [len(long) * (2 * i + 1) // (2 * _PROMPTS) for i in range(_PROMPTS)]
    found = ["".join(long[place][:_PROMPT_WORDS]) for place in places if place < len(long)]
    return list(dict.fromkeys(found))


def continuations(
    folders: dict[str, Path], prompts: Sequence[str], seed: int, progress: Progress
) -> dict[str, list[str]]:
    """Sample a continuation of each prompt by each model; a model that cannot be loaded is noted and left out."""
    found: dict[str, list[str]] = {}
    with progress.task("samples", len(folders), "models") as task:
        for name, folder in folders.items():
            try:
                lm = load(folder, verify=False, tasks=["language"])
                sampled = generate_many(lm, prompts, TopP(TOP_P), max_tokens=MAX_TOKENS, seed=seed)
            except ChainruleError as error:
                progress.note(f"no samples of {name}: {error}")
            else:
                found[name] = [one.text for one in sampled]
            task.advance(1)
    return found
