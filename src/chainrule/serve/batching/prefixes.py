"""States after prompts that were read: a state is a value, so any prompt with the same start continues from it.

If two prompts start alike, the state after the shared part is kept as well, once the second one is read. So a long
instruction before many questions is read twice, and then never again.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

import numpy as np

from chainrule.contract.lm import LanguageModel, State

LEAST = 16
"""Tokens of a prefix that is worth keeping."""


class Prefixes:
    """The states of one model after the prefixes that were used last; `most` tokens in all."""

    def __init__(self, lm: LanguageModel, most: int = 1 << 15, entries: int = 64) -> None:
        self.lm, self._most, self._entries = lm, most, entries
        self._states: OrderedDict[tuple[int, ...], State] = OrderedDict()
        self._tokens = 0
        self._at_start: State | None = None
        self.reused = 0
        """How many tokens did not have to be read."""

    def __len__(self) -> int:
        return len(self._states)

    def find(self, ids: Sequence[int]) -> tuple[int, State, int]:
        """Return how many tokens of a prompt a kept state has read, that state, and how many a prefix shares."""
        ids_T = np.asarray(ids, dtype=np.int64)
        best: tuple[int, ...] = ()
        shared = 0
        for prefix in self._states if len(ids) >= LEAST else ():
            size = min(len(prefix), len(ids))
            differs_T = np.asarray(prefix[:size]) != ids_T[:size]
            alike = int(differs_T.argmax()) if differs_T.any() else size
            shared = max(shared, alike)
            if alike == len(prefix) > len(best):
                best = prefix
        if not best:
            if self._at_start is None:
                self._at_start = self.lm.start(1)
            return 0, self._at_start, shared
        self._states.move_to_end(best)
        self.reused += len(best)
        return len(best), self._states[best], shared

    def is_worth_keeping(self, ids: Sequence[int]) -> bool:
        """Return True if a prompt is long enough, and not too long."""
        return LEAST <= len(ids) <= self._most

    def keep(self, ids: Sequence[int], state: State) -> None:
        """Keep the state after a prompt."""
        prefix = tuple(ids)
        if not self.is_worth_keeping(prefix):
            return
        if prefix not in self._states:
            self._tokens += len(prefix)
        self._states[prefix] = state
        self._states.move_to_end(prefix)
        while self._tokens > self._most or len(self._states) > self._entries:
            dropped, _ = self._states.popitem(last=False)
            self._tokens -= len(dropped)
