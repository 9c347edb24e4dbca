"""`chainrule fill`: the best words for the gaps of a text."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import click

from chainrule.cli.options.models import device_option, model_argument, precision_option
from chainrule.cli.options.runs import json_option
from chainrule.cli.output.lines import console, echo
from chainrule.cli.output.tables import results_table, show_table
from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from chainrule.masked.contract import MaskedModel
    from chainrule.masked.filling import Filled


@click.command()
@model_argument
@click.argument("text", metavar="[TEXT|-]", default="-")
@click.option(
    "-k", "count", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="How many fillings."
)
@device_option
@precision_option
@json_option
def fill(folder: str, text: str, count: int, device: str, dtype: str, as_json: bool) -> None:
    """Fill each [MASK] of TEXT with the masked model in DIR.

    A [MASK] is one token. Of each, the likeliest tokens with their probability while all other gaps are open; of
    several, the likeliest fillings of all together too, from left to right. - is a text on each line of standard
    input. With --json: an object per text.

    Example: chainrule fill model "The cat [MASK] on the mat"
    """
    from chainrule.contract.kinds import load
    from chainrule.folder import to_json
    from chainrule.masked.filling import fill as best_fillings

    model = cast("MaskedModel", load(folder, device=device, dtype=dtype, tasks=["masked"]))
    if text == "-" and sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)
    for line in (line.rstrip("\n") for line in sys.stdin) if text == "-" else [text]:
        found = best_fillings(model, line, count)
        if as_json:
            echo(to_json({"text": line, **asdict(found)}))
        else:
            _show(found)


def _show(found: Filled) -> None:
    screen = console()
    if len(found.gaps) == 1:
        table = results_table("filling", "probability", "text")
        table.columns[-1].justify = "left"
        for filling, whole in zip(found.gaps[0], found.texts, strict=True):
            table.add_row(filling.text, number(filling.probability, 3), whole.text)
        show_table(screen, table)
        return
    for place, gap in enumerate(found.gaps, 1):
        table = results_table(f"gap {place}", "probability")
        for filling in gap:
            table.add_row(filling.text, number(filling.probability, 3))
        show_table(screen, table)
    table = results_table("together", "probability")
    for whole in found.texts:
        table.add_row(whole.text, number(whole.probability, 3))
    show_table(screen, table)
