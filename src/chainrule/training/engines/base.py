"""The interface between the training loop and an engine: steps, validations, weights and snapshots.

An engine owns everything that a step changes: the weights, the optimiser's state, averaged weights, what the
network remembers from batch to batch, and the state of its random generators. The loop owns the rest: epochs, the
schedule, validations, the best weights, checkpoints, signals. Where many processes train one network, each has a
loop and an engine: these share the rows of a step, and what the first process decides holds for all (parallel.py).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np

from chainrule.errors import TrainingError
from chainrule.training.batches.gather import Gatherer
from chainrule.training.batches.rows import Layout, Step
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints
from chainrule.training.objectives import Objective
from chainrule.training.run_state import Mode, Place

T = TypeVar("T")

Weights: TypeAlias = dict[str, np.ndarray]
"""Weights by name, in float32 in the memory of the host; perhaps the part of them that this process has."""


@dataclass(frozen=True)
class Feed:
    """A text to train or validate on: how it is cut into batches, and what gathers them."""

    layout: Layout
    gatherer: Gatherer


class Snapshot(NamedTuple):
    """Everything that a step changes, as arrays and counts from which training can continue."""

    arrays: dict[str, np.ndarray]
    counts: dict[str, int]


class StepFigures(NamedTuple):
    """The mean loss of a step, and the norm of its gradient before clipping."""

    place: Place
    loss: float
    norm: float


class Timer(Protocol):
    """Measures steps for an engine that is choosing a mode."""

    @property
    def processes(self) -> int:
        """How many processes take the steps together."""

    def agree(self, value: T) -> T:
        """The value of the first process."""

    def seconds(self, mode: Mode) -> float:
        """The seconds of a step in this mode: a few steps are taken, timed and undone."""

    def expected(self, mode: Mode) -> float:
        """About how many seconds the whole run takes in this mode."""

    def note(self, figures: Mapping[str, Any]) -> None:
        """Keep measurements, for the record of the run."""


class Engine(ABC):
    """Computes the training of one network."""

    window: int | None
    """The most tokens the network reads at once. None: it carries a memory of fixed size from batch to batch."""
    device: str
    """The device that computes, as error messages name it."""
    processes = 1
    """How many processes train the network together."""

    # -- many processes -----------------------------------------------------------------------------------

    def agree(self, value: T) -> T:
        """The value of the first process: a decision, or a measurement behind one."""
        return value

    def tick(self, now: float, received: int | None) -> tuple[float, int | None]:
        """The time of the first process, and the signal to stop that any process received."""
        return now, received

    def newest(self, checkpoints: Checkpoints | None) -> Checkpoint | None:
        """The newest checkpoint; only the first process has a folder of them."""
        return None if checkpoints is None else checkpoints.newest()

    def write(self, checkpoints: Checkpoints | None, step: int, checkpoint: Checkpoint) -> None:
        """Write a checkpoint; OSError on every process if it could not be written."""
        if checkpoints is not None:
            checkpoints.write(step, checkpoint)

    def copied(self, weights: Mapping[str, np.ndarray]) -> Weights:
        """A copy of weights that a checkpoint holds, as `weights` returns them."""
        return {name: np.array(array) for name, array in weights.items()}

    def gathered(self, weights: Weights) -> Weights:
        """Whole weights, where each process has a part of them."""
        return weights

    # -- before the first step ----------------------------------------------------------------------------

    @abstractmethod
    def running(self, seed: int) -> AbstractContextManager[Any]:
        """A block in which the engine computes; random numbers in it depend on the seed alone."""

    @abstractmethod
    def gatherer(self, ids: np.ndarray, objective: Objective) -> Gatherer:
        """A gatherer that makes batches of a text for this engine."""

    @abstractmethod
    def choose_mode(self, feed: Feed, timer: Timer) -> Mode:
        """The mode that the settings ask for; what they leave open is chosen for speed."""

    @abstractmethod
    def trial(self, mode: Mode) -> AbstractContextManager[Engine]:
        """A block with an engine for the same network, to try out steps; afterwards everything is as before."""

    @abstractmethod
    def start(self, mode: Mode) -> None:
        """Prepare a run: optimiser, averaged weights."""

    # -- steps --------------------------------------------------------------------------------------------

    @abstractmethod
    def take_step(self, feed: Feed, step: Step, rate: float, place: Place) -> None:
        """Take one optimiser step at `rate` times the learning rate; `place` names the step in errors."""

    @abstractmethod
    def read_figures(self) -> list[StepFigures]:
        """The figures of the steps since the last call, in order; waits for the device."""

    @property
    @abstractmethod
    def learning_rate(self) -> float:
        """The learning rate of the last step."""

    @abstractmethod
    def forget(self) -> None:
        """Drop the memory carried from batch to batch: in the next step every row begins a new sequence."""

    @abstractmethod
    def average_weights(self, step: int, expected: float, stalled: int) -> None:
        """Update the averaged weights after `step` steps of the `expected` number.

        The last `stalled` validations found nothing better.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until the device has done everything it was given."""

    # -- validations --------------------------------------------------------------------------------------

    @abstractmethod
    def measuring(self) -> AbstractContextManager[Any]:
        """A block in which the network has averaged weights, if any; random generators are restored after it."""

    @abstractmethod
    def mean_nats(self, feed: Feed, most_steps: int | None = None) -> float:
        """Mean nats per token of a text, or of its first `most_steps` steps, without dropout."""

    @abstractmethod
    def sampling(self) -> AbstractContextManager[Any]:
        """A block in which the network can be sampled from."""

    # -- weights and snapshots ----------------------------------------------------------------------------

    @abstractmethod
    def weights(self) -> Weights:
        """A copy of the weights."""

    @abstractmethod
    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Put these weights, all of them, into the network, which is then ready to be used."""

    @abstractmethod
    def shapes(self) -> dict[str, list[int]]:
        """The shape of each tensor of the network; a checkpoint is resumed only if they are the same."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """A copy of everything that a step changes."""

    @abstractmethod
    def restore(self, snapshot: Snapshot, feed: Feed | None) -> None:
        """Continue from a snapshot. The memory is rebuilt for the batches of `feed`; None: it begins empty.

        The structure of a memory is that of an example which the network makes of a batch, never taken from a file.
        """

    @abstractmethod
    def replan(self, step: int, before: float, now: float) -> None:
        """Adapt, after `step` steps, to a run that was expected to have `before` steps and now to have others."""

    # -- figures ------------------------------------------------------------------------------------------

    @abstractmethod
    def memory_bytes(self) -> int:
        """The peak memory so far, in bytes: of the GPU, or of the process."""

    @abstractmethod
    def flops_per_token(self) -> float:
        """Floating-point operations to train on one token."""

    @abstractmethod
    def peak_flops(self) -> float | None:
        """Floating-point operations per second of the device at best; None where that is not known."""


def by_part(values: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Values whose names begin with PART/, by part and then by the rest of the name."""
    parts: dict[str, dict[str, T]] = {}
    for name, value in values.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    return parts


def micro_batches(memory: Mapping[str, Any]) -> int:
    """How many micro-batches a flattened list of memories has: names begin with the number of one."""
    return 1 + max(int(name.partition(".")[0]) for name in memory)


def checked_figures(figures: Iterable[StepFigures]) -> list[StepFigures]:
    """The figures as a list; a loss or norm that is not finite raises a TrainingError that names the step."""
    found = list(figures)
    for place, loss, norm in found:
        if not math.isfinite(loss + norm):
            raise TrainingError(
                f"{place}: the {'gradient' if math.isfinite(loss) else 'loss'} is not a finite number; set a "
                "lower learning_rate, a smaller clip, or precision=float32"
            )
    return found


def validation_steps(layout: Layout, most_steps: int | None) -> list[Step]:
    """The steps of a validation, or only the first `most_steps` of them."""
    epoch = layout.epoch(None)
    return [epoch[number] for number in range(len(epoch) if most_steps is None else min(most_steps, len(epoch)))]
