"""Prediction: suggestions while typing, and the keystrokes that they save.

The metric, for a text that someone types with k suggestions in view:

    keystrokes saved = 1 - keys / characters

The end of a line is a character. Before each key the model suggests k words that complete or follow the line so far
(`chainrule.suggest`). If the text continues with one of them, up to the end of a word, one key takes the longest
such suggestion, with the space after it if the text has one; but only if that saves a key. Otherwise one key types
the next character. One key ends a line. Each line is typed separately; white space around it, and blank lines, are
left out.

    baseline     the same model without context: each word as if it were the first of a line
    upper limit  a model that always suggests the right word: one key for each word, one for each line end

While a word is typed, the model is asked about one history many times: `Remembered` answers from memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache, reduce
from itertools import islice
from typing import Any

import numpy as np

from chainrule.arrays import Array, pad, to_numpy
from chainrule.contract.capabilities import Capabilities
from chainrule.contract.chain import PrefixState
from chainrule.contract.lm import LanguageModel, State, next_probs, prepare
from chainrule.decode.suggest import suggest
from chainrule.errors import CorpusError
from chainrule.system.progress import Reports, as_progress
from chainrule.text.files import lines_in
from chainrule.text.given import Text, as_corpus

History = tuple[int, ...]
"""The ids that were read after <s>."""

_MOST_BYTES = 1 << 28  # the most memory for probabilities
_BASELINE_PREFIXES = 1 << 16


@dataclass(frozen=True)
class Keystrokes:
    """The keys that typing a text takes with suggestions in view."""

    k: int
    """The number of suggestions in view."""
    lines: int
    words: int
    characters: int
    """The characters of the text; a line end is one."""
    keys: int
    taken: int
    """The number of suggestions that were taken."""
    baseline_keys: int
    """The keys with suggestions that do not depend on the words before."""
    least_keys: int
    """The keys with suggestions that are always right."""

    @property
    def saved(self) -> float:
        """1 - keys / characters."""
        return 1 - self.keys / self.characters

    @property
    def baseline(self) -> float:
        """The share of keystrokes that suggestions without context save."""
        return 1 - self.baseline_keys / self.characters

    @property
    def limit(self) -> float:
        """The share of keystrokes that always right suggestions save."""
        return 1 - self.least_keys / self.characters

    def to_json(self) -> dict[str, Any]:
        """Return the counts as JSON."""
        shares = {"saved": self.saved, "baseline": self.baseline, "limit": self.limit}
        return {"k": self.k, **shares, **asdict(self)}


def keystrokes(
    lm: LanguageModel, texts: Text, k: int = 3, *, most_lines: int | None = None, progress: Reports = False
) -> Keystrokes:
    """Measure the keystrokes that k suggestions of a model save while texts are typed, line by line.

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
        stripped = (line.decode().strip() for line in lines_in(corpus.blocks()))
        for line in islice(filter(None, stripped), most_lines):
            lines, words, characters = lines + 1, words + len(line.split()), characters + len(line) + 1
            remembered.forget()
            pressed = list(_typed(line, in_context))
            keys, taken = keys + len(pressed), taken + sum(len(key) > 1 for key in pressed)
            baseline_keys += sum(1 for _ in _typed(line, lambda text: out_of_context(text.rpartition(" ")[2])))
            right_word = lambda text, line=line: [line[len(text) :].split(" ", 1)[0]]  # noqa: E731
            least_keys += sum(1 for _ in _typed(line, right_word))
            task.advance(1 if most_lines is not None else len(line.encode()) + 1)
    if not lines:
        raise CorpusError(f"{corpus.name}: the text is empty")
    return Keystrokes(k, lines, words, characters, keys, taken, baseline_keys, least_keys)


def _typed(line: str, suggestions: Callable[[str], Sequence[str]]) -> Iterator[str]:
    """Yield the text that each key adds to a line; the last key ends it."""
    place = 0
    while place < len(line):
        found = max((_taking(line, place, one) for one in suggestions(line[:place])), key=len, default="")
        added = found if len(found) > 1 else line[place]
        yield added
        place += len(added)
    yield "\n"


def _taking(line: str, place: int, completion: str) -> str:
    """Return the text that a completion adds, with the space after it; empty if the line continues otherwise."""
    end = place + len(completion)
    if not completion.strip() or not line.startswith(completion, place):
        return ""
    if completion[-1].isalnum() and line[end : end + 1].isalnum():  # the word is longer
        return ""
    return completion + " " * (line[end : end + 1] == " ")


# -- a model with a memory --------------------------------------------------------------------------------


class Remembered(LanguageModel):
    """A model that keeps the states and predictions of another one until `forget`: the same results, but faster.

    Histories are known by their ids, so that the beginning of a longer history is not read again.
    """

    kind = "remembered"

    def __init__(self, lm: LanguageModel) -> None:
        self._lm = lm
        self.tokenizer, self.context, self.normalised, self.settings = lm.tokenizer, lm.context, lm.normalised, None
        self.forget()

    def forget(self) -> None:
        """Forget everything but the state at the start."""
        self._states: dict[History, tuple[State, int]] = {(): (self._lm.start(1), 0)}
        self._log_probs: dict[History, np.ndarray] = {}
        self._probs: dict[History, np.ndarray] = {}

    @property
    def capabilities(self) -> Capabilities:
        """Remembered probabilities, at the costs of the model."""
        return Capabilities(frozenset({"next_probs", "prepare"}), self._lm.capabilities.costs)

    def start(self, batch_size: int) -> PrefixState:
        return PrefixState(((),) * batch_size)

    def extend(self, state: State, ids_BT: Array) -> PrefixState:
        assert isinstance(state, PrefixState)
        return state.extended(ids_BT)

    def next_log_probs(self, state: State) -> np.ndarray:
        return self._remembered(state, self._log_probs, lambda inner: to_numpy(self._lm.next_log_probs(inner)))

    def next_probs(self, state: State) -> np.ndarray:
        """Return p of every next token, [B, V]."""
        return self._remembered(state, self._probs, lambda inner: next_probs(self._lm, inner))

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        state = self.start(len(ids_BT)) if state is None else state
        assert isinstance(state, PrefixState)
        return self._lm.score(ids_BT, self._state(state.rows))

    def prepare(self) -> None:
        """Let the model compile or load its fast code."""
        prepare(self._lm)

    def tensors(self) -> Mapping[str, np.ndarray]:
        return self._lm.tensors()

    def on(self, device: str, dtype: str = "float32") -> Remembered:
        return Remembered(self._lm.on(device, dtype))

    def _remembered(
        self, state: State, memory: dict[History, np.ndarray], compute: Callable[[State], np.ndarray]
    ) -> np.ndarray:
        """Return a new array with a row for each history, computed or from memory."""
        assert isinstance(state, PrefixState)
        missing = [history for history in dict.fromkeys(state.rows) if history not in memory]
        if missing:
            computed = compute(self._state(missing))
            if (len(memory) + len(missing)) * computed[0].nbytes > _MOST_BYTES:
                for history in [history for history in memory if history not in state.rows]:
                    del memory[history]
            memory.update(zip(missing, computed, strict=True))
        return np.stack([memory[history] for history in state.rows])

    def _state(self, histories: Sequence[History]) -> State:
        """Return the state of the model after each history; known beginnings are not read again."""
        missing = [history for history in dict.fromkeys(histories) if history not in self._states]
        if missing:
            known = [
                next(history[:size] for size in range(len(history), -1, -1) if history[:size] in self._states)
                for history in missing
            ]
            before = self._gathered(known)
            added = [history[len(part) :] for history, part in zip(missing, known, strict=True)]
            after = self._lm.extend(before, pad(added))
            self._states.update({history: (after, row) for row, history in enumerate(missing)})
        return self._gathered(histories)

    def _gathered(self, histories: Sequence[History]) -> State:
        """Return the states of known histories as one."""
        batches: dict[int, tuple[State, list[int], list[int]]] = {}
        for place, history in enumerate(histories):
            state, row = self._states[history]
            _, rows, places = batches.setdefault(id(state), (state, [], []))
            rows.append(row)
            places.append(place)
        parts = (state.select(np.asarray(rows)) for state, rows, _ in batches.values())
        joined = reduce(lambda one, other: one.join(other), parts)
        order = np.argsort([place for _, _, places in batches.values() for place in places])
        return joined if len(batches) == 1 else joined.select(order)
