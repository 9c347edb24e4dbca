"""The sizes of networks and the shares of a text, as they are given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeVar

from chainrule.errors import SettingsError

SIZES = ("1x32", "2x48", "2x64", "3x96", "4x128")
SHARES = ("1/8", "1/4", "1/2", "1")
_HEAD = 32  # features of a head, about

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """The size of a Transformer: its layers, and the features of a token."""

    layers: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.layers}x{self.width}"

    @property
    def heads(self) -> int:
        """Heads of about 32 features: as many as divide the width."""
        return max(n for n in range(1, max(self.width // _HEAD, 1) + 1) if self.width % (2 * n) == 0)


def parse_sizes(names: Sequence[str]) -> list[Size]:
    """Sizes such as 2x64, in the order of their widths and layers.

    >>> parse_sizes(["4x128", "2x64", "2x32"])
    [Size(layers=2, width=32), Size(layers=2, width=64), Size(layers=4, width=128)]
    """
    found = []
    for name in names:
        layers, cross, width = name.strip().lower().partition("x")
        if not (cross and layers.isdecimal() and width.isdecimal() and int(layers) and int(width)):
            raise SettingsError(f"a size is layers x width, such as 4x128, not {name!r}")
        if int(width) % 2:
            raise SettingsError(f"the width of a size should be even, not {width}")
        found.append(Size(int(layers), int(width)))
    return sorted(_distinct(found, "sizes"), key=lambda size: (size.width, size.layers))


def parse_shares(names: Sequence[str]) -> list[float]:
    """Shares of a text such as 1/4 or 0.5, ascending.

    >>> parse_shares(["1", "1/4", "0.5"])
    [0.25, 0.5, 1.0]
    """
    shares = []
    for name in names:
        try:
            share = float(Fraction(name.strip()))
        except (ValueError, ZeroDivisionError):
            share = -1.0
        if not 0 < share <= 1:
            raise SettingsError(f"a share of the text is a number above 0 and at most 1, such as 1/4, not {name!r}")
        shares.append(share)
    return sorted(_distinct(shares, "shares"))


def _distinct(found: list[T], what: str) -> list[T]:
    if len(set(found)) < 3:
        raise SettingsError(f"a scaling law needs at least three {what}, and here are {len(set(found))}")
    return list(dict.fromkeys(found))
