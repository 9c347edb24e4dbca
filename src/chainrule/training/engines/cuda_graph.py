"""The gradients of a step as a CUDA graph: captured once, then replayed as a whole.

A recurrent network reads its tokens one after the other, in hundreds of small kernels, and the GPU finishes each of
them before the host has launched the next. In a replay the GPU need not wait for the host.

A graph serves one shape: inputs, targets, memory and gradients lie at fixed addresses. Steps of another shape are
computed without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from chainrule.networks.network import BatchLoss, Trainable
from chainrule.training.checkpoints.flatten import flatten, rebuild

Gradients: TypeAlias = Callable[[Tensor, Tensor, Any], BatchLoss]
"""Adds the gradients of the mean loss of inputs, targets and memory; returns the loss, its memory detached."""

_WARM_UP = 3


def copied(memory: Any) -> Any:
    """Return a detached copy of a network's memory."""
    leaves = flatten(memory)
    if not all(isinstance(leaf, Tensor) for leaf in leaves.values()):
        raise RuntimeError("a CUDA graph can only carry on a memory of tensors: it would not see numbers change")
    return rebuild(memory, {name: tensor.detach().clone() for name, tensor in leaves.items()})


class GradientGraph:
    """The gradients of one network for batches of one shape."""

    def __init__(
        self, network: Trainable, gradients: Gradients, inputs: Tensor, targets: Tensor, memory: Any
    ) -> None:
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.inputs, self.targets, self.memory = inputs.clone(), targets.clone(), memory
        self.remembered = flatten(memory)
        device = inputs.device
        before = {name: tensor.clone() for name, tensor in self.remembered.items()}
        with torch.random.fork_rng([device]):  # warming up draws no random numbers of the run
            side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            side_stream.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(side_stream):
                for _ in range(_WARM_UP):  # libraries choose and compile kernels when they are first called
                    self._drop_gradients()
                    gradients(self.inputs, self.targets, self.memory)
            torch.cuda.current_stream(device).wait_stream(side_stream)
            self._drop_gradients()  # so that the graph makes gradients of its own, and does not add to others
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                found = gradients(self.inputs, self.targets, self.memory)
                for name, tensor in flatten(found.memory).items():
                    self.remembered[name].copy_(tensor)
                self.nats = found.nats
        self.gradients = [parameter.grad for parameter in self.parameters]
        for name, tensor in before.items():
            self.remembered[name].copy_(tensor)

    def replay(self, inputs: Tensor, targets: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """Set the gradient of each parameter for this batch; returns the sum of nats and the memory afterwards."""
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        if memory is not self.memory:
            for name, tensor in flatten(memory).items():
                self.remembered[name].copy_(tensor)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.nats.clone(), self.memory

    def _drop_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
