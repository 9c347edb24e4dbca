"""What the models of a comparison write: samples to read, and how much they repeat and vary."""

from __future__ import annotations

import statistics
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chainrule.comparison.results import Comparison, Result
from chainrule.contract.kinds import load
from chainrule.decode.generate import generate_many
from chainrule.decode.strategies import TopP
from chainrule.errors import ChainruleError
from chainrule.evaluation.variety import Variety, variety_of
from chainrule.folder import MANIFEST
from chainrule.report.surprise import Words
from chainrule.system.progress import Progress

TOP_P = 0.9
MAX_TOKENS = 60
MOST_MEGABYTES = 500.0
"""The size of all models together up to which they are loaded for samples."""
COPIES = 12
"""Continuations of each prompt; the first is shown, and all are counted."""
_PROMPT_WORDS = 3
_PROMPTS = 2
_SHORTEST_LINE = 6  # words; the beginnings of shorter lines are no prompts


@dataclass(frozen=True)
class Samples:
    """The texts of each model, one for each prompt; the prompt comes first in each."""

    how: str
    prompts: list[str]
    """The empty prompt, if any, stands for the samples that the comparison took."""
    texts: dict[str, list[str]]
    """By the name of the model."""
    variety: dict[str, Variety]
    """Of the samples of each model, and, as "held-out text", of so many words of that."""


def samples_of(
    folder: Path,
    comparison: Comparison,
    drawn: Sequence[Result],
    words: Words | None,
    prompts: Sequence[str] | None,
    progress: Progress,
) -> Samples:
    """Return the samples of the comparison, and the continuations of prompts if the models load quickly."""
    if not comparison.is_of_text:
        return Samples("examples of the test set", [""], {one.name: [one.sample] for one in drawn}, {})
    seed = int(comparison.identity.get("seed", 0))
    if prompts is None:
        is_small = sum(one.megabytes for one in drawn) <= MOST_MEGABYTES
        prompts = prompts_from(words) if words is not None and is_small else []
    folders = {one.name: folder / Path(one.folder).name for one in sorted(drawn, key=comparison.results.index)}
    there = {name: where for name, where in folders.items() if (where / MANIFEST).is_file()}
    written = continuations(there, prompts, seed, progress) if prompts else {}
    texts, variety = {}, {}
    for one in drawn:
        found = written.get(one.name, [[""]] * len(prompts))
        texts[one.name] = [one.sample, *(copies[0] for copies in found)]
        own = (text.removeprefix(prompt) for prompt, copies in zip(prompts, found, strict=True) for text in copies)
        variety[one.name] = variety_of([*one.sample.splitlines(), *own])
    if words is not None and variety:
        size = int(statistics.median(one.words for one in variety.values()))
        end = int(np.searchsorted(np.cumsum(words.is_text), size)) + 1  # as many words as the models wrote
        variety["held-out text"] = variety_of("".join(words.words[:end]).splitlines())
    how = f"top-p {TOP_P}, and a seed of its own for each model; after a prompt at most {MAX_TOKENS} tokens"
    return Samples(how, ["", *prompts], texts, variety)


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
) -> dict[str, list[list[str]]]:
    """Sample continuations of each prompt by each model; a model that cannot be loaded is noted and left out."""
    found: dict[str, list[list[str]]] = {}
    with progress.task("samples", len(folders), "models") as task:
        for name, folder in folders.items():
            own = seed + zlib.crc32(name.encode())
            try:
                lm = load(folder, verify=False, tasks=["language"])
                sampled = generate_many(lm, prompts, TopP(TOP_P), n=COPIES, max_tokens=MAX_TOKENS, seed=own)
            except ChainruleError as error:
                progress.note(f"no samples of {name}: {error}")
            else:
                texts = [one.text for one in sampled]
                found[name] = [texts[i : i + COPIES] for i in range(0, len(texts), COPIES)]
            task.advance(1)
    return found
