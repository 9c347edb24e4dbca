"""`chainrule positions`: encodings of positions, as tables and pictures."""

from __future__ import annotations

from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.output import draw, emit, number
from chainrule.system.display import ResultTable

HEADINGS = ["positions", "largest number", "nearest two", "distance varies by"]


@click.command(short_help="Show how Transformers encode positions.")
@click.argument("kinds", nargs=-1, type=click.Choice(["binary", "sinusoidal", "rotary"]), metavar="[KIND]...")
@opt.options("""
    --length N : 2..4096 = 64  Positions.
    --width N : 2.. = 16       Features of a position; even.
    --svg FILE : new           Draw the tables.
    --overwrite                Replace a FILE that exists.
""")
@opt.json
def positions(kinds: tuple[str, ...], length: int, width: int, svg: str | None, as_json: bool, **_: Any) -> None:
    """Show how Transformers encode positions, beside the digits of a binary counter.

    KIND is binary, sinusoidal or rotary; without one, all are shown.

    A good encoding is bounded (no number grows with the position), unique (no two positions are alike: the nearest
    two are apart), and its distances depend only on how many steps lie between two positions (they vary by 0). It
    should go on for any length, as all of these do.
    """
    from chainrule.explanation.positions import KINDS, positions_picture
    from chainrule.explanation.positions import positions as table_of

    found = [table_of(kind, length, width) for kind in kinds or KINDS]
    rows = [[one.kind, number(one.largest), number(one.nearest), f"{one.shift:.1e}"] for one in found]
    drawn = draw(svg, lambda: positions_picture(found))
    emit(as_json, [one.to_json() for one in found], ResultTable(HEADINGS, rows), *drawn)
