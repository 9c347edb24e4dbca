"""The processes that train one network together, as the rest of the package sees them.

Without torchrun there is one process. Only parallel.py, for many processes, knows torch.distributed; this file
knows the variables that torchrun sets in the environment.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

from chainrule.errors import SettingsError
from chainrule.system.devices import choose_device
from chainrule.system.plugins import import_object
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints
from chainrule.training.layouts import Step

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from chainrule.networks.network import BatchLoss, Trainable
    from chainrule.training.optimisers import Optimiser

T = TypeVar("T")

_APART = 1_000_003  # the distance between the seeds of two processes


# -- the environment of torchrun --------------------------------------------------------------------------


def processes() -> int:
    """Return how many processes train together; 1 without torchrun."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "TORCHELASTIC_RUN_ID" in os.environ else 1


def rank() -> int:
    """Return the number of this process, from 0."""
    return int(os.environ["RANK"]) if processes() > 1 else 0


def restarts() -> int:
    """Return how many times torchrun has restarted this training, after the loss of a process."""
    return int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def choose_own_device(name: str) -> str:
    """Return the device of this process: of several processes on a machine with GPUs, each has its own."""
    if processes() == 1:
        return choose_device(name)
    own = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    found = choose_device(own if name.startswith("cuda") else name)
    return choose_device(own) if found == "cuda" else found


def check_together(settings: Any) -> None:
    """Refuse, before a text is read, settings with which many processes cannot train together."""
    if processes() == 1:
        return
    if settings.chosen_engine == "tape":
        raise SettingsError("engine=tape trains in one process: set engine=torch, or leave out torchrun")
    if settings.parallel == "fsdp":
        if settings.compile == "yes":
            raise SettingsError("compile=yes is not for parallel=fsdp: set compile=no, or parallel=ddp")
        if settings.sample_every:
            raise SettingsError("sample_every is not for parallel=fsdp, where no process has the whole network")


# -- one process, and many --------------------------------------------------------------------------------


class Team:
    """The processes that train one network; this class is for one process, and `Processes` for many."""

    rank, size = 0, 1
    shards = False
    """True if weights are divided among the processes."""

    def agree(self, value: T) -> T:
        """Return the value of the first process."""
        return value

    def tick(self, now: float, received: int | None) -> tuple[float, int | None]:
        """Return the time of the first process, and the signal that any process received."""
        return now, received

    def check_same(self, values: Mapping[str, Any], what: str = "") -> None:
        """Refuse a training whose processes have different values; `what` names these."""

    def share(self, step: Step) -> Step:
        """Return the rows of a step that this process takes."""
        return step

    def seed(self, seed: int) -> int:
        """Return the seed of this process, for random numbers of the steps, such as dropout."""
        return (seed + _APART * self.rank) % 2**63

    def placed(self, network: Trainable, device: torch.device) -> Trainable:
        """Return the network on the device, to be trained."""
        return network.to(device)

    def averaging(self, network: Trainable, loss: Callable[..., BatchLoss]) -> Loss:
        """Return the loss, whose gradients are averaged over the processes."""
        return Loss(loss)

    def prepare(self, optimiser: Optimiser) -> None:
        """Make an optimiser fit for weights that are divided among the processes."""

    def summed(self, tensor: Tensor) -> Tensor:
        """Return the sum of a tensor over the processes."""
        return tensor

    def gathered_rows(self, memory: Mapping[str, Tensor], rows: list[int]) -> dict[str, Tensor]:
        """Return the memory of all rows; names begin with the number of a micro-batch, and `rows` has its rows."""
        return dict(memory)

    def own_rows(self, memory: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the part of a gathered memory that belongs to the rows of this process."""
        return dict(memory)

    def gathered(self, values: dict[str, Tensor]) -> list[dict[str, Tensor]]:
        """Return values of each process, such as the state of its random generators."""
        return [values]

    def spread(self, tensors: Mapping[str, Any], divided: Callable[[str], bool]) -> dict[str, Any]:
        """Return tensors on the device of the network; divide those for which `divided(name)` is True."""
        return dict(tensors)

    def on_host(self, tensor: Any) -> Any:
        """Return a copy, in the memory of the host, of the part of a divided tensor that this process has."""
        raise NotImplementedError("weights are divided only among many processes")

    def newest(self, checkpoints: Checkpoints | None) -> Checkpoint | None:
        """Return the newest checkpoint of a run, whether one process wrote it or many."""
        found = None if checkpoints is None else checkpoints.newest()
        if found is None or found.shards is None:
            return found
        read_shards = import_object("chainrule.training.parallel:read_shards")
        return Checkpoint({**found.arrays, **read_shards(found.shards)}, found.state)

    def write(self, checkpoints: Checkpoints | None, step: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; OSError on every process if it could not be written."""
        if checkpoints is not None:
            checkpoints.write(step, checkpoint)


class Loss:
    """The loss of a network, as the step of an engine calls it."""

    def __init__(self, loss: Callable[..., BatchLoss], factor: float = 1.0) -> None:
        self.loss, self.factor = loss, factor
        """`factor` undoes the division when gradients are averaged: they are shares of one mean already."""

    def __call__(self, *batch: Any) -> BatchLoss:
        return self.loss(*batch)

    def part(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Return a block for one micro-batch; gradients are averaged once, with the last one."""
        return nullcontext()


ALONE = Team()
TEAM: ContextVar[Team] = ContextVar("team", default=ALONE)


def current_team() -> Team:
    """Return the processes that train together now."""
    return TEAM.get()


def is_divided(value: Any) -> bool:
    """Return True if a tensor is divided among processes; torch.distributed is not imported to see it."""
    return hasattr(value, "device_mesh")


def whole(tensor: Any) -> Any:
    """Return the whole of a tensor, of which processes may have parts."""
    return tensor.full_tensor() if is_divided(tensor) else tensor
