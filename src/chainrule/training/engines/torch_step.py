"""A step of a torch network: its gradients, by micro-batches where a batch does not fit, the update, and its mode.

The mode is the precision, whether to compile, and whether to capture a CUDA graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from chainrule.arrays import PAD
from chainrule.errors import TrainingError
from chainrule.networks.network import BatchLoss, Trainable
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.devices import expect_slow_bfloat16, has_fast_bfloat16
from chainrule.training.checkpoints.flatten import flatten
from chainrule.training.engines.base import Timer
from chainrule.training.engines.cuda_graph import StepGraph, copied
from chainrule.training.layouts import Layout, Rows, Step
from chainrule.training.objectives import Gatherer
from chainrule.training.optimisers import Optimiser
from chainrule.training.run_state import Mode, Place
from chainrule.training.team import ALONE, Team, whole

Memories: TypeAlias = list[Any]
"""The network's memory after each micro-batch of a step; an empty list at the beginning of a text."""

_Shape: TypeAlias = tuple[Any, ...]
"""The shapes of a batch's arrays, and its targets where their number is part of a graph."""


class Stepper:
    """Computes gradients of a network's loss in one mode, and takes steps."""

    def __init__(self, network: Trainable, device: torch.device, mode: Mode, team: Team = ALONE) -> None:
        """`team` are the processes over which gradients are averaged."""
        self.network, self.device = network, device
        self.mode = mode._replace(recorded=mode.recorded and device.type == "cuda")
        if mode.bfloat16:
            expect_slow_bfloat16(device.type)
        self.graphs: dict[_Shape, StepGraph] = {}
        loss: Callable[..., BatchLoss] = network.loss
        if mode.compiled:
            # code for each shape: code for any shape would depend on which shapes came first, and a resumed run
            # would then not be the same to the last bit
            loss = torch.compile(network.loss, dynamic=False)
        self.loss = team.averaging(network, loss)

    def autocast(self) -> AbstractContextManager[Any]:
        """Return a block with matrix products in bfloat16, if that is the mode."""
        if not self.mode.bfloat16:
            return nullcontext()
        # a graph must not use weights in bfloat16 that were cast, and cached, before its capture began
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=not self.mode.recorded)

    def take(
        self, step: Step, gatherer: Gatherer, memories: Memories, optimiser: Optimiser, rate: float
    ) -> tuple[Tensor, Tensor, Memories]:
        """Take a step at `rate` times the learning rate, as a graph if there is one for it.

        Returns the mean loss and the norm of its gradient, both on the device, and the new memories.
        """
        graph = None
        if self._is_recordable(step, memories):
            batch, memory = gatherer.batch(step.parts[0]), memories[0] if memories else None
            graph = self._graph(step, batch, memory, optimiser)
        if graph is None:
            loss, after = self.gradients(step, gatherer, memories)
            return loss, whole(optimiser.step(rate)), after
        optimiser.set_rate(rate)
        nats, norm, memory = graph.replay(*batch, memory)
        return nats / step.targets, optimiser.step(rate) if norm is None else norm, [memory]

    def gradients(self, step: Step, gatherer: Gatherer, memories: Memories) -> tuple[Tensor, Memories]:
        """Add the gradients of the mean loss of a step; returns that loss, on the device, and the new memories."""
        # L = 1/n Σ -ln p over the n targets of the whole step, so that micro-batches add up to one batch
        nats_of_parts: list[Tensor] = []
        after: Memories = []
        for number, rows in enumerate(step.parts):
            memory = memories[number] if memories else None
            with self.loss.part(is_last=number == len(step.parts) - 1):
                share = rows.targets / max(1, step.targets)
                found = self._add_gradients(*gatherer.batch(rows), memory, step.targets, share)
            nats_of_parts.append(found.nats)
            after.append(found.memory)
        return torch.stack(nats_of_parts).sum() / step.targets, after

    def _add_gradients(
        self, inputs_BT: Any, targets_BT: Tensor, memory: Any, step_targets: int | Tensor, share: float
    ) -> BatchLoss:
        """Add the gradients of a micro-batch that has this share of the targets of its step.

        Returns the loss of the micro-batch, detached from the graph.
        """
        with _deterministic() if self.mode.compiled and self.device.type == "cpu" else nullcontext():
            with self.autocast():
                found = self.loss(inputs_BT, targets_BT, memory)
            loss = found.nats / step_targets
            if found.penalty is not None:
                loss = loss + found.penalty * share
            (loss * self.loss.factor if self.loss.factor != 1 else loss).backward()  # type: ignore[no-untyped-call]
        return BatchLoss(found.nats.detach(), None, None if found.memory is None else found.memory.detach())

    def _is_recordable(self, step: Step, memories: Memories) -> bool:
        """Return True if a CUDA graph can compute the step: one micro-batch, and not the first of a memory."""
        return self.mode.recorded and len(step.parts) == 1 and (self.network.window is not None or bool(memories))

    def _graph(self, step: Step, batch: Any, memory: Any, optimiser: Optimiser) -> StepGraph | None:
        """Return the graph for a batch, captured now if it is the first of its shape; None: take a plain step.

        Batches that are filled come in few shapes, each of which has a graph. Otherwise there is one graph, for the
        shape that nearly all steps have.
        """
        inputs, targets_BT = batch
        is_filled = step.parts[0].is_filled
        if not is_filled and isinstance(inputs, tuple):
            return None  # rows with padding, and a mask: of another shape than the others
        shapes = tuple(tensor.shape for tensor in flatten(inputs).values())
        shape = shapes, None if is_filled else step.targets
        if shape in self.graphs or not self._is_worth_capturing(step, optimiser):
            return self.graphs.get(shape)
        if not is_filled:
            self.graphs.clear()

        def gradients(inputs: Any, targets_BT: Tensor, memory: Any) -> BatchLoss:
            # a filled batch has any number of targets: the graph counts them
            counted = (targets_BT != PAD).sum().clamp(min=1) if is_filled else step.targets
            return self._add_gradients(inputs, targets_BT, memory, counted, 1.0)

        beside = next(iter(self.graphs.values()), None)
        update = optimiser.update if optimiser.can_be_captured else None
        found = StepGraph(self.network, gradients, update, inputs, targets_BT, copied(memory), beside)
        self.graphs[shape] = found
        return found

    def _is_worth_capturing(self, step: Step, optimiser: Optimiser) -> bool:
        """Return True if a graph may be captured for a step whose shape has none."""
        if optimiser.can_be_captured and not optimiser.has_state:
            return False  # its state would be made anew in each replay: the first step is a plain one
        # a resumed run may begin with the last, short step of an epoch: a larger one is captured in its place
        return step.parts[0].is_filled or all(targets < step.targets for _, targets in self.graphs)

    def plain_loss(self, *batch: Any) -> BatchLoss:
        """Return the loss of inputs, targets and memory, without gradients and not compiled."""
        with torch.no_grad(), self.autocast():
            return self.network.loss(*batch)

    def filled(self, step: Step, layout: Layout) -> Step:
        """Return the step with its micro-batches filled up: code and graphs are made for few shapes."""
        if self.mode.recorded and layout.few_shapes:
            return replace(step, parts=[_filled(rows) for rows in step.parts])
        if not self.mode.compiled:
            return step
        if layout.one_shape:
            last = step.parts[-1]
            return replace(step, parts=[*step.parts[:-1], _padded(last, layout.size.rows_at_once, last.width)])
        shapes = [compiled_shape(rows.width, layout) for rows in step.parts]
        return replace(step, parts=[_padded(rows, *shape) for rows, shape in zip(step.parts, shapes, strict=True)])

    def smaller_batch(self, step: Step, gatherer: Gatherer, place: Place) -> TrainingError:
        """Return the error for a step that does not fit into memory; it proposes a device_batch that fits."""
        largest = max(step.parts, key=lambda rows: len(rows.starts_B) * rows.width)
        count = len(largest.starts_B) // 2
        while count >= 1:
            if self._fits(Step([largest.taken(slice(-count, None))]), gatherer):
                return TrainingError(
                    f"{place}: {len(largest.starts_B) * largest.width:,} tokens at once do not fit into the memory "
                    f"of {self.device}; {count * largest.width:,} do: set device_batch={count * largest.width}"
                )
            count //= 2
        return TrainingError(
            f"{place}: not even one row of {largest.width:,} tokens fits into the memory of {self.device}: "
            "set a smaller length, or make the network smaller"
        )

    def _fits(self, step: Step, gatherer: Gatherer) -> bool:
        """Return True if the gradients of a step can be computed; no gradient is left behind."""
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        fits = True
        try:
            self.gradients(step, gatherer, [])
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            fits = False
        for parameter in self.network.parameters():
            parameter.grad = None
        return fits


# -- errors -----------------------------------------------------------------------------------------------


def is_out_of_memory(error: BaseException) -> bool:
    """Return True if an error says that the device or the host ran out of memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error).lower() for words in ("can't allocate memory", "not enough memory", "out of memory")
    )


MOST_SHAPES = 7
"""How many shapes code is compiled for; torch gives up compiling after eight."""
_SPREAD = 32  # columns above the mean that are enough for rows of random length


def compiled_shape(width: int, layout: Layout) -> tuple[int, int]:
    """Return the rows and the width that a micro-batch of this width is padded to, one of few shapes.

    Lines are padded to the greatest length, its half, the half of that, and so on, and to so many rows that every
    micro-batch of that width fits. Rows of random lengths, which are as many in all steps, need few widths.
    """
    size = layout.size
    if layout.carries:
        widths = [size.length // 2 + _SPREAD, size.length + _SPREAD, 2 * size.length + _SPREAD]
        return size.rows_at_once, next((wide for wide in widths if wide >= width), width)
    widths = [-(-size.length // 2**k) for k in range(MOST_SHAPES - 1, -1, -1)]
    wide = next(wide for wide in widths if wide >= width)
    narrower = max((other for other in widths if other < wide), default=0)
    return max(1, size.at_once // (narrower + 1)), wide


@contextmanager
def _deterministic() -> Iterator[None]:
    """Return a block in which compiled code adds in a fixed order; otherwise threads add gradients in any order."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def _padded(rows: Rows, count: int, width: int) -> Rows:
    """Return the rows followed by empty ones, `count` in all, with columns of padding up to `width`."""
    none = np.zeros(max(0, count - len(rows.starts_B)), np.int64)
    starts_B, lengths_B, skips_B = (
        np.concatenate([array, none]) for array in (rows.starts_B, rows.lengths_B, rows.skips_B)
    )
    return Rows(starts_B, lengths_B, skips_B, width, rows.epoch, rows.targets)


def _filled(rows: Rows) -> Rows:
    """Return the rows filled up to the shape that there is room for."""
    return rows if rows.room is None else replace(_padded(rows, *rows.room), is_filled=True)


def is_from_compiler(error: BaseException) -> bool:
    """Return True if an error comes from torch.compile: there is no C++ compiler, or it cannot compile the code."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


# -- the choice of a mode -------------------------------------------------------------------------------


WORTH_TRYING_PRECISIONS = 60.0
"""The shortest run, in seconds, for which it pays to time both precisions on a CPU."""

WORTH_COMPILING = {"cuda": 300.0, "cpu": 1800.0}
"""The shortest run, in seconds, that repays a minute or so of compiling; a CPU gains a tenth from it at best."""

_CLEARLY_FASTER = 0.95


def choose_mode(settings: TrainingSettings, device: torch.device, layout: Layout, timer: Timer) -> Mode:
    """Return the mode of the settings; steps are timed for the choices that they leave open."""
    mode = Mode(bfloat16=_is_in_bfloat16(settings, device, timer))
    compiled = mode._replace(compiled=True)
    if settings.compile == "yes":
        mode = compiled
    elif settings.compile == "auto" and _is_worth_compiling(mode, settings, device, timer):
        mode = _faster(mode, compiled, timer, ("eager", "compiled", "compile"))
    if device.type != "cuda" or not layout.is_capturable or timer.engine.team.size > 1:
        return mode
    return _faster(mode, mode._replace(recorded=True), timer, ("asked", "recorded", "record"))


def _is_in_bfloat16(settings: TrainingSettings, device: torch.device, timer: Timer) -> bool:
    if settings.precision != "auto":
        return settings.precision != "float32"
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    if device.type != "cpu" or timer.expected(Mode()) < WORTH_TRYING_PRECISIONS:
        return False
    if not timer.engine.team.agree(has_fast_bfloat16()):
        return False
    seconds, in_bfloat16 = timer.seconds(Mode()), timer.seconds(Mode(bfloat16=True))
    timer.measured |= {"float32_step_seconds": seconds, "bfloat16_step_seconds": in_bfloat16}
    return in_bfloat16 < _CLEARLY_FASTER * seconds


def _is_worth_compiling(mode: Mode, settings: TrainingSettings, device: torch.device, timer: Timer) -> bool:
    if device.type == "cuda":
        return timer.expected(mode) >= WORTH_COMPILING["cuda"]
    # a CPU gains so little that timing steps, just to learn how long the run is, does not pay
    return device.type == "cpu" and 60 * (settings.minutes or 0) >= WORTH_COMPILING["cpu"]


def _faster(mode: Mode, other: Mode, timer: Timer, names: tuple[str, str, str]) -> Mode:
    """Return the other mode if its steps are clearly faster; note the times, or the error of the other mode."""
    seconds, (one, two, attempt) = timer.seconds(mode), names
    try:
        others = timer.seconds(other)
    except (RuntimeError, TrainingError) as error:  # no compiler, code that cannot be captured, too little memory
        timer.measured[f"{attempt}_error"] = str(error).partition("\n")[0]
        return mode
    timer.measured |= {f"{one}_step_seconds": seconds, f"{two}_step_seconds": others}
    return other if others < _CLEARLY_FASTER * seconds else mode
