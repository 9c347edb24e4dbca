"""The engine of networks on the tape: NumPy on the CPU, in float32; it needs no torch."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from chainrule.autodiff import Tape, no_grad
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.autodiff.optim import Optimiser
from chainrule.autodiff.tape_model import TapeModel
from chainrule.contract.data import TrainingData
from chainrule.errors import DamagedFileError, NotANumberError, SettingsError, TrainingError
from chainrule.folder import TENSORS, ModelFolder
from chainrule.networks.training_settings import TrainingSettings
from chainrule.training.checkpoints.flatten import by_part, flatten, rebuild
from chainrule.training.engines.base import Engine, Fill, Snapshot, StepFigures, T, Timer, Weights
from chainrule.training.layouts import Step
from chainrule.training.objectives import Feed, Gatherer, Objective
from chainrule.training.run_state import Mode, Place

OFFERED: dict[str, tuple[Any, ...]] = {
    "precision": ("auto", "float32"),
    "compile": ("auto", "no"),
    "average": ("none",),
    "tensorboard": (False,),
    "parallel": ("ddp",),
    "logger": ("none", "wandb", "trackio", "mlflow"),
}
"""The values of a setting that the tape offers, where torch offers more."""


class TapeEngine(Engine):
    """Builds, loads and trains networks on the tape."""

    device = "cpu"
    language_model = TapeModel

    def __init__(
        self, network: TapeNetwork, settings: TrainingSettings, randomness: np.random.Generator, model: Any = None
    ) -> None:
        self.network, self.settings, self.randomness, self.model = network, settings, randomness, model
        self.window = network.window
        self.tape = Tape(reuse=True)
        self.optimiser = Optimiser(network.parameters.values(), settings, network.table.name)
        self.memories: list[Any] = []
        self._figures: list[StepFigures] = []

    # -- models -------------------------------------------------------------------------------------------

    @classmethod
    def check(cls, settings: TrainingSettings, device: str) -> None:
        """Refuse settings that only torch offers; the tape computes on the CPU."""
        for name, values in OFFERED.items():
            value = getattr(settings, name)
            if value is not None and value not in values:  # None: left open, and chosen from these
                offered = " or ".join(str(one).lower() for one in values)
                raise SettingsError(
                    f"{name}={str(value).lower()} is not for engine=tape, which has {offered}; engine=torch has it"
                )
        if device not in ("cpu", "auto"):
            raise SettingsError(f"engine=tape computes on the CPU, not on {device}: engine=torch can")

    @classmethod
    def build(cls, make: Callable[[Fill], Any], settings: TrainingSettings, data: TrainingData) -> TapeEngine:
        # weights and dropout draw from one generator, one after the other
        randomness = np.random.default_rng(data.seed % 2**64)

        def fill(network: type[TapeNetwork], sizes: Any, vocab_size: int, bos: int) -> TapeNetwork:
            return network(sizes, vocab_size, bos, network.initial(sizes, vocab_size, randomness))

        model = make(fill)
        return cls(model.network, settings, randomness, model)

    @classmethod
    def load(cls, make: Callable[[Fill], T], folder: ModelFolder) -> T:
        def fill(network: type[TapeNetwork], sizes: Any, vocab_size: int, bos: int) -> TapeNetwork:
            tensors = {}
            for name, shape in network.shapes(sizes, vocab_size).items():
                tensors[name] = np.array(folder.tensor(name), np.float32)
                if tensors[name].shape != shape:
                    found = f"{name} has the shape {list(tensors[name].shape)}, not {list(shape)}"
                    raise DamagedFileError(f"{folder.path}/{TENSORS}: {found}")
            return network(sizes, vocab_size, bos, tensors)

        return make(fill)

    @staticmethod
    def table(model: Any) -> tuple[np.ndarray, float, str]:
        return model.network.table.out_tensor, model.network.scale, model.network.table_setting

    # -- before the first step ----------------------------------------------------------------------------

    def running(self, seed: int) -> AbstractContextManager[Any]:
        return nullcontext()  # its random generator is its own, and was seeded when the network was made

    def gatherer(self, ids: np.ndarray, objective: Objective) -> Gatherer:
        return Gatherer(ids, objective)

    def choose_mode(self, feed: Feed, timer: Timer) -> Mode:
        return Mode()

    @contextmanager
    def trial(self, mode: Mode) -> Iterator[TapeEngine]:
        weights = self.weights()
        try:
            yield TapeEngine(self.network, self.settings, copy.deepcopy(self.randomness))
        finally:
            self.load_weights(weights)

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
        self._figures += StepFigures.checked([(place, loss, self.optimiser.step(rate))])

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

    def regularise(self, strength: float) -> None:
        self.network.regularise(strength)

    # -- validations --------------------------------------------------------------------------------------

    def mean_nats(self, feed: Feed, most_steps: int | None = None) -> float:
        steps = feed.layout.validation(most_steps)
        loss = partial(self.network.loss, count=1, is_measured=True)
        try:
            with no_grad():
                nats = sum(found.mean for found in self.nats_of_parts(feed, steps, loss))
        except NotANumberError as error:
            raise TrainingError(f"the held-out text: {error}") from None
        return float(nats) / sum(step.targets for step in steps)

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
            # as the bytes of its JSON: the integers of the state are too wide for an array
            "random": {"numpy": np.frombuffer(json.dumps(self.randomness.bit_generator.state).encode(), np.uint8)},
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
            with no_grad():
                like = self.example_memories(feed, remembered, self.network.loss)
            self.memories = rebuild(like, remembered)
        self.randomness.bit_generator.state = json.loads(parts["random"]["numpy"].tobytes())
