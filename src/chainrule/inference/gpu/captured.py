"""The captured steps of one network, each captured when it is first used: CUDA graphs that sample and read.

A step that does not compile or run on this machine ends no work: each method returns None, and its caller takes the
plain way.
"""

from __future__ import annotations

import threading
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import refuse_nan
from chainrule.contract.capabilities import Choose, Drafted, DraftRules
from chainrule.contract.lm import offered
from chainrule.inference.gpu.fixed_memory import fixed_memory, width_of_sources
from chainrule.inference.gpu.graph_drafting import GraphDrafter, Guesses
from chainrule.inference.gpu.graph_sampling import MOST_STEPS, GraphReader, GraphSampler, Scores
from chainrule.inference.gpu.graph_search import GraphSearch, Ranking, rows_of_search
from chainrule.inference.gpu.guess_table import LONGEST, GuessTable
from chainrule.inference.gpu.step import power_of_two
from chainrule.inference.state import NeuralState
from chainrule.networks.memory import Memory
from chainrule.networks.network import Network
from chainrule.networks.transformer.cache import Cache

T = TypeVar("T")

_MOST_DRAFTERS, _MOST_SEARCHES = 4, 8
MOST_SEARCHED = 256
"""The most hypotheses for which a step of a search is captured: with more, operations of torch are not slower."""
MOST_SLID = 16
"""The largest window that slides within a captured step: its tokens are read again at each step."""
TOKENS_THAT_REPAY = 16
"""The number of single tokens that are read, or written, plainly before a step is captured: that takes as long."""


class CapturedSteps:
    """Samplers by the number of rows; for a Transformer also readers by that of tokens, and drafters by rules."""

    def __init__(self, network: Network, scores: Scores, bos: int, slide: int = 1) -> None:
        """`slide` is the number of tokens that a full window drops."""
        self.network: Any = network
        self.scores, self.bos = scores, bos
        window, has_cache = network.window or MOST_SLID + 1, network.keeps_cache or network.reads_two_sides
        self.slides = slide if window <= MOST_SLID and not has_cache else 0
        """The number of tokens that a window drops within a captured step; 0: none slides there."""
        self.samplers: dict[tuple[int, int], GraphSampler | None] = {}
        """By the number of rows and the width of sources; None where the network's memory has no fixed form."""
        self.readers: dict[int, GraphReader] = {}
        self.drafters: dict[Any, GraphDrafter] = {}
        self.searches: dict[Any, GraphSearch | None] = {}
        self.steps_searched: Counter[Any] = Counter()
        """The number of steps that were to be searched, by what their captured step depends on."""
        self.tokens_read = 0
        """The number of times that one token of one row was to be read."""
        self.tokens_written = 0
        """The number of tokens of a row that were to be written."""
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

    def repays(self, tokens: int) -> bool:
        """Count tokens to write, and return True once there are so many that a captured step repays its capture."""
        self.tokens_written += tokens
        return self.tokens_written >= TOKENS_THAT_REPAY

    # -- from state to state ------------------------------------------------------------------------------

    def write(
        self,
        state: NeuralState,
        choose: Choose,
        uniforms_BT: np.ndarray,
        read_BT: np.ndarray | None = None,
        active_B: Tensor | None = None,
    ) -> tuple[NeuralState, Tensor, Tensor] | None:
        """Sample a token a row for each column; return the state after them, the tokens, and ln p of each.

        `active_B` is False for rows that have ended; None: none has.

        None if the window would slide, there are more than `MOST_STEPS` columns, the choice looks back and no
        kernel makes it, the memory has no fixed form, or the step failed.
        """
        (rows, steps), window = uniforms_BT.shape, state.window
        is_over = window is not None and window.longest + steps > window.size and not self.slides
        if not rows or steps > MOST_STEPS or is_over:
            return None

        def write() -> tuple[NeuralState, Tensor, Tensor] | None:
            sampler = self.sampler(rows, state.memory)
            return None if sampler is None else sampler.write(state, choose, uniforms_BT, read_BT, active_B)

        return self._attempt(write)

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

    def search_steps(
        self,
        state: NeuralState,
        ranking: Ranking,
        live_PW: np.ndarray,
        steps: int,
        take: Callable[[np.ndarray, np.ndarray, np.ndarray], bool],
    ) -> bool | None:
        """Search as `capabilities.FastPaths.search_steps` says.

        None for few steps so far, many rows or a small vocabulary, if the window would slide, the memory has no
        fixed form, or a step failed.
        """
        texts, width = live_PW.shape
        rows, window, head = rows_of_search(texts, width), state.window, self.network.head
        is_over = window is not None and window.longest + steps > window.size and not self.slides
        is_small = head.vocab_size <= width + len(ranking.never)
        if is_over or is_small or rows > MOST_SEARCHED or head.weight.dtype == torch.float64:
            return None
        key = rows, width_of_sources(state.memory), power_of_two(texts), ranking
        self.steps_searched[key] += steps
        if self.steps_searched[key] < TOKENS_THAT_REPAY:
            return None

        def take_log(log: np.ndarray) -> bool:
            refuse_nan(log[:, -1])
            return take(log[:, :width], log[:, width : 2 * width].astype(np.int64), log[:, 2 * width])

        def search() -> bool | None:
            if key not in self.searches:
                sampler = self.sampler(rows, state.memory)
                if len(self.searches) >= _MOST_SEARCHES:
                    del self.searches[next(iter(self.searches))]
                self.searches[key] = None if sampler is None else GraphSearch(sampler, texts, ranking)
            found = self.searches[key]
            if found is not None:
                found.run(state, live_PW, steps, take_log)
            return None if found is None else True

        with torch.inference_mode(False):
            return self._attempt(search)

    def read_tokens(self, state: NeuralState, ids_B1: Tensor, is_token_B1: Tensor | None) -> NeuralState | None:
        """Return the state after one more token of each row, or of those with a token.

        None if the window would slide, few single tokens were read so far (to capture a step takes some time), the
        memory has no fixed form, or the step failed.
        """
        self.tokens_read += 1
        window = state.window
        is_full = window is not None and window.longest >= window.size
        if self.tokens_read < TOKENS_THAT_REPAY or is_full or not len(state):
            return None

        def read() -> NeuralState | None:
            sampler = self.sampler(len(state), state.memory)
            return None if sampler is None else sampler.read(state, ids_B1, is_token_B1)

        with torch.inference_mode(False):  # the step's arrays are written to outside of this mode, too
            return self._attempt(read)

    def read_ahead(self, cache: Any, ids_1T: Tensor) -> tuple[Cache, Tensor, Tensor] | None:
        """Return the cache after the ids of one row, their features [1, T, D], and ln p of the token after each.

        None if the step failed.
        """
        return self._attempt(lambda: self.reader(ids_1T.shape[1]).read(cache, ids_1T))

    # -- captured steps -----------------------------------------------------------------------------------

    def sampler(self, rows: int, memory: Memory) -> GraphSampler | None:
        """Return the sampler for batches of this many rows, of memories like this one.

        Rows end, and in a server others join: with powers of two, a few samplers serve every number, and all of
        them together take at most twice the memory of the largest.
        """
        size, width = power_of_two(rows), width_of_sources(memory)
        if (size, width) not in self.samplers:
            fixed = fixed_memory(self.network, memory, size)
            new = (
                None
                if fixed is None
                else GraphSampler(self.network, fixed, self.scores, size, self.bos, self.slides)
            )
            self.samplers[size, width] = new
        return self.samplers[size, width]

    def single(self) -> GraphSampler:
        """Return the sampler of one row of a Transformer, whose cache the readers and drafters share."""
        sampler = self.sampler(1, self.network.begin(1))
        assert sampler is not None
        return sampler

    def reader(self, tokens: int) -> GraphReader:
        """Return the reader of this many tokens of one row."""
        if tokens not in self.readers:
            self.readers[tokens] = GraphReader(self.network, self.single(), tokens)
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
            self.drafters[key] = GraphDrafter(self.network, self.single(), guesses, rules.choose)
        return self.drafters[key]

    def _table(self, model: Any) -> GuessTable | None:
        """Return the table of a model that drafts, on the device of the network."""
        if model not in self._tables:
            best_tokens = offered(model, "best_tokens")
            known = best_tokens and best_tokens(LONGEST)
            self._tables[model] = None if known is None else GuessTable(known, self.network.head.weight.device)
        return self._tables[model]
