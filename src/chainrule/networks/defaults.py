"""Values for settings that are left open, from the text and from how much of it a run can read.

docs/defaults.md has the measurements that these rules come from.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

Values: TypeAlias = dict[str, Any]
"""Values of settings by name."""

MINUTES = 5.0
"""The time of a run where neither minutes nor steps nor epochs are set."""

MOST_EPOCHS = 200
"""The most passes over a text, however much time there is."""

TOKENS_PER_PARAMETER = 3.0
"""A network is worth its cost if it reads at least this many tokens for each parameter of its hidden layers."""

PARAMETERS_PER_TOKEN = 10.0
"""The most parameters in hidden layers for each token of the text: more would learn it by heart."""

_MULTIPLE = 64


@dataclass(frozen=True)
class RunEstimate:
    """What is known about the length of a run before its first step."""

    tokens: int
    """The number of tokens in the text."""
    seen: float
    """The number of tokens that the run will read, roughly; a token that is read twice counts twice."""
    vocab_size: int = 0

    @property
    def epochs(self) -> float:
        """The number of passes over the text."""
        return self.seen / max(1, self.tokens)


@dataclass(frozen=True)
class Cost:
    """The parameters that one token is multiplied by, on its way through a network."""

    hidden: int
    """In hidden layers."""
    head: int
    """In the output layer, which grows with the vocabulary."""

    @property
    def flops(self) -> float:
        """Floating-point operations to train on a token: a product and a sum, once forward and twice backward."""
        return 6.0 * (self.hidden + self.head)


def batch_size(run: RunEstimate, least: int = 256) -> int:
    """Return the tokens of a step: the power of two below the square root of all tokens read, but at least `least`.

    So the number of steps and their size grow alike. A step takes no more than an eighth of the text, so that an
    epoch has a few steps.

    >>> batch_size(RunEstimate(tokens=10**6, seen=1.2e6))
    1024
    """
    power = 1 << int(math.log2(max(1.0, run.seen)) / 2)
    return max(_MULTIPLE, min(max(least, power), 1 << 16, run.tokens // 8 // _MULTIPLE * _MULTIPLE))


def least_batch(optimiser: str, width: int) -> int:
    """Return the fewest tokens of a step: Muon's products cost as much as reading 5 tokens for each feature."""
    return max(256, 4 * width) if optimiser == "muon" else 256


def dropout_share(run: RunEstimate) -> float:
    """Return the share to drop: nothing for up to four epochs, then more with each doubling, half at most.

    >>> [round(dropout_share(RunEstimate(100, 100 * epochs)), 2) for epochs in (1, 4, 8, 32, 200)]
    [0.0, 0.0, 0.11, 0.33, 0.5]
    """
    return round(min(0.5, max(0.0, 0.11 * math.log2(max(run.epochs, 1e-9) / 4))), 3)
