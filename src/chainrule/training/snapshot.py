"""Everything of a run that a checkpoint must keep, and how it is put back."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor

from chainrule.errors import TrainingError
from chainrule.folder import to_json
from chainrule.kinds import TrainingData
from chainrule.tokens.registry import dump_tokenizer
from chainrule.training.average import Average
from chainrule.training.checkpoint import Checkpoint
from chainrule.training.memories import tensors_in, with_tensors
from chainrule.training.optim import Optimiser
from chainrule.training.plan import TrainingSettings
from chainrule.training.state import State
from chainrule.training.step import Memories
from chainrule.training.trainable import Trainable

_WITHOUT_EFFECT = ("checkpoint_minutes", "sample_every", "tensorboard", "engine")  # only torch keeps checkpoints
_CHANGEABLE = ("learning_rate", "clip")  # what to change when steps were too large, as the error of such a run says


def identity(network: Trainable, settings: TrainingSettings, data: TrainingData) -> dict[str, Any]:
    """What a run is made of: only with the same can it go on."""
    return {
        "settings": {
            name: value for name, value in asdict(settings).items() if name not in (*_WITHOUT_EFFECT, *_CHANGEABLE)
        },
        "network": {name: list(tensor.shape) for name, tensor in network.state_dict().items()},
        "data": {
            "context": data.context,
            "seed": data.seed,
            "corpus": data.train.fingerprint,
            "held-out text": None if data.valid is None else data.valid.fingerprint,
            "tokenizer": hashlib.sha256(dump_tokenizer(data.tokenizer).encode()).hexdigest(),
        },
    }


def check_identity(then: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Refuse to resume something else, and say what differs."""
    was, is_now = dict(_leaves(then)), dict(_leaves(json.loads(to_json(now))))
    names = [name for name in {**was, **is_now} if was.get(name) != is_now.get(name)]
    if names:
        found = "; ".join(f"{name}: {was.get(name)} then, {is_now.get(name)} now" for name in names[:5])
        raise TrainingError(
            f"this is not the training that the checkpoint is of ({found}); begin anew (--overwrite)"
        )


def _leaves(values: Mapping[str, Any], name: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{name}{key} ")
        else:
            yield f"{name}{key}", value


@dataclass
class Running:
    """All that changes while a network is trained."""

    network: Trainable
    optimiser: Optimiser
    average: Average
    state: State
    device: torch.device
    identity: Mapping[str, Any]
    """What it is made of."""
    memories: Memories = field(default_factory=list)
    best: dict[str, Tensor] | None = None
    """The best weights so far, on the CPU."""

    def snapshot(self) -> Checkpoint:
        """Where it stands."""
        parts: dict[str, Mapping[str, Tensor]] = {
            "weights": self.network.state_dict(),
            "optimiser": self.optimiser.tensors(),
            "average": self.average.values,
            "best": self.best or {},
            "memory": tensors_in(self.memories),
            "random": random_states(self.device),
        }
        tensors = {f"{part}/{name}": tensor for part, found in parts.items() for name, tensor in found.items()}
        state = {
            "identity": self.identity,
            "average_count": self.average.count,
            "state": self.state.to_json(),
        }
        return Checkpoint(tensors, state)

    def go_on(self, checkpoint: Checkpoint, memory_like: Callable[[], Any]) -> None:
        """From there, where `state` stands already.

        How a memory is made the network shows by an example: nothing in a file decides that.
        """
        parts: dict[str, dict[str, Tensor]] = {}
        for name, tensor in checkpoint.tensors.items():
            part, _, rest = name.partition("/")
            parts.setdefault(part, {})[rest] = tensor
        self.network.load_state_dict(parts["weights"])
        self.optimiser.load(parts.get("optimiser", {}))
        self.average.load(parts.get("average", {}), checkpoint.state["average_count"])
        self.best = parts.get("best")
        remembered = parts.get("memory", {})
        if remembered:
            count = 1 + max(int(name.partition(".")[0]) for name in remembered)
            self.memories = with_tensors([memory_like()] * count, remembered)
        torch.set_rng_state(parts["random"]["cpu"])
        if self.device.type == "cuda" and "cuda" in parts["random"]:
            torch.cuda.set_rng_state(parts["random"]["cuda"], self.device)


def random_states(device: torch.device) -> dict[str, Tensor]:
    """What chance depends on."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    return states
