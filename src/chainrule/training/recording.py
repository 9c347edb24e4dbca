"""The gradients of a step as a graph: recorded once on a GPU, then played back as a whole.

A recurrent network reads its tokens one after the other, in hundreds of small pieces of work, and a small network
is done with each of them before the host has asked for the next. Played back, the GPU need not wait for the host.

What is recorded is for one shape: inputs, targets, memory and gradients lie at fixed addresses. Steps of another
shape are computed as ever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from chainrule.training.memories import tensors_in
from chainrule.training.trainable import Loss, Trainable

Gradients = Callable[[Tensor, Tensor, Any], Loss]
"""Adds the gradients of the mean loss of inputs, targets and memory; gives the loss, its memory detached."""

_WARM_UP = 3


class Recording:
    """The gradients of one network for batches of one shape."""

    def __init__(
        self, network: Trainable, gradients: Gradients, inputs: Tensor, targets: Tensor, memory: Any
    ) -> None:
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.inputs, self.targets, self.memory = inputs.clone(), targets.clone(), memory
        self.remembered = tensors_in(memory)
        device = inputs.device
        before = {name: tensor.clone() for name, tensor in self.remembered.items()}
        with torch.random.fork_rng([device]):  # what is tried out draws nothing
            beside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
            beside.wait_stream(torch.cuda.current_stream(device))
            with torch.cuda.stream(beside):
                for _ in range(_WARM_UP):  # libraries choose and compile kernels when they are first called
                    self._forget()
                    gradients(self.inputs, self.targets, self.memory)
            torch.cuda.current_stream(device).wait_stream(beside)
            self._forget()  # so that the graph makes gradients of its own, and does not add to others
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                found = gradients(self.inputs, self.targets, self.memory)
                for name, tensor in tensors_in(found.memory).items():
                    self.remembered[name].copy_(tensor)
                self.nats = found.nats
        self.gradients = [parameter.grad for parameter in self.parameters]
        for name, tensor in before.items():
            self.remembered[name].copy_(tensor)

    def play(self, inputs: Tensor, targets: Tensor, memory: Any) -> tuple[Tensor, Any]:
        """The sum of nats and the memory afterwards; each parameter has its gradient."""
        self.inputs.copy_(inputs)
        self.targets.copy_(targets)
        if memory is not self.memory:
            for name, tensor in tensors_in(memory).items():
                self.remembered[name].copy_(tensor)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.nats.clone(), self.memory

    def _forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None
