"""`chainrule fill`: the best words for the gaps of a text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, cast

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import standard_input
from chainrule.cli.output import console, echo_json, number, show
from chainrule.system.display import ResultTable

if TYPE_CHECKING:
    from chainrule.masked.contract import MaskedModel


@click.command()
@opt.model
@click.argument("text", metavar="[TEXT|-]", default="-")
@opt.options("-k N : 1.. = 5 as count  How many fillings.")
@opt.group(opt.compute, opt.json)
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
        elif len(found.gaps) == 1:
            pairs = zip(found.gaps[0], found.texts, strict=True)
            rows = [[one.text, number(one.probability, 3), whole.text] for one, whole in pairs]
            show(console(), [ResultTable(["filling", "probability", "text"], rows, left=[2])])
        else:
            tables: dict[str, Any] = {f"gap {place}": gap for place, gap in enumerate(found.gaps, 1)}
            for title, fillings in {**tables, "together": found.texts}.items():
                rows = [[one.text, number(one.probability, 3)] for one in fillings]
                show(console(), [ResultTable([title, "probability"], rows)])
