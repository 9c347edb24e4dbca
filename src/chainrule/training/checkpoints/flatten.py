"""Nested values, such as a network's memory, as a flat dictionary of arrays with names, and back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def flatten(value: Any) -> dict[str, Any]:
    """Return every array and number inside a nested value, under the path to it, such as `0.cell`."""
    found: dict[str, Any] = {}
    _mapped(found.setdefault, value)
    return found


def rebuild(like: Any, leaves: Mapping[str, Any]) -> Any:
    """Return a value like `like`, with the arrays and numbers of `leaves`, whose names are those of `flatten`."""

    def leaf(name: str, before: Any) -> Any:
        now = leaves[name]
        return now if _is_array(before) else type(before)(now.item() if _is_array(now) else now)

    return _mapped(leaf, like)


def by_part(values: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Return values whose names begin with PART/, by part and then by the rest of the name."""
    parts: dict[str, dict[str, T]] = {}
    for name, value in values.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    return parts


def _mapped(work: Callable[[str, Any], Any], value: Any, name: str = "") -> Any:
    """Return a nested value with `work` of its path and itself in place of each array and number."""
    inside = f"{name}." if name else ""
    if isinstance(value, (bool, int, float)) or _is_array(value):
        return work(name, value)
    if isinstance(value, (tuple, list)):
        parts = [_mapped(work, part, f"{inside}{number}") for number, part in enumerate(value)]
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    if isinstance(value, dict):
        return {key: _mapped(work, part, f"{inside}{key}") for key, part in value.items()}
    if value is None:
        return None
    if not dataclasses.is_dataclass(value):
        raise TypeError(f"a memory is made of arrays, numbers, tuples and dataclasses, not of {type(value)}")
    made = copy.copy(value)
    for field in dataclasses.fields(value):
        # most memories are frozen dataclasses
        object.__setattr__(made, field.name, _mapped(work, getattr(value, field.name), f"{inside}{field.name}"))
    return made


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")
