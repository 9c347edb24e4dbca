"""What a network remembers, as tensors with names, and back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def tensors_in(memory: Any, name: str = "") -> dict[str, Tensor]:
    """Every tensor and number of a memory; a name is the way to it, as in `0.cell`."""
    if isinstance(memory, Tensor):
        return {name: memory}
    if isinstance(memory, (bool, int, float)):
        return {name: torch.tensor(memory, dtype=torch.float64 if isinstance(memory, float) else torch.int64)}
    found: dict[str, Tensor] = {}
    for key, value in _parts(memory):
        found |= tensors_in(value, f"{name}.{key}" if name else key)
    return found


def with_tensors(like: Any, tensors: Mapping[str, Tensor], name: str = "") -> Any:
    """A memory made as `like` is, of the values that `tensors_in` gave."""
    if isinstance(like, Tensor):
        return tensors[name].to(like)  # the precision may be another one now
    if isinstance(like, (bool, int, float)):
        return type(like)(tensors[name].item())
    parts = {key: with_tensors(value, tensors, f"{name}.{key}" if name else key) for key, value in _parts(like)}
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*parts.values())
    if isinstance(like, (tuple, list)):
        return type(like)(parts.values())
    if isinstance(like, dict):
        return dict(zip(like, parts.values(), strict=True))
    made = copy.copy(like)
    for key, value in parts.items():
        object.__setattr__(made, key, value)  # memories are values: most are frozen
    return made


def copy_of(memory: Any) -> Any:
    """The same values, in tensors of their own."""
    return with_tensors(memory, {name: tensor.detach().clone() for name, tensor in tensors_in(memory).items()})


def _parts(memory: Any) -> Iterator[tuple[str, Any]]:
    if memory is None:
        return
    if isinstance(memory, (tuple, list)):
        yield from ((str(number), value) for number, value in enumerate(memory))
    elif isinstance(memory, dict):
        yield from ((str(key), value) for key, value in memory.items())
    elif dataclasses.is_dataclass(memory):
        yield from ((field.name, getattr(memory, field.name)) for field in dataclasses.fields(memory))
    else:
        raise TypeError(f"a memory is made of tensors, numbers, tuples and dataclasses, not of {type(memory)}")
