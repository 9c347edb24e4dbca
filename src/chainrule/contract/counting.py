"""How many parameters a model has, counted from the shapes of its weights, before it is trained.

A kind declares the shapes as a function of its settings and the size of the vocabulary. It is called with numbers
that know how they were computed, so that each shape tells its formula too: there is no second one to keep in step.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Self

from chainrule.contract.kinds import find_kind, kind_names
from chainrule.errors import ChainruleError, MissingExtraError, PluginError, SettingsError
from chainrule.settings import closed, parse

LABELS = 10
"""The labels of a classifier or the tags of a tagger that are counted where no number is given."""


@dataclass(frozen=True)
class Weight:
    """An array of parameters."""

    name: str
    shape: tuple[int, ...]
    number: int
    formula: str
    """The number, from the names of settings; |V| is the size of the vocabulary."""


@dataclass(frozen=True)
class ParameterCount:
    """The parameters of a model of some settings."""

    kind: str
    vocab_size: int
    sizes: Mapping[str, int]
    """The settings that decide its size."""
    weights: tuple[Weight, ...]

    @property
    def parameters(self) -> int:
        """The number of all parameters."""
        return sum(weight.number for weight in self.weights)

    @property
    def formula(self) -> str:
        """The sum of the formulas of all weights; equal ones are counted."""
        counted = Counter(weight.formula for weight in self.weights)
        return " + ".join(f"{n} · {one}" if n > 1 else one for one, n in counted.items())


def count_parameters(
    kind: str, vocab_size: int, settings: Mapping[str, Any] | None = None, *, labels: int = LABELS
) -> ParameterCount:
    """Count the parameters of a kind with these settings; sizes that a training would choose have fixed defaults.

    For n-grams it is the number of probabilities that a table of all contexts has. `labels` are those of a
    classifier, or the tags of a tagger.

    >>> count_parameters("feedforward", 10_000, {"order": 3, "embedding": 300, "hidden": 500}).parameters
    8310500
    >>> count_parameters("ngram", 10_000, {"order": 3}).formula
    '|V|^2 · (|V| - 1)'
    """
    found = find_kind(kind, usable=False)
    if found.shapes is None:
        raise SettingsError(
            f"the parameters of {kind} are not known before a training; of {', '.join(_countable())} they are"
        )
    whole: Any = closed(parse(found.settings, settings or {}))
    values = {field.name: getattr(whole, field.name) for field in dataclasses.fields(whole)}
    traced = {name: Traced.of(value, name) for name, value in values.items() if type(value) is int}
    counts = Traced.of(vocab_size, "|V|"), Traced.of(labels, "labels")
    shapes = found.shapes(dataclasses.replace(whole, **traced), *counts)
    weights = tuple(
        Weight(name, tuple(int(n) for n in shape), math.prod(int(n) for n in shape), _product(shape))
        for name, shape in shapes.items()
    )
    used = {"order", "layers", *re.findall(r"\w+", " ".join(weight.formula for weight in weights))}
    sizes = {**{name: values[name] for name in traced}, "labels": labels}
    return ParameterCount(kind, vocab_size, {name: sizes[name] for name in sizes if name in used}, weights)


class Traced(int):
    """A whole number that knows how it was computed.

    >>> (Traced.of(3, "order") - 1) * Traced.of(300, "embedding"), str((Traced.of(3, "n") - 1) * Traced.of(2, "d"))
    (600, '(n - 1) · d')
    """

    formula: str
    is_sum: bool

    @classmethod
    def of(cls, value: int, formula: str, *, is_sum: bool = False) -> Self:
        """Return a number with its formula; a sum gets brackets inside a product."""
        number = cls(value)
        number.formula, number.is_sum = formula, is_sum
        return number

    def __str__(self) -> str:
        return self.formula

    def __add__(self, other: int) -> int:
        return Traced.of(int(self) + int(other), f"{self} + {other}", is_sum=True)

    def __radd__(self, other: int) -> int:
        return Traced.of(int(self) + int(other), f"{other} + {self}", is_sum=True)

    def __sub__(self, other: int) -> int:
        return Traced.of(int(self) - int(other), f"{self} - {other}", is_sum=True)

    def __mul__(self, other: int) -> int:
        # a list is repeated
        return _multiplied(self, other) if isinstance(other, int) else NotImplemented

    def __rmul__(self, other: int) -> int:
        return _multiplied(other, self) if isinstance(other, int) else NotImplemented


def with_formulas(
    shapes: Callable[[Mapping[str, int]], Mapping[str, Sequence[int]]], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """Return the shapes that a function gives for sizes, with formulas: each size is doubled to see what changes.

    >>> found = with_formulas(lambda n: {"W": (4 * n["width"], n["width"] + n["side"])}, {"width": 3, "side": 2})
    >>> found["W"], [str(number) for number in found["W"]]
    ((12, 5), ['4 · width', 'width + side'])
    """
    plain = {name: int(size) for name, size in sizes.items()}
    named = {name: Traced.of(size, name) for name, size in plain.items()}
    base, doubled = shapes(plain), {}
    for name, size in plain.items():
        if not size:
            continue
        try:
            doubled[name] = shapes({**plain, name: 2 * size})
        except (ChainruleError, ValueError):
            continue  # such sizes do not fit together
    return {
        weight: tuple(
            _inferred(
                number,
                {size: other[weight][i] for size, other in doubled.items() if len(other.get(weight, ())) > i},
                named,
            )
            for i, number in enumerate(shape)
        )
        for weight, shape in base.items()
    }


def _inferred(number: int, doubled: Mapping[str, int], sizes: Mapping[str, int]) -> int:
    """Return a number with its formula, a product or a sum of sizes, from its values if one size is doubled."""
    factors = [name for name, value in doubled.items() if value == 2 * number]
    product = math.prod(int(sizes[name]) for name in factors)
    if factors and number % product == 0:
        others = {name: value // product for name, value in doubled.items() if name not in factors}
        return math.prod((sizes[name] for name in factors), start=_inferred(number // product, others, sizes))
    grows = {name: (value - number) / int(sizes[name]) for name, value in doubled.items()}
    # a table has a few rows more than tokens: it does not grow by exactly as many
    terms = [round(n) * sizes[name] for name, n in grows.items() if round(n) > 0 and abs(n - round(n)) < 0.25]
    if not terms or (rest := number - sum(map(int, terms))) < 0:
        return number
    return sum(terms[1:] + [rest] * (rest > 0), start=terms[0])


def _multiplied(one: int, other: int) -> int:
    words = " · ".join(_factor(number) for number in (one, other) if str(number) != "1")
    return Traced.of(int(one) * int(other), words)


def _factor(number: int) -> str:
    return f"({number})" if getattr(number, "is_sum", False) else str(number)


def _product(shape: Sequence[int]) -> str:
    """Write the product of a shape, with powers: |V|^2 · (|V| - 1)."""
    counted = Counter(map(_factor, shape))
    return " · ".join(one if n == 1 else f"{one}^{n}" for one, n in counted.items())


def _countable() -> Iterator[str]:
    for name in kind_names():
        with suppress(MissingExtraError, PluginError):
            if find_kind(name, usable=False).shapes is not None:
                yield name
