"""A step of training as a CUDA graph: captured once, then replayed as a whole.

A network reads its tokens in hundreds of small kernels, and the GPU finishes each of them before the host has
launched the next. In a replay the GPU need not wait for the host.

A graph serves one shape: inputs, targets, memory and weights lie at fixed addresses. Steps of another shape have
another graph, or are computed without one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import torch
from torch import Tensor

from chainrule.networks.network import BatchLoss, Trainable
from chainrule.training.checkpoints.flatten import flatten, rebuild

Gradients: TypeAlias = Callable[[Any, Tensor, Any], BatchLoss]
"""Adds the gradients of the mean loss of inputs, targets and memory; returns the loss, its memory detached."""
Update: TypeAlias = Callable[[], Tensor]
"""Changes the weights by their gradients, which are left to the caller; returns the norm of the gradients."""

_WARM_UP = 3


def copied(memory: Any) -> Any:
    """Return a detached copy of a network's memory."""
    leaves = flatten(memory)
    if not all(isinstance(leaf, Tensor) for leaf in leaves.values()):
        raise RuntimeError("a CUDA graph can only carry on a memory of tensors: it would not see numbers change")
    return rebuild(memory, {name: tensor.detach().clone() for name, tensor in leaves.items()})


class StepGraph:
    """The step of one network for batches of one shape: its gradients and, if they can be captured, the update."""

    def __init__(
        self,
        network: Trainable,
        gradients: Gradients,
        update: Update | None,
        inputs: Any,
        targets: Tensor,
        memory: Any,
        beside: StepGraph | None = None,
    ) -> None:
        """`beside` is a graph of another shape: the two share memory, since one is replayed at a time."""
        self.parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
        self.inputs, self.targets, self.memory = copied(inputs), targets.clone(), memory
        self.given, self.remembered = flatten(self.inputs), flatten(memory)
        self.norm: Tensor | None = None

        def step() -> None:
            found = gradients(self.inputs, self.targets, self.memory)
            for name, tensor in flatten(found.memory).items():
                self.remembered[name].copy_(tensor)
            self.nats = found.nats
            if update is not None:
                self.norm = update()

        before = {name: tensor.clone() for name, tensor in self.remembered.items()}
        warm_up = lambda: gradients(self.inputs, self.targets, self.memory)  # noqa: E731
        shares = None if beside is None else beside.graph
        self.graph: Any = recorded(step, warm_up, self._drop_gradients, targets.device, shares)
        if update is not None:
            self._drop_gradients()  # their memory is free for graphs of other shapes
        self.gradients = [parameter.grad for parameter in self.parameters] if update is None else []
        for name, tensor in before.items():
            self.remembered[name].copy_(tensor)

    def replay(self, inputs: Any, targets: Tensor, memory: Any) -> tuple[Tensor, Tensor | None, Any]:
        """Take the step for this batch, or only set the gradient of each parameter if it has no update.

        Returns the sum of nats, the norm of the gradient if there is an update, and the memory afterwards.
        """
        for name, tensor in flatten(inputs).items():
            self.given[name].copy_(tensor)
        self.targets.copy_(targets)
        if memory is not self.memory:
            for name, tensor in flatten(memory).items():
                self.remembered[name].copy_(tensor)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=False):
            parameter.grad = gradient
        return self.nats.clone(), None if self.norm is None else self.norm.clone(), self.memory

    def _drop_gradients(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None


def recorded(
    step: Callable[[], None],
    warm_up: Callable[[], Any],
    drop_gradients: Callable[[], None],
    device: torch.device,
    beside: Any = None,
) -> Any:
    """Return the graph of a step, which was not taken; only the warm-up was.

    `beside` is a graph whose memory this one may use, since the two are never replayed at the same time.
    """
    with torch.random.fork_rng([device]):  # warming up draws no random numbers of the run
        side_stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        side_stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(side_stream):
            for _ in range(_WARM_UP):  # libraries choose and compile kernels when they are first called
                drop_gradients()
                warm_up()
        torch.cuda.current_stream(device).wait_stream(side_stream)
        drop_gradients()  # so that the graph makes gradients of its own, and does not add to others
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=None if beside is None else beside.pool()):
            step()
    return graph
