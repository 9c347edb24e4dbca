"""One token a row through a Transformer on a CPU, for torch and the tape, by the compiled loops of loops_on_cpu.py.

Axes: B rows, D features, N numbers of a product, G heads of keys and values, S positions, K features of a head.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from threading import Thread, local
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.networks.transformer.config import TransformerConfig
from chainrule.system.parallel import Patience, announce, worth_a_kernel
from chainrule.system.threads import ThreadChoice

Array: TypeAlias = NDArray[Any]

_NO_TABLE, _NO_NUMBERS = np.zeros((0, 0), np.float32), np.zeros(0, np.float32)


class _UntilLoopsPay(Patience):
    """Waits for many more tokens where the loops are not compiled yet: that takes a machine about 20 s, once."""

    def count(self, amount: int) -> bool:
        """Count `amount` more tokens, and return True if loading the loops, or compiling them, now pays off."""
        return super().count(amount) and (worth_a_kernel(self._done, _SHARE_OF_COMPILING) or _are_compiled())


_SHARE_OF_COMPILING = 1e4  # nanoseconds of the time to load loops, for 3 ms of 20 s to compile them
PATIENCE = _UntilLoopsPay(1e6)
"""Counts the tokens that all networks read, each of which takes loops some milliseconds less."""


@cache
def _are_compiled() -> bool:
    """Return True if this machine keeps compiled loops."""
    from chainrule.networks.transformer.loops_on_cpu import read_tokens

    return any(Path(read_tokens.stats.cache_path).glob("loops_on_cpu.read_tokens-*.nbi"))


_MUCH = 500_000
"""Products of weights and rows from which a second thread pays."""
_FAULTS: list[Exception] = []  # of loading, compiling or running the loops: one, and they are not tried again
_ROWS = 8  # a step takes so many times longer as one more row adds to it
_ACTIVATIONS = ("gelu", "gelu_erf", "relu", "relu2", "swiglu")  # in the order of loops_on_cpu.py


class Block(NamedTuple):
    """The weights of a block, as matrices [N, D] and vectors, None where there is none; the loops' columns."""

    gain_1: Array | None
    shift_1: Array | None
    qkv: Array | None
    qkv_bias: Array | None
    out: Array | None
    out_bias: Array | None
    gain_2: Array | None
    shift_2: Array | None
    up: Array | None
    up_bias: Array | None
    down: Array | None
    down_bias: Array | None


class Ends(NamedTuple):
    """The weights before and after the blocks, in the columns of the last row of the loops' table."""

    gain: Array | None
    """Of the last norm."""
    shift: Array | None
    head: Array | None = None
    """None: no token is chosen, and the rest is not needed."""
    head_bias: Array | None = None
    embedding: Array | None = None
    added: Array | None = None
    """The vectors of positions that are added to embeddings."""
    embedding_gain: Array | None = None
    embedding_shift: Array | None = None


class Design(NamedTuple):
    """What the loops know of a network's design."""

    heads: int
    groups: int
    size: int
    """The features of a head."""
    hidden: int
    activation: int
    is_layernorm: bool
    normalises: bool
    """True if queries and keys are brought to one size."""
    eps: float
    scale: float
    """The factor of embeddings."""
    embedding_norm: bool

    @classmethod
    def of(cls, config: TransformerConfig) -> Design:
        """Return what the loops know of a configuration."""
        return cls(
            config.heads, config.kv_heads, config.head_size, config.hidden, _ACTIVATIONS.index(config.activation),
            config.norm == "layernorm", config.qk_norm, config.norm_eps,
            math.sqrt(config.width) if config.scaled_embedding else 1.0, config.embedding_norm,
        )  # fmt: skip


class TokenChoice(NamedTuple):
    """How tokens are chosen: what is added to ln p, then operations with values; and what becomes of the rows."""

    bos: int
    end: int
    """The token that ends a row; -1: there is none."""
    added_V: Array
    codes_O: Array
    """Codes of operations: temperature 1, top-k 2, top-p 3, min-p 4."""
    values_O: Array
    uniforms_BT: Array
    active_B: Array
    """True for rows that have not ended; it is written over, as are the next two."""
    tokens_BT: Array
    scores_BT: Array


_NONE = TokenChoice(
    -1, -1, _NO_NUMBERS, np.zeros(0, np.int64), np.zeros(0), np.zeros((0, 0)), np.zeros(0, np.bool_),
    np.zeros((0, 0), np.int64), _NO_TABLE,
)  # fmt: skip


class PositionTables(NamedTuple):
    """The tables of positions, empty where a network has none."""

    cos_TI: Array = _NO_TABLE
    """Of rotary positions: a row for each position, a column for each pair of features."""
    sin_TI: Array = _NO_TABLE
    slopes_H: Array = _NO_NUMBERS
    """What attention falls by for each token of distance."""


@dataclass(frozen=True)
class Step:
    """A Transformer, as the loops see it."""

    config: TransformerConfig
    blocks: Sequence[Block]
    ends: Ends
    positions: PositionTables
    threads: int

    def read(
        self, x_BD: Array, cache: tuple[Array, Array], places_B: Array, is_token_B: Array | None
    ) -> Array | None:
        """Return the features [B, D] of tokens with the embeddings x, which are written over; None if it failed.

        Keys and values are written to the cache, at the rows' places. `is_token_B` is None where no row is padding.
        """
        features_BD = np.zeros_like(x_BD)
        is_token_B = np.ones(len(x_BD), np.bool_) if is_token_B is None else is_token_B.copy()
        rows_B = features_BD, places_B.copy(), is_token_B
        return features_BD if self._run(_NONE, x_BD, cache, rows_B) else None

    def write(self, features_BD: Array, cache: tuple[Array, Array], places_B: Array, choice: TokenChoice) -> bool:
        """Write the tokens of a choice; features and places become those after the tokens. False if it failed."""
        rows_B = features_BD, places_B, np.zeros(len(features_BD), np.bool_)
        return self._run(choice, np.zeros_like(features_BD), cache, rows_B)

    def _run(
        self, choice: TokenChoice, x_BD: Array, cache: tuple[Array, Array], rows_B: tuple[Array, Array, Array]
    ) -> bool:
        """Call the loops on all threads; False if they do not work on this machine.

        `cache` has keys and values; `rows_B` the features, the place, and whether there is a token, of each row.
        """
        try:
            from chainrule.networks.transformer import loops_on_cpu as loops

            config, rows, blocks = self.config, len(x_BD), len(self.blocks)
            taken, kept = (heads * config.head_size for heads in (config.heads, config.kv_heads))
            hidden = (2 if config.activation == "swiglu" else 1) * config.hidden
            weights_LW = np.zeros((blocks + 1, loops.WEIGHTS), np.int64)
            for layer, weights in enumerate((*self.blocks, self.ends)):
                weights_LW[layer, : len(weights)] = [0 if w is None else _address(w) for w in weights]
            sizes = config.width, taken + 2 * kept, taken, hidden, len(choice.added_V)
            room = x_BD, *(np.empty((rows, size), np.float32) for size in sizes)
            turns = (blocks * loops.PHASES + loops.ENDS) * max(choice.tokens_BT.shape[1], 1)
            call = (
                np.zeros((turns, loops.BOARD), np.int64), Design.of(config), weights_LW, self.positions,
                choice, room, cache, rows_B,
            )  # fmt: skip
            products = rows * blocks * config.width * (2 * taken + 2 * kept + hidden + config.hidden)
            threads = _THREADS.paying(self.threads if products >= _MUCH else 1)
            began = time.perf_counter()
            _HELPERS.ask(threads.threads - 1, loops.read_tokens, call)
            loops.read_tokens(*call)
            threads.step_took((time.perf_counter() - began) / (turns * (rows + _ROWS)))
        except Exception as error:
            _FAULTS.append(error)
            announce(f"compiled loops do not work here, so Transformers write slower: {error}")
        return not _FAULTS


def suits(config: TransformerConfig) -> bool:
    """Return True if the loops compute this design, and work on this machine."""
    return config.placement == "pre" and config.residual and not config.qk_gain and not _FAULTS


def _address(weight: Array) -> int:
    """Return where the numbers of a weight lie."""
    if weight.dtype != np.float32 or not weight.flags.c_contiguous:
        raise ValueError(f"the loops take contiguous arrays of single precision, not {weight.dtype}")
    return int(weight.__array_interface__["data"][0])


class _Helpers:
    """Threads that make the same call as the one that asks them, and share its work."""

    def __init__(self) -> None:
        self._threads: list[Thread] = []
        self._calls: SimpleQueue[tuple[Any, tuple[Any, ...]]] = SimpleQueue()

    def ask(self, number: int, function: Any, arguments: tuple[Any, ...]) -> None:
        """Have so many threads make a call, soon; nobody waits for them."""
        if not all(thread.is_alive() for thread in self._threads):  # in a process that was forked
            self.__init__()  # type: ignore[misc]
        while len(self._threads) < number:
            self._threads.append(Thread(target=self._help, name="chainrule-helper", daemon=True))
            self._threads[-1].start()
        for _ in range(number):
            self._calls.put((function, arguments))

    def _help(self) -> None:
        calls = self._calls
        while True:
            function, arguments = calls.get()
            function(*arguments)
            del function, arguments


class _Threads(local):
    """How many threads pay, for each thread that calls: another program may hold one of the cores."""

    def __init__(self) -> None:
        self._choices: dict[int, ThreadChoice] = {}

    def paying(self, most: int) -> ThreadChoice:
        """Return the choice of at most so many threads."""
        if most not in self._choices:
            self._choices[most] = ThreadChoice(most, use=lambda threads: None)
        return self._choices[most]


_HELPERS, _THREADS = _Helpers(), _Threads()
