"""`chainrule suggest`: the words that complete a text or follow it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import (
    device_option,
    model_argument,
    note_slow_precision,
    precision_option,
)
from chainrule.cli.options.runs import json_option
from chainrule.cli.options.texts import standard_input
from chainrule.cli.output.lines import console, echo
from chainrule.cli.output.tables import results_table, show_table
from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from rich.table import Table

    from chainrule.decode.suggest import Suggestion


@click.command()
@model_argument
@click.option("--prompt", help="The text so far; without it, a text on each line of standard input.")
@click.option(
    "-k", "count", type=click.IntRange(1), default=5, show_default=True, metavar="N", help="How many words."
)
@click.option(
    "--min-probability",
    type=click.FloatRange(0, 1),
    default=0.0,
    metavar="P",
    help="Leave out words of a smaller probability.",
)
@device_option
@precision_option
@json_option
def suggest(
    folder: str, prompt: str | None, count: int, min_probability: float, device: str, dtype: str, as_json: bool
) -> None:
    """Suggest how a text goes on, with the model in DIR.

    A suggestion completes the word that is being written, or is the next word; it ends before white space. Its
    probability is that of the word, given the text. With --json: an object per text.
    """
    from chainrule.contract.kinds import load
    from chainrule.decode import suggest as suggesting
    from chainrule.folder import to_json

    lm = load(folder, device=device, dtype=dtype, tasks=["language"])
    note_slow_precision(dtype, lm)
    if prompt is None and sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)
    for text in standard_input() if prompt is None else [prompt]:
        found = suggesting.suggest(lm, text, count, at_least=min_probability, once=prompt is not None)
        if as_json:
            echo(to_json({"text": text, "suggestions": [as_record(suggestion) for suggestion in found]}))
        else:
            screen = console()
            show_table(screen, suggestions_table(found, title=text if prompt is None else None))


def as_record(suggestion: Suggestion) -> dict[str, Any]:
    """A suggestion as JSON."""
    return {
        "word": suggestion.word,
        "completion": suggestion.completion,
        "probability": suggestion.probability,
    }


def suggestions_table(found: Sequence[Suggestion], title: str | None = None) -> Table:
    """A table of suggestions."""
    table = results_table("word", "appends", "probability", title=title)
    for suggestion in found:
        table.add_row(suggestion.word, repr(suggestion.completion), number(suggestion.probability, 4))
    return table
