"""The captured steps of one Transformer, each captured when it is first used: CUDA graphs that sample and read.

A step that does not compile or run on this machine ends no work: each method returns None, and its caller takes the
plain way.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.capabilities import Choose, Drafted, DraftRules
from chainrule.contract.lm import offered
from chainrule.inference.gpu.graph_drafting import GraphDrafter, Guesses
from chainrule.inference.gpu.graph_sampling import MOST_STEPS, GraphReader, GraphSampler, LogProbs
from chainrule.inference.gpu.guess_table import LONGEST, GuessTable
from chainrule.inference.gpu.step import power_of_two
from chainrule.inference.state import NeuralState
from chainrule.networks.transformer.cache import Cache
from chainrule.networks.transformer.decoder import Transformer

T = TypeVar("T")

_MOST_DRAFTERS = 4
TOKENS_THAT_REPAY = 16
"""The number of single tokens that are read before a step that reads one is captured."""


class CapturedSteps:
    """Samplers by the number of rows, readers by that of tokens, and drafters by their rules."""

    def __init__(self, network: Transformer, log_probs: LogProbs, bos: int) -> None:
        self.network, self.log_probs, self.bos = network, log_probs, bos
        self.samplers: dict[int, GraphSampler] = {}
        self.readers: dict[int, GraphReader] = {}
        self.drafters: dict[Any, GraphDrafter] = {}
        self.tokens_read = 0
        """The number of times that one token of one row was to be read."""
        self.lock = threading.RLock()
        """Held while a step is captured or replayed: all of them use the same arrays."""
        self.has_failed = False
        """True once a step failed: none is captured or replayed after it."""
        self._tables: weakref.WeakKeyDictionary[Any, GuessTable | None] = weakref.WeakKeyDictionary()

    def _attempt(self, step: Callable[[], T]) -> T | None:
        """Return what the step gives; None, with one warning, if it fails, and None from then on."""
        if self.has_failed:
            return None
        try:
            with self.lock:
                return step()
        except Exception as error:  # what compilers, drivers and libraries raise has no common class
            self.has_failed = True
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            warnings.warn(f"a fast path failed; the plain way is used ({reason})", RuntimeWarning, stacklevel=2)
            return None

    # -- from state to state ------------------------------------------------------------------------------

    def write(
        self, state: NeuralState, choose: Choose, uniforms_BT: np.ndarray, read_BT: np.ndarray | None = None
    ) -> tuple[NeuralState, Tensor, Tensor] | None:
        """Sample a token a row for each column; return the state after them, the tokens, and ln p of each.

        None if the choice looks back, the window would slide, there are more than `MOST_STEPS` columns, or the
        step failed.
        """
        rows, steps = uniforms_BT.shape
        window, cache = state.window, state.memory
        assert isinstance(cache, Cache) and window is not None
        if read_BT is not None or window.longest + steps > window.size or steps > MOST_STEPS:
            return None
        return self._attempt(
            lambda: self.sampler(rows).write(cache, window, state.features_BD, choose, uniforms_BT)
        )

    def write_drafted(
        self, state: NeuralState, rules: DraftRules, last: int, uniforms: np.ndarray, most: int
    ) -> Drafted | None:
        """Draft, read, choose and keep tokens, as `capabilities.FastPaths.write_drafted` says.

        None if the window would slide, a model that drafts has no table of contexts, or the step failed.
        """
        cache = state.memory
        assert state.window is not None and isinstance(cache, Cache)
        window = state.window.counted()
        limit = min(most, GraphDrafter.room(window, rules.tokens))

        def write() -> Drafted | None:
            drafter = self.drafter(rules) if limit > 0 and len(state) == 1 else None
            return None if drafter is None else drafter.write(cache, window, last, uniforms, limit)

        return self._attempt(write)

    def read_token(self, state: NeuralState, ids_11: Tensor) -> NeuralState | None:
        """Return the state after one more token of one row.

        None if the window would slide, few single tokens were read so far (to capture a step takes some time), or
        the step failed.
        """
        self.tokens_read += 1
        window = state.window
        assert window is not None
        if self.tokens_read < TOKENS_THAT_REPAY or window.longest >= window.size:
            return None
        with self.lock, torch.inference_mode(False):  # the step's arrays are written to outside of this mode, too
            if (found := self.read_ahead(state.memory, ids_11)) is None:
                return None
            after, features_11D, _ = found
            # a copy, so that threads that only read never share arrays
            return NeuralState(after, features_11D[:, 0], window.append(ids_11, None)).select(np.zeros(1, np.int64))

    def read_ahead(self, cache: Any, ids_1T: Tensor) -> tuple[Cache, Tensor, Tensor] | None:
        """Return the cache after the ids of one row, their features [1, T, D], and ln p of the token after each.

        None if the step failed.
        """
        return self._attempt(lambda: self.reader(ids_1T.shape[1]).read(cache, ids_1T))

    # -- captured steps -----------------------------------------------------------------------------------

    def sampler(self, rows: int) -> GraphSampler:
        """Return the sampler for batches of this many rows.

        Rows end, and in a server others join: with powers of two, a few samplers serve every number, and all of
        them together take at most twice the memory of the largest.
        """
        size = power_of_two(rows)
        if size not in self.samplers:
            self.samplers[size] = GraphSampler(self.network, self.log_probs, size, self.bos)
        return self.samplers[size]

    def reader(self, tokens: int) -> GraphReader:
        """Return the reader of this many tokens of one row."""
        if tokens not in self.readers:
            self.readers[tokens] = GraphReader(self.network, self.sampler(1), tokens)
        return self.readers[tokens]

    def drafter(self, rules: DraftRules) -> GraphDrafter | None:
        """Return the drafter for a draft and a choice; None if a model that drafts has no table of contexts."""
        copies = rules.sources[0] is None
        # a model always has a guess, so sources after it are never used
        model = next((source for source in rules.sources if source is not None), None)
        table = None if model is None else self._table(model)
        if model is not None and table is None:
            return None
        guesses = Guesses(copies, table, rules.tokens)
        key = guesses, rules.choose
        if key not in self.drafters:
            if len(self.drafters) >= _MOST_DRAFTERS:
                del self.drafters[next(iter(self.drafters))]
            self.drafters[key] = GraphDrafter(self.network, self.sampler(1), guesses, rules.choose)
        return self.drafters[key]

    def _table(self, model: Any) -> GuessTable | None:
        """Return the table of a model that drafts, on the device of the network."""
        if model not in self._tables:
            best_tokens = offered(model, "best_tokens")
            known = best_tokens and best_tokens(LONGEST)
            self._tables[model] = None if known is None else GuessTable(known, self.network.head.weight.device)
        return self._tables[model]
