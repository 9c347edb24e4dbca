"""The engine of torch networks, on a CPU or a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.designs.training import TrainingSettings
from chainrule.errors import TrainingError
from chainrule.neural.networks.network import Trainable
from chainrule.neural.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.system.devices import current_device, peak_flops, peak_memory
from chainrule.training.batches.gather import Gatherer
from chainrule.training.batches.layouts import Step
from chainrule.training.batches.on_device import torch_gatherer
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
from chainrule.training.engines.torch_mode import choose_mode
from chainrule.training.engines.torch_step import (
    Memories,
    Stepper,
    is_from_compiler,
    is_out_of_memory,
    smaller_batch,
)
from chainrule.training.objectives import Objective
from chainrule.training.optim.optimisers import Optimiser, make_optimiser
from chainrule.training.optim.weight_average import WeightAverage
from chainrule.training.run_state import Mode, Place

_BFLOAT16 = ":bfloat16"  # marks arrays of a type that NumPy does not have; their bits are stored


class TorchEngine(Engine):
    """Trains one network of torch."""

    stepper: Stepper
    optimiser: Optimiser
    average: WeightAverage

    def __init__(self, network: Trainable, settings: TrainingSettings, device: str) -> None:
        self.torch_device = torch.device(device)
        self.network, self.settings, self.device = network.to(self.torch_device), settings, device
        self.window = network.window
        self.memories: Memories = []
        self._pending: list[tuple[Place, Tensor, Tensor]] = []

    # -- before the first step ----------------------------------------------------------------------------

    @contextmanager
    def running(self, seed: int) -> Iterator[None]:
        with current_device(self.torch_device), self._forked_randomness():
            torch.manual_seed(seed % 2**63)
            yield

    def _forked_randomness(self) -> AbstractContextManager[None]:
        """A block after which the random generators of the CPU and of the device are as before."""
        return torch.random.fork_rng([self.torch_device] if self.torch_device.type == "cuda" else [])

    def gatherer(self, ids: np.ndarray, objective: Objective) -> Gatherer:
        return torch_gatherer(ids, objective, self.torch_device)

    def choose_mode(self, feed: Feed, timer: Timer) -> Mode:
        settings, layout = self.settings, feed.layout
        is_varied = self.window is None or isinstance(self.network, EncoderDecoder)
        if settings.compile == "auto" and is_varied and not (layout.one_shape or layout.carries):
            # a recurrent network that reads lines of many lengths would be compiled again and again, and so would
            # one that reads two sides of many lengths
            settings = replace(settings, compile="no")
        return choose_mode(settings, self.torch_device, layout, timer)

    @contextmanager
    def trial(self, mode: Mode) -> Iterator[TorchEngine]:
        # kept on the CPU: what fits into the device's memory in training should fit in a trial
        weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.network.state_dict().items()}
        with self._forked_randomness():
            try:
                engine = TorchEngine(self.network, self.settings, self.device)
                engine.start(mode)
                yield engine
            finally:
                self.network.zero_grad(set_to_none=True)  # a step that failed leaves gradients
                self.network.load_state_dict(weights)

    def start(self, mode: Mode) -> None:
        self.stepper = Stepper(self.network, self.torch_device, mode)
        self.optimiser = make_optimiser(self.network, self.settings)
        self.average = WeightAverage(self.settings.average, dict(self.network.named_parameters()))
        self.network.train()

    # -- steps --------------------------------------------------------------------------------------------

    def take_step(self, feed: Feed, step: Step, rate: float, place: Place) -> None:
        step = self.stepper.filled(step, feed.layout)
        try:
            loss, after = self.stepper.gradients(step, feed.gatherer, self.memories)
            self._pending.append((place, loss, self.optimiser.step(rate)))
            self.memories = after if feed.layout.carries else []
            return
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                if is_from_compiler(error):
                    why = " ".join(str(error).strip().splitlines()[:2])
                    raise TrainingError(
                        f"torch cannot compile this network here ({why}): set compile=no"
                    ) from error
                raise
        # only here, outside the except block, is the memory of the failed attempt free again
        self.optimiser.forget()
        raise smaller_batch(self.stepper, step, feed.gatherer, place)

    def read_figures(self) -> list[StepFigures]:
        if not self._pending:
            return []
        places, losses, norms = zip(*self._pending, strict=True)
        self._pending = []
        # one transfer for all: each would wait for the device
        figures = torch.stack([torch.stack(losses), torch.stack(norms)]).tolist()
        return checked_figures(map(StepFigures, places, *figures))

    @property
    def learning_rate(self) -> float:
        return self.optimiser.rate

    def forget(self) -> None:
        self.memories = []

    def average_weights(self, step: int, expected: float, stalled: int) -> None:
        self.average.update(step, expected, stalled)

    def wait(self) -> None:
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)

    # -- validations --------------------------------------------------------------------------------------

    @contextmanager
    def measuring(self) -> Iterator[None]:
        with self.average.applied(), self._forked_randomness():
            yield

    def mean_nats(self, feed: Feed, most_steps: int | None = None) -> float:
        steps = validation_steps(feed.layout, most_steps)
        try:
            return self._mean_nats(feed, steps)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        sizes = ((len(part.starts_B), part.width) for step in steps for part in step.parts)
        rows, width = max(sizes, key=lambda size: size[0] * size[1])
        smaller = f"device_batch={rows * width // 2}" if rows > 1 else "a smaller length"
        raise TrainingError(
            f"the held-out text: {rows * width:,} tokens at once do not fit into the memory of {self.device}; "
            f"set {smaller}"
        )

    @torch.no_grad()
    def _mean_nats(self, feed: Feed, steps: list[Step]) -> float:
        wide = torch.float32 if self.torch_device.type == "mps" else torch.float64
        nats = torch.zeros((), device=self.torch_device, dtype=wide)
        memories: Memories = []
        self.network.eval()
        try:
            for step in steps:
                after: Memories = []
                for part, rows in enumerate(step.parts):
                    with self.stepper.autocast():
                        # not the compiled loss: code for validation would have to be compiled as well
                        found = self.network.loss(*feed.gatherer.batch(rows), memories[part] if memories else None)
                    nats += found.nats
                    after.append(found.memory)
                memories = after if feed.layout.carries else []
        finally:
            self.network.train()
        return float(nats) / sum(step.targets for step in steps)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        self.network.eval()
        try:
            yield
        finally:
            self.network.train()

    # -- weights and snapshots ----------------------------------------------------------------------------

    def weights(self) -> Weights:
        return {
            name: tensor.detach()
            .to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype, copy=True)
            .numpy()
            for name, tensor in self.network.state_dict().items()
        }

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        self.network.load_state_dict({name: torch.from_numpy(np.array(array)) for name, array in weights.items()})
        self.network.eval()

    def shapes(self) -> dict[str, list[int]]:
        return {name: list(tensor.shape) for name, tensor in self.network.state_dict().items()}

    def snapshot(self) -> Snapshot:
        parts: dict[str, Mapping[str, Any]] = {
            "weights": self.network.state_dict(),
            "optimiser": self.optimiser.tensors(),
            "average": self.average.values,
            "memory": flatten(self.memories),
            "random": self._random_states(),
        }
        tensors = {f"{part}/{name}": tensor for part, found in parts.items() for name, tensor in found.items()}
        return Snapshot(to_arrays(tensors), {"average_count": self.average.count})

    def _random_states(self) -> dict[str, Tensor]:
        states = {"cpu": torch.get_rng_state()}
        if self.torch_device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.torch_device)
        return states

    def restore(self, snapshot: Snapshot, feed: Feed | None) -> None:
        parts = by_part(from_arrays(snapshot.arrays))
        self.network.load_state_dict(parts["weights"])
        self.optimiser.load(parts.get("optimiser", {}))
        self.average.load(parts.get("average", {}), snapshot.counts["average_count"])
        remembered = parts.get("memory", {})
        if remembered and feed is not None:
            like = [self.stepper.example_of_memory(feed.layout, feed.gatherer)] * micro_batches(remembered)
            self.memories = rebuild(
                like, {name: _as(remembered[name], leaf) for name, leaf in flatten(like).items()}
            )
        torch.set_rng_state(parts["random"]["cpu"])
        if self.torch_device.type == "cuda" and "cuda" in parts["random"]:
            torch.cuda.set_rng_state(parts["random"]["cuda"], self.torch_device)

    def replan(self, step: int, before: float, now: float) -> None:
        self.average.replan(step, before, now)

    # -- figures ------------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        if self.torch_device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.torch_device)
        return peak_memory()

    def flops_per_token(self) -> float:
        return self.network.flops_per_token()

    def peak_flops(self) -> float | None:
        return peak_flops(self.torch_device)


def _as(value: Tensor, like: Any) -> Tensor:
    """The value with the dtype and device of `like`: a run may be resumed in another precision."""
    return value.to(like) if isinstance(like, Tensor) else value


def to_arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Tensors and numbers copied to NumPy arrays with the same bits."""
    arrays = {}
    for name, value in tensors.items():
        is_float = isinstance(value, float)
        tensor = torch.as_tensor(value, dtype=torch.float64) if is_float else torch.as_tensor(value)
        tensor = tensor.detach().to("cpu", copy=True)
        if tensor.dtype == torch.bfloat16:
            name, tensor = name + _BFLOAT16, tensor.contiguous().view(torch.int16)
        arrays[name] = tensor.numpy()
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Copies of the tensors from which `to_arrays` made these arrays."""
    tensors = {}
    for name, array in arrays.items():
        tensor = torch.from_numpy(np.array(array))
        if name.endswith(_BFLOAT16):
            name, tensor = name.removesuffix(_BFLOAT16), tensor.view(torch.bfloat16)
        tensors[name] = tensor
    return tensors
