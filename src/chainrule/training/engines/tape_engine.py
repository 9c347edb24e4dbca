"""The engine of networks on the tape: NumPy on the CPU, in float32."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from chainrule.autodiff import Tape, no_grad
from chainrule.autodiff.networks.network import Randomness, TapeNetwork
from chainrule.autodiff.optim import Optimiser
from chainrule.errors import NotANumberError, SettingsError, TrainingError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.devices import peak_memory
from chainrule.training.batches.gather import Gatherer, HostGatherer
from chainrule.training.batches.rows import Step
from chainrule.training.checkpoints.flatten import flatten, rebuild
from chainrule.training.engines.base import (
    Engine,
    Feed,
    Snapshot,
    StepFigures,
    Timer,
    Weights,
    by_part,
    checked_figures,
    micro_batches,
    validation_steps,
)
from chainrule.training.objectives import Objective
from chainrule.training.run_state import Mode, Place

OFFERED: dict[str, tuple[Any, ...]] = {
    "optimiser": ("sgd", "momentum", "rmsprop", "adam", "adamw"),
    "precision": ("auto", "float32"),
    "compile": ("auto", "no"),
    "average": ("none",),
    "tensorboard": (False,),
    "parallel": ("ddp",),
    "logger": ("none", "wandb", "trackio", "mlflow"),
}
"""The values of a setting that the tape offers, where torch offers more."""


def check_offered(settings: TrainingSettings, device: str) -> None:
    """Refuse settings that only torch offers; the tape computes on the CPU."""
    for name, values in OFFERED.items():
        value = getattr(settings, name)
        if value is not None and value not in values:  # None: left open, and chosen from what there is
            offered = " or ".join(str(one).lower() for one in values)
            raise SettingsError(
                f"{name}={str(value).lower()} is not for engine=tape, which has {offered}; engine=torch has it"
            )
    if device not in ("cpu", "auto"):
        raise SettingsError(f"engine=tape computes on the CPU, not on {device}: engine=torch can")


class TapeEngine(Engine):
    """Trains one network on the tape."""

    device = "cpu"

    def __init__(self, network: TapeNetwork, settings: TrainingSettings, randomness: Randomness) -> None:
        self.network, self.settings, self.randomness = network, settings, randomness
        self.window = network.window
        self.tape = Tape(reuse=True)
        self.optimiser = Optimiser(network.parameters.values(), settings, network.table.name)
        self.memories: list[Any] = []
        self._figures: list[StepFigures] = []

    # -- before the first step ----------------------------------------------------------------------------

    def running(self, seed: int) -> AbstractContextManager[Any]:
        return nullcontext()  # its random generator is its own, and was seeded when the network was made

    def gatherer(self, ids: np.ndarray, objective: Objective) -> Gatherer:
        return HostGatherer(ids, objective)

    def choose_mode(self, feed: Feed, timer: Timer) -> Mode:
        return Mode()

    @contextmanager
    def trial(self, mode: Mode) -> Iterator[TapeEngine]:
        weights = self.weights()
        try:
            yield TapeEngine(self.network, self.settings, copy.deepcopy(self.randomness))
        finally:
            self.load_weights(weights)

    def start(self, mode: Mode) -> None:
        """No-op: the optimiser is ready, and nothing depends on the length of the run."""

    # -- steps --------------------------------------------------------------------------------------------

    def take_step(self, feed: Feed, step: Step, rate: float, place: Place) -> None:
        try:
            loss, after = self._gradients(feed.gatherer, step)
        except NotANumberError as error:
            raise TrainingError(f"{place}: {error}; set a lower learning_rate or a smaller clip") from None
        except MemoryError:
            tokens = max(len(rows.starts_B) * rows.width for rows in step.parts)
            raise TrainingError(
                f"{place}: {tokens:,} tokens at once do not fit into memory; set device_batch={tokens // 2 or 1}, "
                "a smaller length, or make the network smaller"
            ) from None
        self.memories = after if feed.layout.carries else []
        # checked immediately: the figures are there without waiting, and a failed step must not be followed up
        self._figures += checked_figures([StepFigures(place, loss, self.optimiser.step(rate))])

    def _gradients(self, gatherer: Gatherer, step: Step) -> tuple[float, list[Any]]:
        """Add the gradients of the mean loss of a step, by micro-batches; returns the mean and the memories."""
        mean, after = 0.0, []
        for number, rows in enumerate(step.parts):
            memory = self.memories[number] if self.memories else None
            with self.tape:
                # L = 1/n Σ -ln p over the n targets of the whole step, so that micro-batches add up to one batch
                batch = gatherer.batch(rows)
                found = self.network.loss(*batch, memory, count=step.targets, randomness=self.randomness)
                self.tape.backward()
            mean += found.mean
            after.append(found.memory)
        return mean, after

    def read_figures(self) -> list[StepFigures]:
        figures, self._figures = self._figures, []
        return figures

    @property
    def learning_rate(self) -> float:
        return self.optimiser.rate

    def forget(self) -> None:
        self.memories = []

    def average_weights(self, step: int, expected: float, stalled: int) -> None:
        """No-op: there are no averaged weights, since `check_offered` refuses the setting."""

    def wait(self) -> None:
        """No-op: NumPy computes synchronously."""

    # -- validations --------------------------------------------------------------------------------------

    def measuring(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def mean_nats(self, feed: Feed, most_steps: int | None = None) -> float:
        nats, steps = 0.0, validation_steps(feed.layout, most_steps)
        memories: list[Any] = []
        for step in steps:
            after = []
            for part, rows in enumerate(step.parts):
                memory = memories[part] if memories else None
                try:
                    with no_grad():
                        found = self.network.loss(*feed.gatherer.batch(rows), memory, count=1, is_measured=True)
                except NotANumberError as error:
                    raise TrainingError(f"the held-out text: {error}") from None
                nats += found.mean
                after.append(found.memory)
            memories = after if feed.layout.carries else []
        return nats / sum(step.targets for step in steps)

    def sampling(self) -> AbstractContextManager[Any]:
        return nullcontext()

    # -- weights and snapshots ----------------------------------------------------------------------------

    def weights(self) -> Weights:
        return {name: parameter.out_tensor.copy() for name, parameter in self.network.parameters.items()}

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        for name, parameter in self.network.parameters.items():
            parameter.out_tensor[...] = weights[name]

    def shapes(self) -> dict[str, list[int]]:
        return {name: list(parameter.out_tensor.shape) for name, parameter in self.network.parameters.items()}

    def snapshot(self) -> Snapshot:
        parts: dict[str, Mapping[str, Any]] = {
            "weights": self.weights(),
            "optimiser": self.optimiser.arrays(),
            "memory": flatten(self.memories),
            "random": {"numpy": _to_bytes(self.randomness.bit_generator.state)},
        }
        arrays = {
            f"{part}/{name}": np.array(array) for part, found in parts.items() for name, array in found.items()
        }
        return Snapshot(arrays, self.optimiser.counts())

    def restore(self, snapshot: Snapshot, feed: Feed | None) -> None:
        parts = by_part({name: np.array(array) for name, array in snapshot.arrays.items()})
        self.load_weights(parts["weights"])
        self.optimiser.load(parts.get("optimiser", {}), snapshot.counts)
        remembered = parts.get("memory", {})
        if remembered and feed is not None:
            like = [self._example_of_memory(feed)] * micro_batches(remembered)
            self.memories = rebuild(like, remembered)
        self.randomness.bit_generator.state = _from_bytes(parts["random"]["numpy"])

    def _example_of_memory(self, feed: Feed) -> Any:
        """A memory of the network after some batch; only its structure matters."""
        with no_grad():
            return self.network.loss(*feed.gatherer.batch(feed.layout.epoch(None)[0].parts[0])).memory

    def replan(self, step: int, before: float, now: float) -> None:
        """No-op: nothing depends on the length of the run."""

    # -- figures ------------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        return peak_memory()

    def flops_per_token(self) -> float:
        return self.network.flops_per_token()

    def peak_flops(self) -> float | None:
        return None


def _to_bytes(state: Mapping[str, Any]) -> np.ndarray:
    """The state of a random generator as the bytes of its JSON: its integers are too wide for an array."""
    return np.frombuffer(json.dumps(state).encode(), dtype=np.uint8)


def _from_bytes(array: np.ndarray) -> dict[str, Any]:
    state: dict[str, Any] = json.loads(array.tobytes())
    return state
