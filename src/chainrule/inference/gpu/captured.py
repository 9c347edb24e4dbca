"""The captured steps of one Transformer, each captured when it is first asked for."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from chainrule.contract.capabilities import DraftRules
from chainrule.contract.lm import offered
from chainrule.inference.gpu.graph_drafting import GraphDrafter, Guesses
from chainrule.inference.gpu.graph_reading import GraphReader
from chainrule.inference.gpu.graph_sampling import GraphSampler, LogProbs
from chainrule.inference.gpu.guess_table import LONGEST, GuessTable
from chainrule.inference.gpu.step import power_of_two
from chainrule.networks.transformer.decoder import Transformer

_MOST_DRAFTERS = 4


class CapturedSteps:
    """Samplers by the number of rows, readers by that of tokens, and drafters by their rules."""

    def __init__(self, network: Transformer, log_probs: LogProbs, bos: int) -> None:
        self.network, self.log_probs, self.bos = network, log_probs, bos
        self.samplers: dict[int, GraphSampler] = {}
        self.readers: dict[int, GraphReader] = {}
        self.drafters: dict[Any, GraphDrafter] = {}
        self.tokens_read = 0
        """How many times one token of one row was to be read."""
        self.lock = threading.RLock()
        """Held while a step is captured or replayed: all of them use the same arrays."""
        self._tables: weakref.WeakKeyDictionary[Any, GuessTable | None] = weakref.WeakKeyDictionary()

    def sampler(self, rows: int) -> GraphSampler:
        """The sampler for batches of so many rows.

        Rows end, and in a server others join: with powers of two, a few samplers serve every number, and all of
        them together take at most twice the memory of the largest.
        """
        size = power_of_two(rows)
        if size not in self.samplers:
            self.samplers[size] = GraphSampler(self.network, self.log_probs, size, self.bos)
        return self.samplers[size]

    def reader(self, tokens: int) -> GraphReader:
        """The reader of so many tokens of one row."""
        if tokens not in self.readers:
            self.readers[tokens] = GraphReader(self.network, self.sampler(1), tokens)
        return self.readers[tokens]

    def drafter(self, rules: DraftRules) -> GraphDrafter | None:
        """The drafter for a draft and a choice; None if a model that drafts has no table of contexts."""
        copies = rules.sources[0] is None
        # a model always has a guess, so what comes after it is never asked
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
        """The table of a model that drafts, on the device of the network."""
        if model not in self._tables:
            likeliest = offered(model, "likeliest")
            known = likeliest and likeliest(LONGEST)
            self._tables[model] = None if known is None else GuessTable(known, self.network.head.weight.device)
        return self._tables[model]
