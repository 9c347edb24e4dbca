"""`chainrule suggest`: the words that complete a text or follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import standard_input
from chainrule.cli.output import console, echo_json, number, show
from chainrule.system.display import ResultTable


@click.command()
@opt.model
@opt.options("""
    --prompt TEXT                The text so far; without it, a text on each line of standard input.
    -k N : 1.. = 5 as count      How many words.
    --min-probability P : [0,1]  Leave out words of a smaller probability.
""")
@opt.group(opt.compute, opt.json)
def suggest(
    folder: str, prompt: str | None, count: int, min_probability: float | None, as_json: bool, **options: Any
) -> None:
    """Suggest how a text goes on, with the model in DIR.

    A suggestion completes the word that is being written, or is the next word; it ends before white space. Its
    probability is that of the word, given the text. With --json: an object per text.
    """
    lm = opt.load_model(folder, options, "language", writes=True)
    for text in standard_input() if prompt is None else [prompt]:
        found = cr.suggest(lm, text, count, at_least=min_probability or 0.0, once=prompt is not None)
        if as_json:
            echo_suggestions(text, found)
        else:
            show(console(), [suggestions_table(found, text if prompt is None else "")])


def echo_suggestions(text: str, found: Sequence[cr.decode.Suggestion]) -> None:
    """Print the suggestions for a text as one line of JSON."""
    echo_json({"text": text, "suggestions": [asdict(one) for one in found]})


def suggestions_table(found: Sequence[cr.decode.Suggestion], title: str = "") -> ResultTable:
    """Return a table of suggestions."""
    rows = [[one.word, repr(one.completion), number(one.probability, 4)] for one in found]
    return ResultTable(["word", "appends", "probability"], rows, title)
