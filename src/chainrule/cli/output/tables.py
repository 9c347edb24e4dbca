"""Tables of results, and the figures of a measurement in them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import TYPE_CHECKING

from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from chainrule.evaluation.measure import Measured


_WIDEST = 1000  # columns of the widest table that is measured
_GAP, _TIGHT = 3, 1  # columns between two of a table: the usual, and where there is little room
_LONGEST = 24  # letters of the longest word that a narrow table keeps whole


def results_table(*headings: str, title: str | None = None) -> Table:
    """A table whose first column is a name, which may wrap or be cut, and whose others are figures, never cut."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_style="bold", title_justify="left", show_edge=False, pad_edge=False
    )
    table.add_column(headings[0], overflow="ellipsis", min_width=8)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def show_table(screen: Console, table: Table) -> None:
    """Print a table; on a narrow terminal its figures come in blocks, since one that is cut would be wrong.

    Where there is no terminal, the table is as wide as it needs to be, and nothing wraps.
    """
    from rich.measure import Measurement

    width = screen.width
    if screen.is_terminal:
        for place, (block, needed) in enumerate(_blocks(screen, table)):
            if place:
                screen.print()
            screen.width = max(width, needed)
            screen.print(block)
    else:
        screen.width = max(width, Measurement.get(screen, screen.options.update(max_width=_WIDEST), table).maximum)
        with screen.capture() as captured:
            screen.print(table)
        screen.out("\n".join(line.rstrip() for line in captured.get().split("\n")), end="", highlight=False)
    screen.width = width


def _blocks(screen: Console, table: Table) -> list[tuple[Table, int]]:
    """The table in parts that fit the screen, and how wide each has to be.

    It stays one if it fits, with less space between the columns if need be. Otherwise each part has the first
    column, and as many of the others as there is room for.
    """
    needs = [_needed(screen, column) for column in table.columns]
    edge = 2 * (table.show_edge and table.box is not None) + 2 * table.pad_edge
    columns = range(len(needs))
    for gap in (_GAP, _TIGHT):
        if (whole := edge + sum(needs) + gap * (len(needs) - 1)) <= screen.width:
            return [(_part(table, columns, gap), whole)]
    parts: list[list[int]] = []
    for column in columns[1:]:
        with_it = [*(parts[-1] if parts else [0]), column]
        if not parts or edge + sum(needs[i] for i in with_it) + _GAP * (len(with_it) - 1) > screen.width:
            parts.append([0, column])
        else:
            parts[-1] = with_it
    return [
        (_part(table, part, _GAP), edge + sum(needs[i] for i in part) + _GAP * (len(part) - 1))
        for part in parts or [[0]]
    ]


def _needed(screen: Console, column: Column) -> int:
    """How wide a column has to be: one that wraps as its longest word, unless that is very long."""
    from rich.measure import Measurement

    room = screen.options.update(max_width=_WIDEST)
    measured = [Measurement.get(screen, room, cell) for cell in (column.header, *column.cells)]
    if column.no_wrap:
        return max(one.maximum for one in measured)
    return max(min(max(one.minimum for one in measured), _LONGEST), column.min_width or 0)


def _part(table: Table, columns: Sequence[int], gap: int) -> Table:
    """Some columns of a table, with so much space between them."""
    part = copy(table)
    part.columns = [replace(table.columns[i], _index=place) for place, i in enumerate(columns)]
    part.padding = (0, (gap - 1) // 2)
    return part


UNPAID = "* a lower bound: white space, and the spelling of unknown tokens, are not counted"

SCORES = "(…) computed from scores, not from probabilities: it does not compare with the others"


def bits_per_byte(measured: Measured) -> str:
    """Bits per byte as text, with a * where they are only a lower bound (UNPAID explains it below the table)."""
    return figure(measured, measured.bits_per_byte) + ("" if measured.lossless else "*")


def figure(measured: Measured, value: float) -> str:
    """A figure as text, in brackets where it is made of scores (SCORES explains it below the table)."""
    return number(value, 4) if measured.normalised else f"({number(value, 4)})"
