"""Nested values, such as a network's memory, as a flat dictionary of arrays with names, and back."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def flatten(value: Any, name: str = "") -> dict[str, Any]:
    """Return every array and number inside a nested value, under the path to it, such as `0.cell`."""
    if _is_leaf(value):
        return {name: value}
    found: dict[str, Any] = {}
    for key, part in _parts(value):
        found |= flatten(part, f"{name}.{key}" if name else key)
    return found


def by_part(values: Mapping[str, T]) -> dict[str, dict[str, T]]:
    """Return values whose names begin with PART/, by part and then by the rest of the name."""
    parts: dict[str, dict[str, T]] = {}
    for name, value in values.items():
        part, _, rest = name.partition("/")
        parts.setdefault(part, {})[rest] = value
    return parts


def rebuild(like: Any, leaves: Mapping[str, Any], name: str = "") -> Any:
    """Return a value like `like`, with the arrays and numbers of `leaves`, whose names are those of `flatten`."""
    if _is_leaf(like):
        leaf = leaves[name]
        return leaf if _is_array(like) else type(like)(leaf.item() if _is_array(leaf) else leaf)
    parts = {key: rebuild(part, leaves, f"{name}.{key}" if name else key) for key, part in _parts(like)}
    if isinstance(like, tuple) and hasattr(like, "_fields"):
        return type(like)(*parts.values())
    if isinstance(like, (tuple, list)):
        return type(like)(parts.values())
    if isinstance(like, dict):
        return dict(zip(like, parts.values(), strict=True))
    made = copy.copy(like)
    for key, value in parts.items():
        object.__setattr__(made, key, value)  # most memories are frozen dataclasses
    return made


def _is_array(value: Any) -> bool:
    return hasattr(value, "shape") and hasattr(value, "dtype")


def _is_leaf(value: Any) -> bool:
    return isinstance(value, (bool, int, float)) or _is_array(value)


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if value is None:
        return
    if isinstance(value, (tuple, list)):
        yield from ((str(number), part) for number, part in enumerate(value))
    elif isinstance(value, dict):
        yield from ((str(key), part) for key, part in value.items())
    elif dataclasses.is_dataclass(value):
        yield from ((field.name, getattr(value, field.name)) for field in dataclasses.fields(value))
    else:
        raise TypeError(f"a memory is made of arrays, numbers, tuples and dataclasses, not of {type(value)}")
