"""An answer that a student types into a field: read as a value, and never run as a program."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable
from typing import Any

from chainrule.errors import CourseError

_MOST_POWER = 1024
"""The largest exponent: a few digits more would fill the memory."""


def _power(base: float, exponent: float) -> Any:
    if abs(exponent) > _MOST_POWER:
        raise OverflowError
    return base**exponent


_SUMS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: _power,
}


def typed_value(text: str) -> Any:
    """Return what a text means: a number or a sum of numbers, a list, a dict, or else the words as they are.

    >>> typed_value("2/3 * 1/2"), typed_value("10**2 * 9")
    (0.3333333333333333, 900)
    >>> typed_value("[cats, 'dogs', 3]"), typed_value("the cats"), typed_value("</s>")
    (['cats', 'dogs', 3], 'the cats', '</s>')

    Nothing is an answer that is not given yet: `...`.
    """
    text = text.strip()
    if not text:
        return ...
    try:
        return _value(ast.parse(text, mode="eval").body)
    except (SyntaxError, TypeError, ValueError, MemoryError, RecursionError):
        return text  # words, which need no quotes
    except ZeroDivisionError:
        raise CourseError(f"{text[:60]} divides by 0") from None
    except OverflowError:
        raise CourseError("the number is too large") from None


def _value(node: ast.expr) -> Any:
    match node:
        case ast.Constant(value=int() | float() as number):
            return _finite(number)
        case ast.Constant(value=str() | None as value):
            return value
        case ast.Constant(value=value) if value is ...:
            return value
        case ast.Name(id=word):
            return word
        case ast.List(elts=items):
            return [_value(item) for item in items]
        case ast.Tuple(elts=items):
            return tuple(_value(item) for item in items)
        case ast.Dict(keys=keys, values=values) if None not in keys:
            return {_value(key): _value(value) for key, value in zip(keys, values, strict=True) if key is not None}
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _SUMS:
            numbers = _value(left), _value(right)
            if all(isinstance(number, int | float) for number in numbers):
                return _finite(_SUMS[type(op)](*numbers))
    raise ValueError("not a value")


def _finite(number: float) -> float:
    float(number)  # what does not fit a float cannot be compared with one
    return number
