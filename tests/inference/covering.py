"""Covering designs: few cases in which each pair of values of any two factors occurs."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations, product
from typing import Any


def covering(factors: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Return cases, one value of each factor, with all pairs; each case is chosen to have many new ones.

    >>> len(covering({"a": [1, 2, 3], "b": [1, 2], "c": [1, 2]}))
    6
    """
    names = list(factors)
    missing = {
        frozenset(((one, i), (other, j)))
        for one, other in combinations(names, 2)
        for i, j in product(range(len(factors[one])), range(len(factors[other])))
    }
    cases, even = [], random.Random(0)
    while missing:
        case = dict(min(map(sorted, missing)))

        def new(name: str, place: int, case: dict[str, int] = case, missing: set[Any] = missing) -> float:
            """Count the new pairs that a value brings; chance decides between equals, so that all are used."""
            return sum(frozenset((pair, (name, place))) in missing for pair in case.items()) + even.random() / 2

        for name in names:
            if name not in case:
                case[name] = max(range(len(factors[name])), key=partial(new, name))
        missing -= {frozenset(pair) for pair in combinations(case.items(), 2)}
        cases.append({name: factors[name][case[name]] for name in names})
    return cases
