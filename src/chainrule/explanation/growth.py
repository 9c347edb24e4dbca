"""What a network computes for a text, by the length of the text: operations, how many in a row, and time.

The forward pass is recorded on a tape, which unrolls a recurrent network step by step. So nothing here knows a
network: a product of matrices is counted where the tape has one.

>>> from chainrule.contract.kinds import find_kind
>>> from chainrule.settings import closed, parse
>>> kind = find_kind("elman")
>>> grown = growth(kind, closed(parse(kind.settings, {"layers": 1})), 100, [8, 16], repeats=1)
>>> [one.in_a_row for one in grown], round(exponent(grown, "flops"), 2)
([10, 18], 1.0)
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from chainrule.autodiff import Tape
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.tape.tape import Module
from chainrule.contract.kinds import Kind
from chainrule.errors import SettingsError
from chainrule.system.plugins import import_object
from chainrule.system.threads import one_thread

REPEATS = 5
"""The steps of which the time is the median."""
_BACKWARD = 2
"""A product of the forward pass has two in the backward pass, one for each factor."""


@dataclass(frozen=True)
class OfLength:
    """A training step on one text of some length."""

    length: int
    flops: int
    """Multiplications and additions in the matrix products of the step, forward and backward."""
    in_a_row: int
    """The matrix products of the forward pass that wait for each other: the rest can be computed side by side."""
    seconds: float
    """The median time of a step in NumPy, on one core, after a step that does not count."""


def growth(
    kind: Kind, settings: Any, vocab_size: int, lengths: Sequence[int], *, repeats: int = REPEATS
) -> list[OfLength]:
    """Count and time a training step of an untrained network of the kind on a text of each length."""
    if kind.network is None:
        raise SettingsError(
            f"operations by length are counted for networks that the tape computes, not {kind.name}"
        )
    if any(field.name == "window" for field in fields(settings)):
        settings = replace(settings, window=max(*lengths, settings.window or 0))
    made: type[TapeNetwork] = import_object(kind.network)
    randomness = np.random.default_rng(0)
    network = made(settings, vocab_size, 0, made.initial(settings, vocab_size, randomness))
    network.regularise(0.0)
    return [_measured(network, randomness.integers(vocab_size, size=(2, 1, length)), repeats) for length in lengths]


def exponent(found: Sequence[OfLength], figure: str) -> float:
    """Return the power of the length by which a figure grows, from the last length but one to the last."""
    before, after = found[-2:]
    ratio = getattr(after, figure) / getattr(before, figure)
    return math.log(ratio) / math.log(after.length / before.length)


def _measured(network: TapeNetwork, inputs_and_targets: np.ndarray, repeats: int) -> OfLength:
    with Tape() as tape:
        network.loss(*inputs_and_targets)
        flops, in_a_row = sum(one.flops for one in tape.modules), _in_a_row(tape.modules)
        tape.clear()
    seconds, randomness = [], np.random.default_rng(0)  # as in training, where a recurrent layer is one module
    with one_thread():
        for _ in range(1 + repeats):
            began = time.process_time()  # without what other programs take
            with Tape(reuse=True) as tape:
                network.loss(*inputs_and_targets, randomness=randomness)
                tape.backward()
            seconds.append(time.process_time() - began)
    return OfLength(inputs_and_targets.shape[-1], (1 + _BACKWARD) * flops, in_a_row, statistics.median(seconds[1:]))


def _in_a_row(modules: Sequence[Module]) -> int:
    """Return the most products on one path through the graph; modules stand after those that they read."""
    longest: dict[int, int] = {}
    for one in modules:
        before = max((longest.get(id(node), 0) for node in one.in_modules), default=0)
        longest[id(one)] = before + (one.flops > 0)
    return max(longest.values())
