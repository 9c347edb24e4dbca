"""`chainrule fill`: the best words for the gaps of a text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import standard_input
from chainrule.cli.output import console, echo_json, number, print_table

if TYPE_CHECKING:
    from chainrule.masked.contract import MaskedModel


@click.command()
@opt.model
@click.argument("text", metavar="[TEXT|-]", default="-")
@opt.options("-k N : 1.. = 5 as count  How many fillings.")
@opt.compute
@opt.json
def fill(folder: str, text: str, count: int, as_json: bool, **options: Any) -> None:
    """Fill each [MASK] of TEXT with the masked model in DIR.

    A [MASK] is one token. For each, the most likely tokens are shown with their probability while all other gaps
    are open; for several, also the most likely fillings of all together, from left to right. - is a text on each
    line of standard input. With --json: an object per text.

    Example: chainrule fill model "The cat [MASK] on the mat"
    """
    model = cast("MaskedModel", opt.load_model(folder, options, "masked"))
    for line in standard_input() if text == "-" else [text]:
        found = cr.fill(model, line, count)
        if as_json:
            echo_json({"text": line, **asdict(found)})
        else:
            _show(found)


def _show(found: cr.masked.Filled) -> None:
    screen = console()
    if len(found.gaps) == 1:
        rows = (
            [filling.text, number(filling.probability, 3), whole.text]
            for filling, whole in zip(found.gaps[0], found.texts, strict=True)
        )
        print_table(screen, ["filling", "probability", "text"], rows, left=[2])
        return
    tables: dict[str, Iterable[Any]] = {f"gap {place}": gap for place, gap in enumerate(found.gaps, 1)}
    for title, fillings in {**tables, "together": found.texts}.items():
        print_table(screen, [title, "probability"], ([one.text, number(one.probability, 3)] for one in fillings))
