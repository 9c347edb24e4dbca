"""`chainrule pairs`: which sentence of minimal pairs a model prefers."""

from __future__ import annotations

from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, echo_json, print_json, print_table, say, terminal_progress


@click.command()
@opt.model
@click.argument("file", metavar="FILE.jsonl", type=click.Path())
@opt.option("--by [total|mean]", "Compare ln p of the whole sentences, or ln p per token.", default="total")
@opt.option("--good NAME", "Field: right sentence.", default="sentence_good")
@opt.option("--bad NAME", "Field: wrong sentence.", default="sentence_bad")
@opt.option(
    "--group NAME",
    "Field: the phenomenon. [default: the first of linguistics_term, UID, phenomenon, field that there is]",
)
@opt.option("--per-pair", "Only a JSON object for each pair, as soon as it is judged.")
@opt.compute
@opt.json
def pairs(folder: str, file: str, by: Any, per_pair: bool, as_json: bool, **options: Any) -> None:
    """Judge the minimal pairs of FILE with the model in DIR.

    A pair is a JSON object with a right sentence and a wrong one, on a line or as an item of a list. The model is
    right where it gives the right sentence the greater probability; a tie counts half. For each phenomenon: the
    accuracy, its 95 % confidence interval, and that of a baseline which prefers the sentence of fewer tokens.
    FILE may be - for standard input.

    A masked model goes by pseudo-log-likelihoods.

    \b
    chainrule pairs model blimp/anaphor_number_agreement.jsonl
    chainrule pairs model pairs.jsonl --good right --bad wrong --group topic --json
    """
    from chainrule.tasks.pairs import judge, read_pairs

    model = opt.load_model(folder, options, "language", "masked")
    given = read_pairs(file, **{name: options[name] for name in ("good", "bad", "group")})
    if per_pair:
        for judged in judge(model, given, by=by):
            echo_json(judged.to_json())
        return
    result = cr.tasks.minimal_pairs(model, given, by=by, progress=terminal_progress())
    if as_json:
        print_json({"folder": folder, "file": file, **result.to_json()})
        return
    screen = console()
    has_several = len(result.phenomena) > 1
    rows = []
    for one in (*(result.phenomena if has_several else ()), result.whole):
        interval = "{:.1%} - {:.1%}".format(*one.interval)
        figures = f"{one.pairs:,}", f"{one.accuracy:.1%}", interval, f"{one.ties:,}", f"{one.fewer_tokens:.1%}"
        rows.append([one.name, *figures])
    print_table(screen, ["phenomenon", "pairs", "accuracy", "95 % interval", "ties", "fewer tokens"], rows)
    if has_several:
        say(screen, f"mean of the phenomena: {result.mean_accuracy:.1%}; chance is 50 %")
