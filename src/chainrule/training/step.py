"""One step: the gradients of a batch, part by part where it does not fit into memory at once."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.devices import expect_slow_bfloat16
from chainrule.errors import TrainingError
from chainrule.training.batches import Source
from chainrule.training.layouts import Layout, Rows, Step
from chainrule.training.memories import copy_of
from chainrule.training.optim import Optimiser
from chainrule.training.recording import Recording
from chainrule.training.state import Decisions, Place
from chainrule.training.trainable import Loss, Trainable

Memories = list[Any]
"""What the network remembers of each part of a step."""


class Stepper:
    """Takes gradients of a network's loss, in one precision, compiled or not."""

    def __init__(
        self,
        network: Trainable,
        device: torch.device,
        *,
        bfloat16: bool = False,
        compiled: bool = False,
        recorded: bool = False,
    ) -> None:
        self.network, self.device, self.bfloat16, self.compiled = network, device, bfloat16, compiled
        if bfloat16:
            expect_slow_bfloat16(device.type)
        self.recorded = recorded and device.type == "cuda"
        self.recording: tuple[Any, Recording] | None = None
        self.loss: Callable[..., Loss] = network.loss
        if compiled:
            self.loss = torch.compile(network.loss)

    @classmethod
    def decided(cls, network: Trainable, device: torch.device, decisions: Decisions) -> Stepper:
        """One that takes steps as was decided."""
        return cls(
            network,
            device,
            bfloat16=decisions.bfloat16,
            compiled=decisions.compiled,
            recorded=decisions.recorded,
        )

    def autocast(self) -> AbstractContextManager[Any]:
        """Products in bfloat16, if that was chosen."""
        if not self.bfloat16:
            return nullcontext()
        # a recording must not remember weights in bfloat16 that were made before it began
        return torch.autocast(self.device.type, torch.bfloat16, cache_enabled=not self.recorded)

    def gradients(self, step: Step, source: Source, memories: Memories) -> tuple[Tensor, Memories]:
        """Add the gradients of the mean loss of a step. The mean, on the device, and what is remembered."""
        # L = 1/n Σ -ln p over the n targets of the whole step, so that parts give what one batch would give
        if self._is_recordable(step, memories):
            nats, memory = self._play(step, source, memories)
            return nats / step.targets, [memory]
        nats_of_parts: list[Tensor] = []
        after: Memories = []
        for number, rows in enumerate(step.parts):
            memory = memories[number] if memories else None
            found = self._add_gradients(*source.batch(rows), memory, rows.targets, step.targets)
            nats_of_parts.append(found.nats)
            after.append(found.memory)
        return torch.stack(nats_of_parts).sum() / step.targets, after

    def _add_gradients(self, inputs_BT: Tensor, targets_BT: Tensor, memory: Any, count: int, total: int) -> Loss:
        """Those of a part with `count` of the step's `total` targets. The part's loss, of which nothing is left."""
        with self.autocast():
            found = self.loss(inputs_BT, targets_BT, memory)
        loss = found.nats / total
        if found.penalty is not None:
            loss = loss + found.penalty * (count / total)
        loss.backward()  # type: ignore[no-untyped-call]
        return Loss(found.nats.detach(), None, None if found.memory is None else found.memory.detach())

    def _is_recordable(self, step: Step, memories: Memories) -> bool:
        """A network that carries its memory begins without one, and may learn what it begins with: not recorded."""
        return self.recorded and len(step.parts) == 1 and (self.network.window is not None or bool(memories))

    def _play(self, step: Step, source: Source, memories: Memories) -> tuple[Tensor, Any]:
        inputs_BT, targets_BT = source.batch(step.parts[0])
        memory = memories[0] if memories else None
        shape = inputs_BT.shape, step.targets
        if self.recording is None:
            count = step.targets
            gradients = lambda x, y, m: self._add_gradients(x, y, m, count, count)  # noqa: E731
            memory = copy_of(memory)
            self.recording = shape, Recording(self.network, gradients, inputs_BT, targets_BT, memory)
        if self.recording[0] != shape:
            found = self._add_gradients(inputs_BT, targets_BT, memory, step.targets, step.targets)
            return found.nats, found.memory
        return self.recording[1].play(inputs_BT, targets_BT, memory)

    @torch.no_grad()
    def example_of_memory(self, layout: Layout, source: Source) -> Any:
        """A memory of the network; its values mean nothing."""
        with self.autocast():
            return self.network.loss(*source.batch(layout.epoch(None)[0].parts[0])).memory

    def filled(self, step: Step, layout: Layout) -> Step:
        """The step with its last part filled up with rows of PAD: compiled code is made for one shape."""
        last = step.parts[-1]
        missing = layout.size.rows_at_once - len(last.starts_B)
        if not self.compiled or not layout.one_shape or missing <= 0:
            return step
        none = np.zeros(missing, np.int64)
        starts_B, lengths_B, skips_B = (
            np.concatenate([array, none]) for array in (last.starts_B, last.lengths_B, last.skips_B)
        )
        return replace(step, parts=[*step.parts[:-1], Rows(starts_B, lengths_B, skips_B, last.width)])


def take_step(
    stepper: Stepper,
    optimiser: Optimiser,
    source: Source,
    step: Step,
    memories: Memories,
    rate: float,
    place: Place,
) -> tuple[Tensor, Tensor, Memories]:
    """One step: its loss and the norm of its gradient, both on the device, and what is remembered after it."""
    try:
        loss, after = stepper.gradients(step, source, memories)
        return loss, optimiser.step(rate), after
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            if is_from_compiler(error):
                why = " ".join(str(error).strip().splitlines()[:2])
                raise TrainingError(f"torch cannot compile this network here ({why}): set compile=no") from error
            raise
    # only here, behind the error, has the failed attempt given its memory back
    optimiser.forget()
    raise propose(stepper, step, source, place)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a device, or the machine, has too little memory."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(
        words in str(error).lower() for words in ("can't allocate memory", "not enough memory", "out of memory")
    )


def is_from_compiler(error: BaseException) -> bool:
    """Whether torch.compile gave up: there is no C++ compiler, or code that it cannot do with."""
    return type(error).__module__.startswith(("torch._dynamo", "torch._inductor"))


def propose(stepper: Stepper, step: Step, source: Source, place: Place) -> TrainingError:
    """The error for a step that does not fit into memory: says how much of it would."""
    largest = max(step.parts, key=lambda rows: len(rows.starts_B) * rows.width)
    count = len(largest.starts_B) // 2
    while count >= 1:
        some = Rows(largest.starts_B[-count:], largest.lengths_B[-count:], largest.skips_B[-count:], largest.width)
        if _fits(stepper, Step([some]), source):
            return TrainingError(
                f"{place}: {len(largest.starts_B) * largest.width:,} tokens at once do not fit into the memory of "
                f"{stepper.device}; {count * largest.width:,} do: set device_batch={count * largest.width}"
            )
        count //= 2
    return TrainingError(
        f"{place}: not even one row of {largest.width:,} tokens fits into the memory of {stepper.device}: "
        "set a smaller length, or make the network smaller"
    )


def _fits(stepper: Stepper, step: Step, source: Source) -> bool:
    """Whether its gradients can be taken; leaves none behind."""
    if stepper.device.type == "cuda":
        torch.cuda.empty_cache()
    fits = True
    try:
        stepper.gradients(step, source, [])
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        fits = False
    for parameter in stepper.network.parameters():
        parameter.grad = None
    return fits
