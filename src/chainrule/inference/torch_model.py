"""Models of torch: the device and precision of their weights, and networks loaded from stored arrays.

The sizes of a network come from a file, which can contain anything. So a network is first built without memory,
on torch's "meta" device, which knows shapes and no numbers, and no further than the stored arrays go.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from typing import Any, Self, TypeVar

import numpy as np
import torch
from torch.nn.modules.module import register_module_parameter_registration_hook

from chainrule.contract.model import Model
from chainrule.networks.initial_weights import WithoutInitialWeights
from chainrule.networks.network import Trainable
from chainrule.system.devices import expect_slow_bfloat16

N = TypeVar("N", bound=Trainable)


class TorchModel(Model):
    """A model whose network has a head and is computed by torch."""

    network: Any

    def with_network(self, network: Trainable) -> Self:
        """Return this model with another network of the same shape, such as a copy to train."""
        other = copy.copy(self)
        for name in list(vars(other)):
            if isinstance(getattr(type(other), name, None), cached_property):
                delattr(other, name)  # it was made from the network before
        other.network = network.eval()
        return other

    @property
    def torch_device(self) -> torch.device:
        """The device of the weights."""
        device: torch.device = self.network.head.weight.device
        return device

    @property
    def device(self) -> str:
        return str(self.torch_device)

    @property
    def dtype(self) -> str:
        return str(self.network.head.weight.dtype).removeprefix("torch.")

    def on(self, device: str, dtype: str = "float32") -> Self:
        """Return a copy of this model on a device, with weights of that precision; itself if nothing changes."""
        if dtype == "bfloat16":
            expect_slow_bfloat16(device)
        like = torch.empty(0, device=device, dtype=getattr(torch, dtype))
        if (like.device, like.dtype) == (self.torch_device, self.network.head.weight.dtype):
            return self
        return self.with_network(copy.deepcopy(self.network).to(like.device, like.dtype))

    def tensors(self) -> dict[str, np.ndarray]:
        return {name: weight.detach().float().cpu().numpy() for name, weight in self.network.named_parameters()}


_NAMES_OF_ONE = 4  # a parameter may be known to several modules of a network
_MOST_TABLES = 1 << 30  # bytes of tables that a network computes from its sizes, such as the angles of positions


def load_network(build: Callable[[], N], arrays: Mapping[str, np.ndarray]) -> N:
    """Return the network that `build` makes, with weights from arrays; ValueError if they do not fit together."""
    _check_shapes(build, arrays)
    with torch.random.fork_rng([]), WithoutInitialWeights():  # the caller's random numbers stay as they are
        network = build()
    load_weights(network, arrays)
    return network


def load_weights(network: Trainable, arrays: Mapping[str, np.ndarray]) -> None:
    """Copy weights into a network by name; ValueError if one is missing or has the wrong shape."""
    with torch.no_grad():
        for name, weight in network.named_parameters():
            weight.copy_(torch.from_numpy(np.array(_fitting(name, weight, arrays))))


def _check_shapes(build: Callable[[], Trainable], arrays: Mapping[str, np.ndarray]) -> None:
    """Raise ValueError unless the arrays are those of the network that `build` would make."""
    try:
        most = _NAMES_OF_ONE * len(arrays) + 1
        with torch.random.fork_rng([]), WithoutInitialWeights(), torch.device("meta"), _at_most(most):
            network = build()
    except (RuntimeError, MemoryError, OverflowError, TypeError) as error:
        if "meta" in str(error).lower():
            return  # a network that computes with numbers while it is built cannot be built without them
        # sizes that torch cannot count
        raise ValueError(f"its sizes are impossible: {str(error).partition(chr(10))[0]}") from None
    for name, weight in network.named_parameters():
        _fitting(name, weight, arrays)
    tables = sum(buffer.numel() * buffer.element_size() for buffer in network.buffers())
    if tables > _MOST_TABLES:
        raise ValueError(f"its sizes are impossible: tables of {tables / 1e9:.1f} GB")


def _fitting(name: str, weight: torch.Tensor, arrays: Mapping[str, np.ndarray]) -> np.ndarray:
    if name not in arrays:
        raise ValueError(f"there is no array {name!r}")
    array = arrays[name]
    if array.shape != tuple(weight.shape):
        raise ValueError(f"{name} has the shape {list(array.shape)}, not {list(weight.shape)}")
    if array.dtype.kind != "f":
        raise ValueError(f"{name} holds {array.dtype}, not floating-point numbers")
    return array


@contextmanager
def _at_most(parameters: int) -> Iterator[None]:
    """Let this thread give modules at most this many parameters within the block; one more raises ValueError."""
    thread, count = threading.get_ident(), 0

    def hook(module: Any, name: str, parameter: Any) -> None:
        nonlocal count
        if threading.get_ident() == thread:
            count += parameter is not None
            if count > parameters:
                raise ValueError("it would have more weights than are stored")

    handle = register_module_parameter_registration_hook(hook)
    try:
        yield
    finally:
        handle.remove()
