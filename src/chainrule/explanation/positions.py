"""Encodings of positions as tables, and what a good one has: bounded numbers, no two rows alike, equal distances.

    binary       the digits of the position: the last changes at each step, the one before at every second, ...
    sinusoidal   sines and cosines of ever longer waves: a counter of smooth digits, added to the embedding
    rotary       the same angles, by which queries and keys are rotated: the product of a query at s and a key at t
                 depends on s - t alone

Axes: T positions, D features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.autodiff.networks.transformer import rotary_tables, sinusoidal_table
from chainrule.errors import DiagnosisError
from chainrule.system.pictures import Cells, cells_picture

KINDS = ("binary", "sinusoidal", "rotary")


@dataclass(frozen=True, eq=False, repr=False)
class Positions:
    """A table of positions, with figures that say how good it is.

    >>> found = positions("sinusoidal", 64, 16)
    >>> found.largest <= 1, found.nearest > 0.1, found.shift < 1e-5
    (True, True, True)
    >>> round(positions("binary", 64, 16).shift, 2)  # six digits change from 31 to 32, one from 32 to 33: √6 - 1
    1.45
    """

    kind: str
    table_TD: np.ndarray

    @property
    def largest(self) -> float:
        """The largest number of the table, whatever its sign."""
        return float(np.abs(self.table_TD).max())

    @property
    def nearest(self) -> float:
        """The distance of the two rows that are most alike: above 0 if every position is unique."""
        distances_TT = self._distances() + np.diag(np.full(len(self.table_TD), np.inf))
        return float(distances_TT.min())

    @property
    def shift(self) -> float:
        """How much the distance of rows varies along the table among rows that are equally far apart."""
        distances_TT = self._distances()
        by_offset = (np.diagonal(distances_TT, offset) for offset in range(1, len(self.table_TD)))
        return float(max(np.ptp(same) for same in by_offset))

    def _distances(self) -> np.ndarray:
        """Return the Euclidean distance of each two rows, [T, T]."""
        differences_TTD = self.table_TD[:, None] - self.table_TD[None]
        distances_TT: np.ndarray = np.linalg.norm(differences_TTD, axis=-1)
        return distances_TT

    def to_json(self) -> dict[str, Any]:
        """Return the figures and the rows of the table as plain values."""
        figures = {name: getattr(self, name) for name in ("kind", "largest", "nearest", "shift")}
        return figures | {"rows": self.table_TD.tolist()}

    def cells(self) -> Cells:
        """Return the table as a picture draws it: positions across, features down."""
        features = [str(number) for number in range(self.table_TD.shape[1])]
        title = (
            f"{self.kind}: positions 0 to {len(self.table_TD) - 1} across, features down; blue above 0, red below"
        )
        return Cells(
            title, self.table_TD.T, features, size=12, full=1.0, tip="position {1}, feature {0}: {2:.4g}".format
        )


def positions(kind: str, length: int, width: int) -> Positions:
    """Return the table of an encoding of positions, [length, width].

    The row of rotary positions has the cosines, then the sines, of the angles of its position: where a pair of
    features (1, 0) points after the rotation.
    """
    if length < 2 or width < 2 or width % 2:
        raise DiagnosisError(f"positions need a length of 2 or more and an even width, not {length} and {width}")
    if kind == "sinusoidal":
        return Positions(kind, sinusoidal_table(length, width).astype(np.float64))
    if kind == "rotary":
        return Positions(kind, np.concatenate(rotary_tables(length, width, 10000.0), axis=1).astype(np.float64))
    if kind == "binary":
        # the last digit is in the first column, as the shortest wave is
        digits_TD = np.arange(length)[:, None] >> np.arange(width) & 1
        return Positions(kind, digits_TD.astype(np.float64))
    raise DiagnosisError(f"there are no positions {kind!r}; there are {', '.join(KINDS)}")


def positions_picture(tables: list[Positions]) -> str:
    """Return the tables one below the other, as the text of an SVG file."""
    return cells_picture("positions", [one.cells() for one in tables])
