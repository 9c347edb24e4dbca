"""Prediction: suggestions as one types, and how many keystrokes they save.

The metric, for a text that someone types with k suggestions in view:

    keystrokes saved = 1 - keys / characters

Characters are those of the text; the end of a line is one. Keys are pressed like this: before each key the model
suggests k words that complete or follow the line so far (`chainrule.suggest`). If the text goes on with one of
them, up to the end of a word, one key takes it, the longest if there are several, and with it the space that
follows in the text, if one does. It is taken only if that saves a key. Else the next character is typed by one key.
One key ends a line. Each line is a text of its own; white space around it, and blank lines, are left out.

    baseline     the same model without context: each word as if it were the first of a line
    upper limit  a model that always suggests the right word: one key for each word, one for each line end

A model is asked about one history many times while a word is typed: `Remembered` answers from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from chainrule.arrays import PAD, Array, pad, to_numpy
from chainrule.contract.lm import LanguageModel, State, next_probs, prepare
from chainrule.decode.suggest import suggest
from chainrule.errors import CorpusError
from chainrule.system.progress import Reports, as_progress
from chainrule.text.given import Text, as_corpus

Path = tuple[int, ...]
"""The ids of a history, after <s>."""

_MOST_BYTES = 1 << 28  # of probabilities that are remembered
_BASELINE_PREFIXES = 1 << 16


@dataclass(frozen=True)
class Keystrokes:
    """The keys that someone presses who types a text with suggestions in view."""

    k: int
    """How many suggestions are in view."""
    lines: int
    words: int
    characters: int
    """Of the text; a line end is one."""
    keys: int
    taken: int
    """How many suggestions were taken."""
    baseline_keys: int
    """With suggestions that do not depend on the words before."""
    least_keys: int
    """With suggestions that are always right."""

    @property
    def saved(self) -> float:
        """1 - keys / characters."""
        return 1 - self.keys / self.characters

    @property
    def baseline(self) -> float:
        """What suggestions without context save."""
        return 1 - self.baseline_keys / self.characters

    @property
    def limit(self) -> float:
        """What suggestions save that are always right."""
        return 1 - self.least_keys / self.characters

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        return {
            "k": self.k,
            "saved": self.saved,
            "baseline": self.baseline,
            "limit": self.limit,
            "keys": self.keys,
            "characters": self.characters,
            "taken": self.taken,
            "words": self.words,
            "lines": self.lines,
        }


def keystrokes(
    lm: LanguageModel, texts: Text, k: int = 3, *, most_lines: int | None = None, progress: Reports = False
) -> Keystrokes:
    """Return the keystrokes that k suggestions of a model save to someone who types texts, line by line.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["i love cats", "i love dogs", "cats chase mice"], order=2)
    >>> found = cr.tasks.keystrokes(lm, "i love mice", k=2)
    >>> found.characters, found.keys, found.least_keys, round(found.saved, 3)
    (12, 5, 4, 0.583)

    "i" and "love" are suggested at once; after "m" so is "mice"; and Enter ends the line.
    """
    lm, corpus = LanguageModel.expect(lm), as_corpus(texts)
    remembered = Remembered(lm)

    @lru_cache(_BASELINE_PREFIXES)
    def out_of_context(beginning: str) -> Sequence[str]:
        return [one.completion.lstrip() for one in suggest(remembered, beginning, k)]

    def in_context(line: str) -> Sequence[str]:
        return [one.completion for one in suggest(remembered, line, k)]

    lines = words = characters = keys = taken = baseline_keys = least_keys = 0
    with as_progress(progress).task("typing", corpus.size() if most_lines is None else most_lines) as task:
        for line in _lines(corpus.blocks(), most_lines):
            lines, words, characters = lines + 1, words + len(line.split()), characters + len(line) + 1
            remembered.forget()
            pressed = list(_typed(line, in_context))
            keys, taken = keys + len(pressed), taken + sum(len(key) > 1 for key in pressed)
            baseline_keys += sum(1 for _ in _typed(line, lambda text: out_of_context(_last_word(text))))
            least_keys += sum(1 for _ in _typed(line, lambda text, line=line: _right_word(line, len(text))))  # type: ignore[misc]
            task.advance(1 if most_lines is not None else len(line.encode()) + 1)
    if not lines:
        raise CorpusError(f"{corpus.name}: the text is empty")
    return Keystrokes(k, lines, words, characters, keys, taken, baseline_keys, least_keys)


def _lines(blocks: Iterable[bytes], most: int | None) -> Iterator[str]:
    """Yield the lines that are not blank, without white space at their ends."""
    seen = 0
    for block in blocks:
        for line in block.decode().split("\n"):
            if seen == most:
                return
            if line.strip():
                seen += 1
                yield line.strip()


def _typed(line: str, suggestions: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """What each key that types a line adds to it; the last one ends it."""
    place = 0
    while place < len(line):
        found = max((_taking(line, place, one) for one in suggestions(line[:place])), key=len, default="")
        added = found if len(found) > 1 else line[place]
        yield added
        place += len(added)
    yield "\n"


def _taking(line: str, place: int, completion: str) -> str:
    """What taking a completion adds to the line, with the space after it; nothing if that is not the text."""
    end = place + len(completion)
    if not completion.strip() or not line.startswith(completion, place):
        return ""
    if completion[-1].isalnum() and line[end : end + 1].isalnum():  # the word goes on
        return ""
    return completion + " " * (line[end : end + 1] == " ")


def _right_word(line: str, place: int) -> Sequence[str]:
    """Return the next word of the line, to its end."""
    rest = line[place:]
    return [rest.split(" ", 1)[0]]


def _last_word(text: str) -> str:
    return text[text.rfind(" ") + 1 :]


# -- a model with a memory --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Histories(State):
    """The ids that each row has read."""

    paths: tuple[Path, ...]

    def __len__(self) -> int:
        return len(self.paths)

    def select(self, rows: Array) -> _Histories:
        return _Histories(tuple(self.paths[row] for row in to_numpy(rows).tolist()))

    def join(self, other: _Histories) -> _Histories:
        return _Histories(self.paths + other.paths)


class Remembered(LanguageModel):
    """A model that remembers what it has read and predicted, until it is told to forget: the same, but faster.

    What was read is known by its ids, so a text that goes on, or a word that is tried again, is not read again.
    """

    kind = "remembered"

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self.tokenizer, self.context, self.normalised, self.settings = lm.tokenizer, lm.context, lm.normalised, None
        self.forget()

    def forget(self) -> None:
        """Begin anew: only the state at the start is known."""
        self._states: dict[Path, tuple[State, int]] = {(): (self._lm.start(1), 0)}
        self._log_probs: dict[Path, np.ndarray] = {}
        self._probs: dict[Path, np.ndarray] = {}

    def start(self, batch_size: int) -> _Histories:
        return _Histories(((),) * batch_size)

    def extend(self, state: State, ids_BT: Array) -> _Histories:
        assert isinstance(state, _Histories)
        added = to_numpy(ids_BT).tolist()
        return _Histories(
            tuple(
                (*path, *(token for token in row if token != PAD))
                for path, row in zip(state.paths, added, strict=True)
            )
        )

    def next_log_probs(self, state: State) -> np.ndarray:
        return self._remembered(state, self._log_probs, lambda inner: to_numpy(self._lm.next_log_probs(inner)))

    def next_probs(self, state: State) -> np.ndarray:
        """p of every next token, [B, V]."""
        return self._remembered(state, self._probs, lambda inner: next_probs(self._lm, inner))

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        if state is None:
            return self._lm.score(ids_BT)
        assert isinstance(state, _Histories)
        return self._lm.score(ids_BT, self._state(state.paths))

    def prepare(self) -> None:
        """Let the model load what it needs."""
        prepare(self._lm)

    def tensors(self) -> Mapping[str, np.ndarray]:
        return self._lm.tensors()

    def on(self, device: str, dtype: str = "float32") -> Remembered:
        return Remembered(self._lm.on(device, dtype))

    def _remembered(
        self, state: State, memory: dict[Path, np.ndarray], compute: Callable[[State], np.ndarray]
    ) -> np.ndarray:
        """Return a row of what is computed for each history, from memory where it is there; a new array."""
        assert isinstance(state, _Histories)
        missing = [path for path in dict.fromkeys(state.paths) if path not in memory]
        if missing:
            computed = compute(self._state(missing))
            if (len(memory) + len(missing)) * computed[0].nbytes > _MOST_BYTES:
                for path in [path for path in memory if path not in state.paths]:
                    del memory[path]
            memory.update(zip(missing, computed, strict=True))
        return np.stack([memory[path] for path in state.paths])

    def _state(self, paths: Sequence[Path]) -> State:
        """Return the model's own state after each history: the part that was read before is not read again."""
        missing = [path for path in dict.fromkeys(paths) if path not in self._states]
        if missing:
            known = [self._known(path) for path in missing]
            before = self._gathered(known)
            added = [path[len(part) :] for path, part in zip(missing, known, strict=True)]
            after = self._lm.extend(before, pad(added))
            self._states.update({path: (after, row) for row, path in enumerate(missing)})
        return self._gathered(paths)

    def _known(self, path: Path) -> Path:
        """Return the longest beginning of a history that was read."""
        return next(path[:size] for size in range(len(path), -1, -1) if path[:size] in self._states)

    def _gathered(self, paths: Sequence[Path]) -> State:
        """Return the states of histories that were read, as one."""
        batches: dict[int, tuple[State, list[int]]] = {}
        order = []
        for place, path in enumerate(paths):
            state, row = self._states[path]
            batches.setdefault(id(state), (state, []))[1].append(row)
            order.append((list(batches).index(id(state)), place))
        joined: State | None = None
        for state, rows in batches.values():
            some = state.select(np.asarray(rows))
            joined = some if joined is None else joined.join(some)
        assert joined is not None
        places = np.asarray([place for _, place in sorted(order)])  # row r of what was joined belongs to places[r]
        return joined if len(batches) == 1 else joined.select(np.argsort(places))
