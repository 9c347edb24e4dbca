"""The interface between the training loop and an engine: models, steps, validations, weights and snapshots.

An engine owns everything that a step changes: the weights, the optimiser's state, averaged weights, the network's
memory from batch to batch, and the state of its random generators. The loop owns the rest: epochs, the schedule,
validations, the best weights, checkpoints, signals. Where many processes train one network, each has a loop and an
engine: these share the rows of a step, and all follow the decisions of the first process (team.py).
"""

from __future__ import annotations

import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, Self, TypeAlias, TypeVar

import numpy as np

from chainrule.contract.data import TrainingData
from chainrule.errors import TrainingError
from chainrule.folder import ModelFolder
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.devices import peak_memory
from chainrule.training.layouts import Step
from chainrule.training.objectives import Feed, Gatherer, Objective
from chainrule.training.run_state import Mode, Place
from chainrule.training.team import ALONE, Team

T = TypeVar("T")

Weights: TypeAlias = dict[str, np.ndarray]
"""Weights by name, in float32 in the memory of the host; perhaps the part of them that this process has."""

Fill: TypeAlias = Callable[..., Any]
"""Called with the class of a network and its arguments; returns the network with its weights."""

_TIMED_SECONDS, _MOST_TIMED = 1.0, 20
_TIMED_SHARE = 0.01  # of the minutes of a run, for one timing


class Snapshot(NamedTuple):
    """Everything that a step changes, as arrays and counts from which training can continue."""

    arrays: dict[str, np.ndarray]
    counts: dict[str, int]


class StepFigures(NamedTuple):
    """The mean loss of a step, and the norm of its gradient before clipping."""

    place: Place
    loss: float
    norm: float

    @classmethod
    def checked(cls, figures: Iterable[tuple[Place, float, float]]) -> list[StepFigures]:
        """Return the figures of steps; raise a TrainingError that names a step whose loss or norm is not finite."""
        found = [cls(*one) for one in figures]
        for place, loss, norm in found:
            if not math.isfinite(loss + norm):
                raise TrainingError(
                    f"{place}: the {'gradient' if math.isfinite(loss) else 'loss'} is not a finite number; set a "
                    "lower learning_rate, a smaller clip, or precision=float32"
                )
        return found


class Engine(ABC):
    """Builds, loads and trains the networks of one framework; an instance trains one of them."""

    model: Any = None
    """The model whose network is trained; None if the engine was given a network alone."""
    network: Any
    optimiser: Any
    window: int | None
    """The most tokens the network reads at once. None: it carries a memory of fixed size from batch to batch."""
    device: str
    """The device that computes, as error messages name it."""
    team: Team = ALONE
    """The processes that train the network together."""
    memories: list[Any]
    """The network's memory after each micro-batch of a step; an empty list at the beginning of a text."""
    language_model: Callable[..., Any]
    """The class of language models whose networks it trains."""
    prefers_few_shapes = False
    """True if batches of few shapes, with more padding, may be computed faster than batches of many."""

    # -- models -------------------------------------------------------------------------------------------

    @classmethod
    @abstractmethod
    def check(cls, settings: Any, device: str) -> None:
        """Refuse settings that cannot be computed on the device, which is given by its name."""

    @classmethod
    @abstractmethod
    def build(cls, make: Callable[[Fill], Any], settings: Any, data: TrainingData) -> Self:
        """Return an engine for the model that `make` makes; `Fill` draws its weights from the seed alone."""

    @classmethod
    @abstractmethod
    def load(cls, make: Callable[[Fill], T], folder: ModelFolder) -> T:
        """Return the model that `make` makes; `Fill` takes its weights from the folder."""

    @staticmethod
    @abstractmethod
    def table(model: Any) -> tuple[np.ndarray, float, str]:
        """Return the embedding table of a model on the CPU, its factor at lookup, and the setting of its width."""

    # -- before the first step ----------------------------------------------------------------------------

    @abstractmethod
    def running(self, seed: int) -> AbstractContextManager[Any]:
        """Return a block in which the engine computes; random numbers in it depend on the seed alone."""

    @abstractmethod
    def gatherer(self, ids: np.ndarray, objective: Objective) -> Gatherer:
        """Return the gatherer, which makes batches of a text for this engine."""

    @abstractmethod
    def choose_mode(self, feed: Feed, timer: Timer) -> Mode:
        """Return the mode of the settings; a choice that they leave open is made for speed."""

    @abstractmethod
    def trial(self, mode: Mode) -> AbstractContextManager[Engine]:
        """Return a block with an engine for the same network, to try out steps; it leaves no trace."""

    def start(self, mode: Mode) -> None:  # noqa: B027 (not every engine has something to prepare)
        """Prepare a run: optimiser, averaged weights."""

    # -- steps --------------------------------------------------------------------------------------------

    @abstractmethod
    def take_step(self, feed: Feed, step: Step, rate: float, place: Place) -> None:
        """Take one optimiser step at `rate` times the learning rate; `place` names the step in errors."""

    @abstractmethod
    def read_figures(self) -> list[StepFigures]:
        """Return the figures of the steps since the last call, in order; wait for the device."""

    @property
    def learning_rate(self) -> float:
        """The learning rate of the last step."""
        rate: float = self.optimiser.rate
        return rate

    def forget(self) -> None:
        """Drop the memory carried from batch to batch: in the next step every row begins a new sequence."""
        self.memories = []

    @abstractmethod
    def regularise(self, strength: float) -> None:
        """Set all dropout and penalties to `strength` times what the settings say, for the steps that follow."""

    def average_weights(self, step: int, expected: float, stalled: int) -> None:  # noqa: B027 (nor averages)
        """Average the weights after `step` of `expected` steps; the last `stalled` validations were no better."""

    def wait(self) -> None:  # noqa: B027 (nor a device that lags behind)
        """Wait until the device has done everything it was given."""

    # -- validations --------------------------------------------------------------------------------------

    def measuring(self) -> AbstractContextManager[Any]:
        """Return a block without dropout, with averaged weights if there are any; it restores random generators."""
        return nullcontext()

    @abstractmethod
    def mean_nats(self, feed: Feed, most_steps: int | None = None) -> float:
        """Return the mean nats per token of a text, or of its first `most_steps` steps; inside `measuring`."""

    @staticmethod
    def nats_of_parts(feed: Feed, steps: list[Step], loss: Callable[..., Any]) -> Iterator[Any]:
        """Yield the loss of each micro-batch, by `loss(inputs, targets, memory)`, whose memory is carried on."""
        memories: list[Any] = []
        for step in steps:
            after = []
            for part, rows in enumerate(step.parts):
                found = loss(*feed.gatherer.batch(rows), memories[part] if memories else None)
                yield found
                after.append(found.memory)
            memories = after if feed.layout.carries else []

    # -- weights and snapshots ----------------------------------------------------------------------------

    @abstractmethod
    def weights(self) -> Weights:
        """Return a copy of the weights."""

    def copied(self, weights: Mapping[str, np.ndarray]) -> Weights:
        """Return a copy of weights that a checkpoint holds, in the form of `weights`."""
        return {name: np.array(array) for name, array in weights.items()}

    def gathered(self, weights: Weights) -> Weights:
        """Return whole weights, where each process has a part of them."""
        return weights

    @abstractmethod
    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        """Put these weights, all of them, into the network, which is then ready to be used."""

    @abstractmethod
    def shapes(self) -> dict[str, list[int]]:
        """Return the shape of each tensor of the network; a checkpoint is resumed only if they are the same."""

    @abstractmethod
    def snapshot(self) -> Snapshot:
        """Return a copy of everything that a step changes."""

    @abstractmethod
    def restore(self, snapshot: Snapshot, feed: Feed | None) -> None:
        """Continue from a snapshot. The memory is rebuilt for the batches of `feed`; None: it begins empty.

        The structure of a memory is that of an example which the network makes of a batch, never taken from a file.
        """

    @staticmethod
    def example_memories(feed: Feed, leaves: Mapping[str, Any], loss: Callable[..., Any]) -> list[Any]:
        """Return memories, one for each micro-batch, of the structure that those of a snapshot have.

        `leaves` are the arrays in the snapshot, whose names begin with the number of a micro-batch.
        """
        batch = feed.gatherer.batch(feed.layout.epoch(None)[0].parts[0])  # any: only the structure matters
        return [loss(*batch).memory] * (1 + max(int(name.partition(".")[0]) for name in leaves))

    def replan(self, step: int, before: float, now: float) -> None:  # noqa: B027 (nor plans)
        """Adapt, after `step` steps, to a run that was expected to have `before` steps and now to have others."""

    # -- figures ------------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        """Return the peak memory so far, in bytes: of the GPU, or of the process."""
        return peak_memory()

    def flops_per_token(self) -> float:
        """Return the floating-point operations to train on one token."""
        flops: float = self.network.flops_per_token()
        return flops

    def peak_flops(self) -> float | None:
        """Return the floating-point operations per second of the device at best; None if they are not known."""
        return None


class Timer:
    """Measures steps for an engine that is choosing a mode."""

    def __init__(self, engine: Engine, settings: TrainingSettings, train: Feed) -> None:
        self.engine, self.settings, self.train = engine, settings, train
        self.measured: dict[str, Any] = {}
        """Measurements for the record of the run."""

    def seconds(self, mode: Mode, at_most: int = _MOST_TIMED, warm: int = 1) -> float:
        """Return the mean seconds of a step in this mode: a few steps are taken, timed and undone.

        `warm` steps, which allocate memory and compile code, do not count.
        """
        enough = self._enough
        epoch, first, began = self.train.layout.epoch(0), warm if mode.recorded else warm - 1, 0.0
        with self.engine.trial(mode) as trial:
            for number in range(1 + first + at_most):
                # where there are a few shapes, one of them stands for all: each would be captured first
                batch = 0 if self.train.layout.few_shapes else number % len(epoch)
                # at a learning rate of 0 no weight changes
                trial.take_step(self.train, epoch[batch], 0.0, Place(number + 1, 0, batch))
                if batch + 1 == len(epoch):
                    trial.forget()
                if number == first:
                    trial.wait()
                    began = time.perf_counter()
                elif number > first and self.engine.team.agree(time.perf_counter() - began) > enough:
                    break
            trial.wait()
            return self.engine.team.agree((time.perf_counter() - began) / (number - first))

    @property
    def _enough(self) -> float:
        """The seconds after which a timing ends."""
        if self.settings.minutes is None:
            return _TIMED_SECONDS
        return min(_TIMED_SECONDS, _TIMED_SHARE * 60 * self.settings.minutes)

    def expected(self, mode: Mode) -> float:
        """Return about how many seconds the run takes."""
        if self.settings.minutes is not None:
            return 60 * self.settings.minutes
        planned = self.train.layout.planned(self.settings)
        assert planned is not None
        return planned * self.seconds(mode, at_most=2)
