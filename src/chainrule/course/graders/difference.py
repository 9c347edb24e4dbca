"""The first difference of two results, in words."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np

_NEARLY_0 = 1e-3
"""No number is relatively near to 0: there the tolerance is relative to this."""


def difference(found: Any, expected: Any, tolerance: float, name: str = "the result") -> str:
    """Return the first difference of a result from the expected one; nothing if they are the same.

    Numbers may differ by `tolerance`, relative to the expected one; those of an array relative to the largest of
    its numbers, since rounding is of that size. Of a table, the first entry that differs is named, so that a
    student who returns the steps of a computation in order learns which step is wrong.

    >>> difference({"z": [1.0, 2.0], "p": [0.3, 0.7]}, {"z": [1.0, 2.5], "p": [0.2, 0.8]}, 1e-6)
    'z: the largest difference is 0.5 at entry 1 (counted from 0): yours is 2, expected 2.5'
    >>> difference(np.zeros(3), np.zeros((3, 1)), 1e-6, "dW")
    'dW: expected a matrix of 3 x 1, found a vector of 3'
    """
    if isinstance(expected, Mapping):
        return _of_tables(found, expected, tolerance, name)
    if isinstance(expected, str) or expected is None or is_number(expected):
        return (
            "" if same(found, expected, tolerance) else f"{name}: yours is {show(found)}, expected {show(expected)}"
        )
    if found is None:
        return f"{name}: yours is None; is there a return?"
    try:
        ours, theirs = (np.asarray(one, np.float64) for one in (expected, found))
    except (TypeError, ValueError):
        return _of_lists(found, expected, tolerance, name)
    if np.asarray(found).dtype.kind in "US":  # which NumPy reads as numbers
        return f"{name}: expected numbers, found words in quotes"
    if ours.shape != theirs.shape:
        return f"{name}: expected {shape_in_words(ours.shape)}, found {shape_in_words(theirs.shape)}"
    with np.errstate(invalid="ignore"):
        errors = np.where((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)), 0, np.abs(ours - theirs))
    errors = np.where(np.isnan(errors), np.inf, errors)
    sizes = np.abs(np.where(np.isfinite(ours), ours, 0.0))
    allowed = tolerance * (sizes.max(initial=0.0) or _NEARLY_0)
    if np.all(errors <= allowed):
        return ""
    where = np.unravel_index(int(errors.argmax()), errors.shape)
    values = f"yours is {show(theirs[where])}, expected {show(ours[where])}"
    if not np.isfinite(errors[where]):
        return f"{name}, {place_in_words(where)}: {values}"
    return f"{name}: the largest difference is {show(errors[where])} at {place_in_words(where)}: {values}"


def _of_tables(found: Any, expected: Mapping[Any, Any], tolerance: float, name: str) -> str:
    if not isinstance(found, Mapping):
        return f"{name}: expected a dict, found {type(found).__name__}"
    for key, value in expected.items():
        if key not in found:
            return f"{name}: there is no entry {show(key)}"
        if said := difference(found[key], value, tolerance, str(key)):
            return said
    extra = [key for key, value in found.items() if key not in expected and value]
    return f"{name}: {show(extra[0])} should not be there" if extra else ""


def _of_lists(found: Any, expected: Any, tolerance: float, name: str) -> str:
    try:
        items = list(found)
    except TypeError:
        return f"{name}: expected {type(expected).__name__}, found {type(found).__name__}"
    if isinstance(found, str) or len(items) != len(expected):
        count = "one text" if isinstance(found, str) else f"{len(items)} entries"
        return f"{name}: expected {len(expected)} entries, found {count}"
    for place, (one, other) in enumerate(zip(items, expected, strict=True)):
        if said := difference(one, other, tolerance, f"{name}, {place_in_words((place,))}"):
            return said
    return ""


def shape_in_words(shape: Sequence[int]) -> str:
    """Write the shape of an array.

    >>> [shape_in_words(shape) for shape in ((), (3,), (3, 4))]
    ['a single number', 'a vector of 3', 'a matrix of 3 x 4']
    """
    names = {0: "a single number", 1: "a vector of ", 2: "a matrix of "}
    return names.get(len(shape), "an array of ") + " x ".join(map(str, shape))


def place_in_words(where: Sequence[Any]) -> str:
    """Write the place of a number in an array.

    >>> place_in_words((3,)), place_in_words((3, 4))
    ('entry 3 (counted from 0)', 'row 3, column 4 (counted from 0)')
    """
    axes = {1: ["entry"], 2: ["row", "column"]}.get(len(where)) or [f"axis {i}:" for i in range(len(where))]
    named = ", ".join(f"{axis} {int(i)}" for axis, i in zip(axes, where, strict=True))
    return f"{named} (counted from 0)"


def is_number(value: Any) -> bool:
    """Return True for a number of Python or NumPy, or an array of one number without axes."""
    return isinstance(value, Real) or (isinstance(value, np.ndarray) and value.ndim == 0)


def same(found: Any, expected: Any, tolerance: float) -> bool:
    """Return True if two values are equal: numbers up to the tolerance, words up to case and spaces.

    >>> same(0.33, 1 / 3, 0.02), same("Cats ", "cats", 0), same(3, 3.1, 0), same("3", 3, 0)
    (True, True, False, False)
    >>> same(1e-9, 2e-9, 0.005), same(1e-9, 0.0, 0.005)
    (False, True)
    """
    if is_number(found) and is_number(expected):
        nearly_0 = tolerance * _NEARLY_0 if expected == 0 else 0.0
        return math.isclose(float(found), float(expected), rel_tol=tolerance, abs_tol=nearly_0)
    if isinstance(found, str) and isinstance(expected, str):
        return found.strip().casefold() == expected.strip().casefold()
    return found is expected


def show(value: Any) -> str:
    """Write a value of an answer in a few characters."""
    if is_number(value) and not isinstance(value, (bool, int)):
        return f"{float(value):.6g}"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:59]}…"
