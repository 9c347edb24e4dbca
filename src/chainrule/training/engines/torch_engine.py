"""The engine of torch networks, on a CPU or a GPU."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.data import TrainingData
from chainrule.errors import DamagedFileError, SettingsError, TrainingError
from chainrule.folder import TENSORS, ModelFolder
from chainrule.inference.neural_model import NeuralModel
from chainrule.inference.torch_model import load_network
from chainrule.networks.loss import BLOCK
from chainrule.networks.network import Trainable
from chainrule.networks.precision import plain_products
from chainrule.networks.regularise import regularise
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.devices import choose_device, current_device, peak_flops
from chainrule.training.checkpoints.flatten import by_part, flatten, rebuild
from chainrule.training.engines.base import Engine, Fill, Snapshot, StepFigures, T, Timer, Weights
from chainrule.training.engines.torch_step import Memories, Stepper, choose_mode, is_from_compiler, is_out_of_memory
from chainrule.training.layouts import Rows, Step
from chainrule.training.objectives import Batch, Feed, Gatherer, Objective, Stretches
from chainrule.training.optimisers import Optimiser, WeightAverage, make_optimiser
from chainrule.training.run_state import Mode, Place
from chainrule.training.team import ALONE, current_team, is_divided, whole

ON_DEVICE = 1 << 30
"""The size in bytes up to which the ids of a text are kept on a GPU."""

_BFLOAT16 = ":bfloat16"  # marks arrays of a type that NumPy does not have; their bits are stored


class TorchEngine(Engine):
    """Builds, loads and trains networks of torch."""

    language_model = NeuralModel
    stepper: Stepper
    optimiser: Optimiser
    average: WeightAverage

    def __init__(self, network: Trainable, settings: TrainingSettings, device: str, model: Any = None) -> None:
        self.torch_device, self.team, self.model = torch.device(device), current_team(), model
        self.whole_network = network  # which gets the weights at the end, also if processes train parts of a copy
        self.network, self.settings, self.device = self.team.placed(network, self.torch_device), settings, device
        self.window = network.window
        self.memories: Memories = []
        self._rows: list[int] = []  # of each micro-batch of a step, those of other processes included
        self._pending: list[tuple[Place, Tensor, Tensor]] = []

    @property
    def prefers_few_shapes(self) -> bool:  # type: ignore[override]
        """True on a GPU, where the steps of a network with a window can be captured, a graph for each shape."""
        return self.torch_device.type == "cuda" and self.window is not None and self.team.size == 1

    # -- models -------------------------------------------------------------------------------------------

    @classmethod
    def check(cls, settings: TrainingSettings, device: str) -> None:
        if settings.precision == "float8":
            device = choose_device(device)
            if torch.device(device).type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
                raise SettingsError(
                    f"precision=float8 needs a GPU that multiplies 8-bit floats, and {device} does not"
                )

    @classmethod
    def build(cls, make: Callable[[Fill], Any], settings: TrainingSettings, data: TrainingData) -> TorchEngine:
        def fill(network: Callable[..., Trainable], *arguments: Any, **others: Any) -> Trainable:
            try:
                with torch.random.fork_rng([]):
                    torch.manual_seed(data.seed % 2**63)
                    return network(*arguments, **others)
            except (RuntimeError, MemoryError) as error:
                if not is_out_of_memory(error):
                    raise
                raise TrainingError(
                    "the network does not fit into memory: set a smaller width, hidden, ..."
                ) from None

        model = make(fill)
        model.network.head.float8 = _is_float8(settings, model.network.head.weight)
        return cls(model.network, settings, data.device, model)

    @classmethod
    def load(cls, make: Callable[[Fill], T], folder: ModelFolder) -> T:
        def fill(network: Callable[..., Trainable], *arguments: Any, **others: Any) -> Trainable:
            try:
                return load_network(partial(network, *arguments, **others), folder.tensors)
            except ValueError as error:
                raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None

        return make(fill)

    @staticmethod
    def table(model: Any) -> tuple[np.ndarray, float, str]:
        weight_VD, scale, setting = model.network.table()
        return weight_VD.detach().numpy(), scale, setting

    # -- before the first step ----------------------------------------------------------------------------

    @contextmanager
    def running(self, seed: int) -> Iterator[None]:
        with current_device(self.torch_device), self._forked_randomness():
            torch.manual_seed(self.team.seed(seed))
            yield

    def _forked_randomness(self) -> AbstractContextManager[None]:
        """Return a block that restores the random generators of the CPU and of the device at its end."""
        return torch.random.fork_rng([self.torch_device] if self.torch_device.type == "cuda" else [])

    def gatherer(self, ids: np.ndarray, objective: Objective) -> Gatherer:
        return torch_gatherer(ids, objective, self.torch_device)

    def choose_mode(self, feed: Feed, timer: Timer) -> Mode:
        settings, layout = self.settings, feed.layout
        if settings.compile == "auto" and (self.window is None or self.network.reads_two_sides):
            # the layers of a recurrent network are fused functions of torch already; and a network that reads lines
            # of many lengths, or two sides of many lengths, would be compiled again and again
            settings = replace(settings, compile="no")
        if self.team.shards and settings.compile == "auto":
            settings = replace(settings, compile="no")  # weights that are gathered and dropped cannot be compiled
        return choose_mode(settings, self.torch_device, layout, timer)

    @contextmanager
    def trial(self, mode: Mode) -> Iterator[TorchEngine]:
        # kept on the CPU: what fits into the device's memory in training should fit in a trial
        weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in self.network.state_dict().items()}
        with self._forked_randomness():
            try:
                engine = copy.copy(self)
                engine.memories, engine._pending = [], []
                engine.start(mode, is_trial=True)
                yield engine
            finally:
                self.network.zero_grad(set_to_none=True)  # a step that failed leaves gradients
                self.network.load_state_dict(weights)

    def start(self, mode: Mode, *, is_trial: bool = False) -> None:
        # in a trial each process has gradients of its own: weights do not change in it
        self.stepper = Stepper(self.network, self.torch_device, mode, ALONE if is_trial else self.team)
        self.optimiser = make_optimiser(self.network, self.settings)
        if mode.recorded and self.torch_device.type == "cuda":
            self.optimiser.prepare_capture()
        self.team.prepare(self.optimiser)
        self.average = WeightAverage(self.settings.average, dict(self.network.named_parameters()))
        self.network.train()

    # -- steps --------------------------------------------------------------------------------------------

    @plain_products()
    def take_step(self, feed: Feed, step: Step, rate: float, place: Place) -> None:
        step = self.stepper.filled(step, feed.layout)
        self._rows = [len(rows.starts_B) for rows in step.parts]
        step = self.team.share(step)
        try:
            loss, norm, after = self.stepper.take(step, feed.gatherer, self.memories, self.optimiser, rate)
            self._pending.append((place, loss, norm))
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
        if self.team.size > 1:  # which would not try with this one what does fit
            raise TrainingError(f"{place}: too little memory on {self.device}: set a smaller device_batch")
        # only here, outside the except block, is the memory of the failed attempt free again
        self.optimiser.forget()
        raise self.stepper.smaller_batch(step, feed.gatherer, place)

    def read_figures(self) -> list[StepFigures]:
        if not self._pending:
            return []
        places, losses, norms = zip(*self._pending, strict=True)
        self._pending = []
        # one transfer for all: each would wait for the device
        figures = torch.stack([self.team.summed(torch.stack(losses)), torch.stack(norms)]).tolist()
        return StepFigures.checked(zip(places, *figures, strict=True))

    def regularise(self, strength: float) -> None:
        regularise(self.network, strength)
        self.stepper.graphs.clear()  # they have the shares of before

    def average_weights(self, step: int, expected: float, stalled: int) -> None:
        self.average.update(step, expected, stalled)

    def wait(self) -> None:
        if self.torch_device.type == "cuda":
            torch.cuda.synchronize(self.torch_device)

    # -- validations --------------------------------------------------------------------------------------

    @contextmanager
    def measuring(self) -> Iterator[None]:
        with self.average.applied(), self._forked_randomness():
            self.network.eval()
            try:
                yield
            finally:
                self.network.train()

    def mean_nats(self, feed: Feed, most_steps: int | None = None) -> float:
        steps = [self.team.share(step) for step in feed.layout.validation(most_steps)]
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
    @plain_products()
    def _mean_nats(self, feed: Feed, steps: list[Step]) -> float:
        wide = torch.float32 if self.torch_device.type == "mps" else torch.float64
        nats = torch.zeros((), device=self.torch_device, dtype=wide)
        # not the compiled loss: code for validation would have to be compiled as well
        for found in self.nats_of_parts(feed, steps, self.stepper.plain_loss):
            nats += found.nats
        return float(self.team.summed(nats)) / sum(step.targets for step in steps)

    # -- weights and snapshots ----------------------------------------------------------------------------

    def weights(self) -> Weights:
        state = self.network.state_dict().items()
        return to_arrays({name: one.float() if one.is_floating_point() else one for name, one in state})

    def copied(self, weights: Mapping[str, np.ndarray]) -> Weights:
        if not self.team.shards:
            return super().copied(weights)
        return to_arrays(self.team.spread(from_arrays(weights), self._is_parameter))

    def gathered(self, weights: Weights) -> Weights:
        return {name: np.asarray(whole(array)) for name, array in weights.items()}

    def load_weights(self, weights: Mapping[str, np.ndarray]) -> None:
        tensors = {name: torch.from_numpy(np.array(array)) for name, array in weights.items()}
        self.whole_network.load_state_dict(tensors)
        self.whole_network.eval()

    def shapes(self) -> dict[str, list[int]]:
        return {name: list(tensor.shape) for name, tensor in self.network.state_dict().items()}

    def snapshot(self) -> Snapshot:
        parts: dict[str, Mapping[str, Any]] = {
            "weights": self.network.state_dict(),
            "optimiser": self.optimiser.tensors(),
            "average": self.average.values,
            "memory": self.team.gathered_rows(flatten(self.memories), self._rows),
            "random": self._random_states(),
        }
        if self.team.size > 1 and not self.team.shards and self.team.rank > 0:
            parts = {}  # the first process writes them all
        tensors = {f"{part}/{name}": tensor for part, found in parts.items() for name, tensor in found.items()}
        return Snapshot(to_arrays(tensors), {"average_count": self.average.count})

    def _random_states(self) -> dict[str, Tensor]:
        """Return the states of the random generators; NAME.1 is that of the second process, and so on."""
        states = {"cpu": torch.get_rng_state()}
        if self.torch_device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.torch_device)
        first, *others = self.team.gathered(states)
        names = {f"{name}.{i}": state for i, other in enumerate(others, 1) for name, state in other.items()}
        return {**first, **names}

    def restore(self, snapshot: Snapshot, feed: Feed | None) -> None:
        parts = by_part(self.team.spread(from_arrays(snapshot.arrays), self._is_parameter))
        self.network.load_state_dict(parts["weights"])
        self.optimiser.load(parts.get("optimiser", {}))
        self.average.load(parts.get("average", {}), snapshot.counts["average_count"])
        remembered = self.team.own_rows(parts.get("memory", {}))
        if remembered and feed is not None:
            like = self.example_memories(feed, remembered, self.stepper.plain_loss)
            # with the dtype and device that it has now: a run may be resumed in another precision
            leaves = {
                name: remembered[name].to(leaf) if isinstance(leaf, Tensor) else remembered[name]
                for name, leaf in flatten(like).items()
            }
            self.memories = rebuild(like, leaves)
        self._restore_randomness(parts["random"])

    def _restore_randomness(self, states: Mapping[str, Tensor]) -> None:
        rank = self.team.rank
        own = {
            name: state
            for name in ("cpu", "cuda")
            if (state := states.get(f"{name}.{rank}" if rank else name)) is not None
        }
        torch.set_rng_state(own.get("cpu", states["cpu"]))
        if self.torch_device.type == "cuda" and "cuda" in own:
            torch.cuda.set_rng_state(own["cuda"], self.torch_device)
        if not own:  # there were fewer processes: one that is new draws other numbers than the first
            torch.manual_seed(self.team.seed(int(torch.randint(2**62, ()))))

    def _is_parameter(self, name: str) -> bool:
        """Return True if a tensor of a snapshot has the shape of a parameter: one number for each weight."""
        part, _, rest = name.partition("/")
        if part in ("optimiser", "average"):
            return True
        name = rest if part in ("weights", "best") else name
        return part != "random" and name in dict(self.network.named_parameters(remove_duplicate=False))

    def replan(self, step: int, before: float, now: float) -> None:
        self.average.replan(step, before, now)

    # -- figures ------------------------------------------------------------------------------------------

    def memory_bytes(self) -> int:
        is_gpu = self.torch_device.type == "cuda"
        return torch.cuda.max_memory_allocated(self.torch_device) if is_gpu else super().memory_bytes()

    def peak_flops(self) -> float | None:
        flops = peak_flops(self.torch_device)
        return None if flops is None else flops * self.team.size


def _is_float8(settings: TrainingSettings, weight_VD: Tensor) -> bool:
    """Return True if the settings ask for 8-bit products in the head; refuse a head whose shape rules them out."""
    if settings.precision != "float8":
        return False
    rows, width = weight_VD.shape
    if rows % BLOCK or width % BLOCK:
        raise SettingsError(
            f"precision=float8 takes a head whose sides are multiples of {BLOCK}, not {rows} and {width}: "
            "set another width or vocabulary, or precision=bfloat16"
        )
    return True


def to_arrays(tensors: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """Return tensors and numbers copied to NumPy arrays with the same bits."""
    arrays = {}
    for name, value in tensors.items():
        if is_divided(value):
            arrays[name] = current_team().on_host(value)
            continue
        is_float = isinstance(value, float)
        tensor = torch.as_tensor(value, dtype=torch.float64) if is_float else torch.as_tensor(value)
        tensor = tensor.detach().to("cpu", copy=True)
        if tensor.dtype == torch.bfloat16:
            name, tensor = name + _BFLOAT16, tensor.contiguous().view(torch.int16)
        arrays[name] = tensor.numpy()
    return arrays


def from_arrays(arrays: Mapping[str, np.ndarray]) -> dict[str, Tensor]:
    """Return copies of the tensors from which `to_arrays` made these arrays."""
    tensors: dict[str, Any] = {}
    for name, array in arrays.items():
        if is_divided(array):
            tensors[name] = array
            continue
        tensor = torch.from_numpy(np.array(array))
        if name.endswith(_BFLOAT16):
            name, tensor = name.removesuffix(_BFLOAT16), tensor.view(torch.bfloat16)
        tensors[name] = tensor
    return tensors


# -- batches ----------------------------------------------------------------------------------------------


def torch_gatherer(ids: np.ndarray, objective: Objective, device: torch.device) -> Gatherer:
    """Return the gatherer for a device: on a GPU one that keeps a text that fits, else one that sends batches."""
    if device.type == "cuda" and ids.nbytes <= ON_DEVICE and not objective.is_on_host:
        return DeviceGatherer(ids, objective, device)
    return SendingGatherer(ids, objective, device)


class SendingGatherer(Gatherer):
    """Gathers on the host, and copies each batch to the device."""

    def __init__(self, ids: np.ndarray, objective: Objective, device: torch.device) -> None:
        super().__init__(ids, objective)
        self.device = device

    def batch(self, rows: Rows) -> Batch:
        return Batch(*(_mapped(self._send, array) for array in super().batch(rows)))

    def _send(self, array: np.ndarray) -> Tensor:
        return _sent(torch.from_numpy(np.ascontiguousarray(array)), self.device)


class DeviceGatherer(Gatherer):
    """Keeps the ids on the device and gathers there: the batches of SendingGatherer without work for the host."""

    def __init__(self, ids: np.ndarray, objective: Objective, device: torch.device) -> None:
        super().__init__(ids, objective)
        # torch can index only signed integers on every device: the bits are kept, and a mask undoes the sign
        signed = np.array(ids).view(f"<i{ids.itemsize}")
        self.device_ids, self.mask = torch.from_numpy(signed).to(device), (1 << 8 * ids.itemsize) - 1
        self.device = device

    def batch(self, rows: Rows) -> Batch:
        numbers = torch.from_numpy(np.stack([rows.starts_B, rows.lengths_B, rows.skips_B]).astype(np.int64))
        starts_B, lengths_B, skips_B = _sent(numbers, self.device)
        # one column more than there are targets: the token before the first
        places = starts_B[:, None] + torch.arange(-1, rows.width, device=self.device)
        ids_BS = self.device_ids[places.clamp_(0, len(self.device_ids) - 1)].long().bitwise_and_(self.mask)
        batch = self.objective.batch(
            Stretches(ids_BS, starts_B, lengths_B, skips_B, rows.is_full, rows.epoch, rows.is_filled)
        )
        return Batch(*(_mapped(Tensor.contiguous, tensor) for tensor in batch))


def _mapped(work: Callable[[Any], Tensor], inputs: Any) -> Any:
    """Return the result of `work` for an array, or for each of a tuple of them."""
    return tuple(_mapped(work, part) for part in inputs) if isinstance(inputs, tuple) else work(inputs)


def _sent(tensor: Tensor, device: torch.device) -> Tensor:
    """Return a tensor of the host on the device; a GPU is not waited for."""
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor.to(device)
