"""Everything of a run that a checkpoint must keep, and how it is put back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from chainrule.training.average import Average
from chainrule.training.checkpoint import Checkpoint
from chainrule.training.memories import tensors_in, with_tensors
from chainrule.training.optim import Optimiser
from chainrule.training.state import State
from chainrule.training.step import Memories
from chainrule.training.trainable import Trainable


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

    def go_on(self, checkpoint: Checkpoint, memory_like: Callable[[], Any] | None) -> None:
        """From there, where `state` stands already.

        How a memory is made the network shows by an example: nothing in a file decides that. None: it is forgotten.
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
        if remembered and memory_like is not None:
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
