"""Averaged weights: a mean over the last steps, often better than the weights of any one of them.

ema    a_t = a_{t-1} + (w_t - a_{t-1}) / min(t, τ), τ a twentieth of the steps: the plain mean at first, then
       one that forgets what is more than about τ steps old
tail   the plain mean since validation stopped getting better: none of the last five validations was the best
       (Merity et al. 2018), at the latest since the last fifth of the steps began
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor

from chainrule.networks.training_settings import STALLED, Averaging

EMA_SHARE, TAIL_SHARE = 0.05, 0.2


class WeightAverage:
    """The average of some weights over the steps of a run."""

    def __init__(self, kind: Averaging, weights: Mapping[str, Tensor]) -> None:
        self.kind, self.weights = kind, dict(weights)
        self.values: dict[str, Tensor] = {}
        self.count = 0

    @property
    def is_on(self) -> bool:
        """True if there is an average yet."""
        return self.count > 0

    def update(self, step: int, expected: float, stalled: int) -> None:
        """Add the weights after `step` steps of `expected` ones; the last `stalled` validations were no better."""
        if self.kind == "none":
            return
        is_late = stalled >= STALLED or step >= (1 - TAIL_SHARE) * expected
        if self.kind == "tail" and not self.is_on and not is_late:
            return
        if not self.values:
            self.values = {name: torch.zeros_like(weight) for name, weight in self.weights.items()}
        self.count += 1
        horizon = max(1.0, EMA_SHARE * expected) if self.kind == "ema" else self.count
        now = [weight.detach() for weight in self.weights.values()]
        torch._foreach_lerp_(list(self.values.values()), now, 1 / min(self.count, horizon))

    def replan(self, step: int, before: float, now: float) -> None:
        """Drop, after `step` steps, a tail average whose last fifth was that of a run of `before` steps.

        The run has `now` steps, and its last fifth begins later.
        """
        began, late = step - self.count + 1, 1 - TAIL_SHARE
        if self.kind == "tail" and began >= late * before and step < late * now:
            self.count, self.values = 0, {}

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Return a block in which the weights are the average, if there is one."""
        if not self.is_on:
            yield
            return
        self._swap()
        try:
            yield
        finally:
            self._swap()

    @torch.no_grad()
    def _swap(self) -> None:
        for name, weight in self.weights.items():
            now = weight.detach().clone()
            weight.copy_(self.values[name])
            self.values[name].copy_(now)

    def load(self, values: Mapping[str, Tensor], count: int) -> None:
        """Continue from saved averages over `count` steps."""
        self.count = count
        self.values = {name: values[name].to(self.weights[name]) for name in self.weights} if count else {}
