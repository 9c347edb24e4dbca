"""How often each name, a tag or a label, was given for each: the counts that taggers and classifiers share.

F1 of a name = 2 P R / (P + R)           P precision, R recall
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np


@dataclass(frozen=True)
class NameFigures:
    """The figures of one tag or label."""

    name: str
    count: int
    """How many words or texts have this name."""
    precision: float
    """The share of right ones among those that were given this name."""
    recall: float
    """The share of right ones among those that have this name."""
    f1: float
    """The harmonic mean of the two."""


@dataclass(frozen=True)
class Confusion:
    """The counts of a model that names what it reads, where the right names are known."""

    names: list[str]
    """The names of the model, and then those that only the measured text has."""
    confusion_KK: np.ndarray
    """[i, j]: how many words or texts with the right name i were given the name j."""

    @property
    def count(self) -> int:
        """How many words or texts were named."""
        return int(self.confusion_KK.sum())

    @property
    def correct(self) -> int:
        """How many were given the right name."""
        return int(np.trace(self.confusion_KK))

    @property
    def accuracy(self) -> float:
        """The share that was given the right name."""
        return self.correct / self.count

    @cached_property
    def by_name(self) -> list[NameFigures]:
        """The figures of each name that is right, or was given, at least once."""
        have_K, given_K = self.confusion_KK.sum(axis=1).tolist(), self.confusion_KK.sum(axis=0).tolist()
        figures = zip(*(found_K.tolist() for found_K in precision_recall_f1(self.confusion_KK)), strict=True)
        every = zip(self.names, have_K, given_K, figures, strict=True)
        return [NameFigures(name, have, *found) for name, have, given, found in every if have or given]

    def confused(self, most: int = 10) -> list[tuple[str, str, int]]:
        """Return the pairs of names that are confused most often: the right one, the given one, and the count."""
        wrong_KK = self.confusion_KK.copy()
        np.fill_diagonal(wrong_KK, 0)
        order = np.argsort(-wrong_KK, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.names)) for place in order]
        return [(self.names[i], self.names[j], int(wrong_KK[i, j])) for i, j in pairs if wrong_KK[i, j]]

    def names_to_json(self, names: str, count: str) -> dict[str, Any]:
        """Return the figures of each name and the table as plain values, under the words for names and counts."""
        by_name = {
            one.name: {count: one.count, "precision": one.precision, "recall": one.recall, "f1": one.f1}
            for one in self.by_name
        }
        return {names: by_name, "confusion": {names: self.names, "counts": self.confusion_KK.tolist()}}


def precision_recall_f1(confusion_KK: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return precision, recall and F1 of each name, [..., K]; 0 where there is nothing to divide by.

    >>> [found_K.round(2).tolist() for found_K in precision_recall_f1(np.array([[4, 0], [2, 2]]))]
    [[0.67, 1.0], [1.0, 0.5], [0.8, 0.67]]
    """
    right_K = np.diagonal(confusion_KK, axis1=-2, axis2=-1)
    have_K, given_K = confusion_KK.sum(axis=-1), confusion_KK.sum(axis=-2)
    # 2 P R / (P + R) = 2 right / (have + given)
    sums = given_K, have_K, have_K + given_K
    precision_K, recall_K, half_K = (right_K / np.maximum(divisor, 1) for divisor in sums)
    return precision_K, recall_K, 2 * half_K
