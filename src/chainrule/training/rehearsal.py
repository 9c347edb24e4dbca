"""What is decided before the first step: the precision, whether to compile, how many steps fit into the time.

Decisions are made by timing a few steps on the real batches; the weights, and chance, are put back as they were.
They are made once: a run that is resumed keeps them, so that it depends on steps only and no longer on the clock,
unless it is told anew how long it is, or how to compute.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Set
from dataclasses import replace
from typing import Any

import torch

from chainrule.devices import has_fast_bfloat16
from chainrule.errors import TrainingError
from chainrule.training.batches import Source
from chainrule.training.layouts import Layout
from chainrule.training.optim import make_optimiser
from chainrule.training.pace import Times, between_validations, pace, planned_steps
from chainrule.training.plan import HOW_IT_IS_COMPUTED, HOW_LONG, TrainingSettings
from chainrule.training.state import Decisions, Place, State
from chainrule.training.step import Memories, Stepper, take_step
from chainrule.training.trainable import Trainable
from chainrule.training.validate import validate

WORTH_TRYING_PRECISIONS = 60.0
"""Seconds of a run from which on it pays to time both precisions on a CPU."""

WORTH_COMPILING = {"cuda": 300.0, "cpu": 1800.0}
"""Seconds of a run from which on compiling, a minute or so, is repaid; a CPU gains a tenth from it at best."""

_TIMED_SECONDS, _TIMED_STEPS = 1.0, 20
_CLEARLY_FASTER = 0.95


class Rehearsal:
    """Makes the decisions for a network, its settings and its texts."""

    def __init__(
        self,
        network: Trainable,
        settings: TrainingSettings,
        device: torch.device,
        train: tuple[Layout, Source],
        valid: tuple[Layout, Source] | None,
    ) -> None:
        self.network, self.settings, self.device = network, settings, device
        self.train, self.valid = train, valid
        self.measured: dict[str, Any] = {}

    def decide(self) -> Decisions:
        """All decisions."""
        began = time.perf_counter()
        stepper = self._choose()
        total, every = self._pace(stepper, began)
        return Decisions(stepper.bfloat16, stepper.compiled, stepper.recorded, total, every, self.measured)

    def decide_anew(self, state: State, changed: Set[str]) -> Decisions:
        """For a run that goes on by settings of which some are others; where none of them are, all stays."""
        decided = state.decisions
        if changed & set(HOW_IT_IS_COMPUTED):
            chosen = self._choose()
            decided = replace(decided, bfloat16=chosen.bfloat16, compiled=chosen.compiled, recorded=chosen.recorded)
        if changed & set(HOW_LONG):
            stepper = Stepper.decided(self.network, self.device, decided)
            total, every = self._pace(stepper, time.perf_counter() - state.seconds, state.step)
            decided = replace(decided, total=total, validate_every=every)
        elif "validate_every" in changed:
            every = between_validations(self.settings, self.train[0], decided.total)
            decided = replace(decided, validate_every=every)
        return replace(decided, measured={**decided.measured, **self.measured})

    def _choose(self) -> Stepper:
        """What takes steps as the settings say, or as is fastest."""
        return self._choose_recording(self._choose_compiling(self._choose_precision()))

    def _pace(self, stepper: Stepper, began: float, done: int = 0) -> tuple[int, int]:
        times = None if self.settings.minutes is None else self._times(stepper, began)
        return pace(self.settings, self.train[0], times, done)

    def _choose_precision(self) -> Stepper:
        plain, small = (Stepper(self.network, self.device, bfloat16=wanted) for wanted in (False, True))
        wanted = self.settings.precision
        if wanted != "auto":
            return plain if wanted == "float32" else small
        if self.device.type == "cuda":
            return small if torch.cuda.is_bf16_supported() else plain
        if self.device.type != "cpu" or self._guess(plain) < WORTH_TRYING_PRECISIONS or not has_fast_bfloat16():
            return plain
        seconds, in_bfloat16 = self._seconds(plain), self._seconds(small)
        self.measured |= {"float32_step_seconds": seconds, "bfloat16_step_seconds": in_bfloat16}
        return small if in_bfloat16 < _CLEARLY_FASTER * seconds else plain

    def _choose_compiling(self, stepper: Stepper) -> Stepper:
        wanted = self.settings.compile
        if wanted == "no":
            return stepper
        if wanted == "auto" and not self._is_worth_compiling(stepper):
            return stepper
        compiled = Stepper(self.network, self.device, bfloat16=stepper.bfloat16, compiled=True)
        if wanted == "yes":
            return compiled
        seconds = self._seconds(stepper)
        try:
            in_compiled = self._seconds(compiled)
        except (RuntimeError, TrainingError) as error:  # no compiler, or code or memory that it cannot do with
            self.measured["compile_error"] = str(error).partition("\n")[0]
            return stepper
        self.measured |= {"eager_step_seconds": seconds, "compiled_step_seconds": in_compiled}
        return compiled if in_compiled < _CLEARLY_FASTER * seconds else stepper

    def _is_worth_compiling(self, stepper: Stepper) -> bool:
        if self.device.type == "cuda":
            return self._guess(stepper) >= WORTH_COMPILING["cuda"]
        # a CPU gains so little that steps are not timed only to know how long they take
        return self.device.type == "cpu" and 60 * (self.settings.minutes or 0) >= WORTH_COMPILING["cpu"]

    def _choose_recording(self, stepper: Stepper) -> Stepper:
        layout, _ = self.train
        is_one_part = layout.size.rows <= layout.size.rows_at_once
        if self.device.type != "cuda" or not layout.one_shape or not is_one_part:
            return stepper
        recorded = Stepper(
            self.network, self.device, bfloat16=stepper.bfloat16, compiled=stepper.compiled, recorded=True
        )
        seconds = self._seconds(stepper)
        try:
            in_recorded = self._seconds(recorded)
        except (RuntimeError, TrainingError) as error:  # what cannot be recorded, or takes too much memory
            self.measured["record_error"] = str(error).partition("\n")[0]
            return stepper
        self.measured |= {"asked_step_seconds": seconds, "recorded_step_seconds": in_recorded}
        return recorded if in_recorded < _CLEARLY_FASTER * seconds else stepper

    def _guess(self, stepper: Stepper) -> float:
        """About how many seconds the run takes."""
        if self.settings.minutes is not None:
            return 60 * self.settings.minutes
        planned = planned_steps(self.settings, self.train[0])
        assert planned is not None
        return planned * self._seconds(stepper, at_most=2)

    def _times(self, stepper: Stepper, began: float) -> Times:
        """What a step and a validation take, and what is left of the minutes since `began`."""
        assert self.settings.minutes is not None
        seconds, validation = self._seconds(stepper), self._validation_seconds(stepper)
        self.measured |= {"step_seconds": seconds, "validation_seconds": validation}
        return Times(seconds, validation, began + 60 * self.settings.minutes - time.perf_counter())

    def _validation_seconds(self, stepper: Stepper) -> float:
        """What a validation takes, told from its first steps."""
        if self.valid is None:
            return 0.0
        steps = self.valid[0].count(None)
        timed = min(steps, 5)
        began = time.perf_counter()
        validate(stepper, *self.valid, most_steps=timed)
        return (time.perf_counter() - began) * steps / timed

    def _seconds(self, stepper: Stepper, at_most: int = _TIMED_STEPS) -> float:
        return undisturbed(self.network, self.device, lambda: self._timed(stepper, at_most))

    def _timed(self, stepper: Stepper, at_most: int) -> float:
        """Seconds of a step; the first, in which memory is laid out and code compiled or recorded, do not count."""
        layout, source = self.train
        optimiser = make_optimiser(self.network, self.settings)
        epoch, memories = layout.epoch(0), Memories()
        self.network.train()
        began, first = 0.0, 1 if stepper.recorded else 0
        for number in range(1 + first + at_most):
            batch = number % len(epoch)
            step = stepper.filled(epoch[batch], layout)
            after = take_step(stepper, optimiser, source, step, memories, 0.0, Place(number + 1, 0, batch))[2]
            memories = after if layout.carries and batch + 1 < len(epoch) else []
            if number == first:
                self._wait()
                began = time.perf_counter()
            elif number > first and time.perf_counter() - began > _TIMED_SECONDS:
                break
        self._wait()
        return (time.perf_counter() - began) / (number - first)

    def _wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def undisturbed(network: Trainable, device: torch.device, work: Callable[[], float]) -> float:
    """What `work` gives; afterwards weights and chance are as they were."""
    # kept on the CPU: what fits into the device's memory in training should fit in the rehearsal
    weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in network.state_dict().items()}
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        try:
            return work()
        finally:
            network.load_state_dict(weights)
