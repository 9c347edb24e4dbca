"""One token a row through a Transformer on a CPU, for torch and the tape, by the compiled loops of loops_on_cpu.py.

Axes: B rows, D features, N numbers of a product, G heads of keys and values, S positions, K features of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from queue import SimpleQueue
from threading import Thread
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from chainrule.networks.transformer.config import TransformerConfig
from chainrule.system.parallel import Patience

Array: TypeAlias = NDArray[Any]
Weights: TypeAlias = Sequence[Array | None]

NO_TABLE = np.zeros((0, 0), np.float32)
NO_SLOPES = NO_TABLE[0:0].ravel()

PATIENCE = Patience(1e6)
"""Counts the tokens that all networks read, each of which takes loops about a millisecond less."""

_MUCH = 500_000
"""Products of weights and rows from which a second thread pays."""
_ACTIVATIONS = ("gelu", "gelu_erf", "relu", "relu2", "swiglu")  # in the order of loops_on_cpu.py


class Block(NamedTuple):
    """The weights of a block, as matrices [N, D] and vectors, None where there is none; the loops' columns."""

    gain_1: Array | None
    shift_1: Array | None
    qkv: Array
    qkv_bias: Array | None
    out: Array
    out_bias: Array | None
    gain_2: Array | None
    shift_2: Array | None
    up: Array
    up_bias: Array | None
    down: Array
    down_bias: Array | None


@dataclass(frozen=True)
class Step:
    """A Transformer, as the loops see it: its weights, and the tables of its positions, empty where it has none."""

    config: TransformerConfig
    blocks: Sequence[Block]
    norm: tuple[Array | None, Array | None]
    """The gain and the shift of the last norm."""
    cos_TI: Array
    sin_TI: Array
    slopes_H: Array
    threads: int

    def read(
        self, x_BD: Array, keys_LBGSK: Array, values_LBGSK: Array, places_B: Array, is_token_B: Array | None
    ) -> Array:
        """Return the features [B, D] of tokens with the embeddings x, which are written over.

        Keys and values are written to the cache, at the rows' places. None: each row has a token, and no padding.
        """
        from chainrule.networks.transformer import loops_on_cpu as loops

        config, rows = self.config, len(x_BD)
        taken, kept = (heads * config.head_size for heads in (config.heads, config.kv_heads))
        halves = 2 if config.activation == "swiglu" else 1
        weights_LW = np.zeros((len(self.blocks) + 1, loops.WEIGHTS), np.int64)
        for layer, weights in enumerate((*self.blocks, self.norm)):
            weights_LW[layer, : len(weights)] = [0 if w is None else _address(w) for w in weights]
        design = loops.Design(
            config.heads, config.kv_heads, config.head_size, config.hidden, _ACTIVATIONS.index(config.activation),
            config.norm == "layernorm", config.qk_norm, config.norm_eps,
        )  # fmt: skip
        qkv_BN, taken_BN, hidden_BN, y_BD = (
            np.empty((rows, size), np.float32)
            for size in (taken + 2 * kept, taken, halves * config.hidden, config.width)
        )
        board_PI = np.zeros((len(self.blocks) * loops.PHASES + 1, loops.BOARD), np.int64)
        call = (
            board_PI, design, weights_LW, x_BD, y_BD, qkv_BN, taken_BN, hidden_BN, keys_LBGSK, values_LBGSK,
            places_B, np.ones(rows, np.bool_) if is_token_B is None else is_token_B,
            self.cos_TI, self.sin_TI, self.slopes_H,
        )  # fmt: skip
        products = rows * len(self.blocks) * config.width * (2 * taken + 2 * kept + (halves + 1) * config.hidden)
        helpers = self.threads - 1 if products >= _MUCH else 0
        _HELPERS.ask(helpers, loops.read_tokens, call)
        loops.read_tokens(*call)
        return y_BD


def suits(config: TransformerConfig) -> bool:
    """Return True if the loops compute this design."""
    return config.placement == "pre" and config.residual and not config.qk_gain


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


_HELPERS = _Helpers()
