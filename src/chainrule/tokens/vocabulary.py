"""The items that a vocabulary keeps, and the limits on them; any other item is <unk>."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from chainrule.errors import SettingsError

Item = TypeVar("Item", str, bytes)


@dataclass(frozen=True)
class Limit:
    """The three ways to bound a vocabulary; they combine.

    >>> Limit.parse("90%", min_count=2)
    Limit(min_count=2, top=None, percent=90.0)
    """

    min_count: int = 1
    """Items seen less often are unknown."""
    top: int | None = None
    """At most this many items are known, the most frequent ones."""
    percent: float | None = None
    """At most this percentage of the distinct items are known, the most frequent ones."""

    @classmethod
    def parse(cls, size: str | int | None, min_count: int = 1) -> Limit:
        """Parse a `--vocab-size`: a number such as 8000, or a share of the distinct items such as 90%."""
        if min_count < 1:
            raise SettingsError(f"the minimum count must be at least 1, not {min_count}")
        if size is None:
            return cls(min_count)
        text = str(size).strip()
        try:
            if text.endswith("%"):
                percent = float(text[:-1])
                if 0 < percent <= 100:
                    return cls(min_count, percent=percent)
            elif int(text) > 0:
                return cls(min_count, top=int(text))
        except ValueError:
            pass
        raise SettingsError(
            f"the vocabulary size should be a number such as 8000, or a share such as 90%, not {text!r}"
        )

    def keeps(self, frequent: int, distinct: int) -> int:
        """Return how many items are known; of all `distinct` ones, `frequent` reach `min_count`."""
        if self.percent is not None:
            frequent = min(frequent, round(distinct * self.percent / 100))
        return frequent if self.top is None else min(frequent, self.top)


def choose(counts: Mapping[Item, int], limit: Limit) -> list[Item]:
    """Return the items that are known, most frequent first, ties in alphabetical order.

    >>> choose({"a": 2, "b": 5, "c": 2, "d": 1}, Limit(min_count=2))
    ['b', 'a', 'c']
    """
    ranked = sorted(item for item in counts if counts[item] >= limit.min_count)
    ranked.sort(key=counts.__getitem__, reverse=True)  # stable: ties stay in alphabetical order
    return ranked[: limit.keeps(len(ranked), len(counts))]
