"""`chainrule pairs`: which sentence of minimal pairs a model prefers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option, model_argument, precision_option
from chainrule.cli.options.runs import json_option
from chainrule.cli.output.lines import console, echo, print_json, say
from chainrule.cli.output.tables import results_table, show_table

if TYPE_CHECKING:
    from chainrule.tasks.pairs import JudgedPairs


@click.command()
@model_argument
@click.argument("file", metavar="FILE.jsonl", type=click.Path())
@click.option(
    "--by",
    type=click.Choice(["total", "mean"]),
    default="total",
    show_default=True,
    help="Compare ln p of the whole sentences, or ln p per token.",
)
@click.option("--good", default="sentence_good", show_default=True, metavar="NAME", help="Field: right sentence.")
@click.option("--bad", default="sentence_bad", show_default=True, metavar="NAME", help="Field: wrong sentence.")
@click.option(
    "--group",
    metavar="NAME",
    help="Field: the phenomenon. [default: the first of linguistics_term, UID, phenomenon, field that there is]",
)
@click.option("--per-pair", is_flag=True, help="Only a JSON object for each pair, as soon as it is judged.")
@device_option
@precision_option
@json_option
def pairs(
    folder: str,
    file: str,
    by: Any,
    good: str,
    bad: str,
    group: str | None,
    per_pair: bool,
    device: str,
    dtype: str,
    as_json: bool,
) -> None:
    """Judge the minimal pairs of FILE with the model in DIR.

    A pair is a JSON object with a right sentence and a wrong one, on a line or as an item of a list. The model is
    right where it gives the right sentence the greater probability; a tie counts half. Of each phenomenon: the
    accuracy, its 95 % confidence interval, and that of a baseline which prefers the sentence of fewer tokens.
    FILE may be - for standard input.

    A masked model goes by pseudo-log-likelihoods.

    \b
    chainrule pairs model blimp/anaphor_number_agreement.jsonl
    chainrule pairs model pairs.jsonl --good right --bad wrong --group topic --json
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import load
    from chainrule.folder import to_json
    from chainrule.tasks.pairs import judge, minimal_pairs, read_pairs

    model = load(folder, device=device, dtype=dtype, tasks=["language", "masked"])
    given = read_pairs(file, good=good, bad=bad, group=group)
    if per_pair:
        for one in judge(model, given, by=by):
            echo(to_json(one.to_json()))
        return
    result = minimal_pairs(model, given, by=by, progress=terminal_progress())
    if as_json:
        print_json({"folder": folder, "file": file, **result.to_json()})
    else:
        _show(result)


def _show(result: JudgedPairs) -> None:
    screen = console()
    table = results_table("phenomenon", "pairs", "accuracy", "95 % interval", "ties", "fewer tokens")
    rows = result.phenomena if len(result.phenomena) > 1 else ()
    for one in (*rows, result.whole):
        interval = f"{one.low:.1%} - {one.high:.1%}"
        table.add_row(
            one.name, f"{one.pairs:,}", f"{one.accuracy:.1%}", interval, f"{one.ties:,}", f"{one.fewer_tokens:.1%}"
        )
    show_table(screen, table)
    if rows:
        say(screen, f"mean of the phenomena: {result.mean_accuracy:.1%}; chance is 50 %")
