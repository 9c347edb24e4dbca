"""Tables of results, and the figures of a measurement in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chainrule.cli.screen.words import number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from chainrule.evaluation.measure import Measured


_WIDEST = 1000  # columns of the widest table that is measured


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
    """Print a table; on a terminal that is too narrow its lines run on, since a truncated figure would be wrong.

    Where there is no terminal, the table is as wide as it needs to be, and nothing wraps.
    """
    from rich.measure import Measurement

    width = screen.width
    minimum, maximum = Measurement.get(screen, screen.options.update(max_width=_WIDEST), table)
    needed = minimum if screen.is_terminal else maximum
    screen.width = max(width, needed)
    if screen.is_terminal:
        screen.print(table)
    else:
        with screen.capture() as captured:
            screen.print(table)
        screen.out("\n".join(line.rstrip() for line in captured.get().split("\n")), end="", highlight=False)
    screen.width = width


UNPAID = "* a lower bound: white space, and the spelling of unknown tokens, are not counted"

SCORES = "(…) computed from scores, not from probabilities: it does not compare with the others"


def bits_per_byte(measured: Measured) -> str:
    """Bits per byte as text, with a * where they are only a lower bound (UNPAID explains it below the table)."""
    return figure(measured, measured.bits_per_byte) + ("" if measured.lossless else "*")


def figure(measured: Measured, value: float) -> str:
    """A figure as text, in brackets where it is made of scores (SCORES explains it below the table)."""
    return number(value, 4) if measured.normalised else f"({number(value, 4)})"
