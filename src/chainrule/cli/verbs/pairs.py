"""`chainrule pairs`: which sentence of minimal pairs a model prefers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import echo_json, emit, intrinsic, measured_objects, terminal_progress
from chainrule.system.display import Part, ResultTable

if TYPE_CHECKING:
    from chainrule.tasks.pairs import Phenomenon


@click.command(short_help="Judge the minimal pairs of FILE with one or more models.")
@opt.models_and_file
@opt.options("""
    --by [total|mean] = total    Compare ln p of the whole sentences, or ln p per token.
    --good NAME = sentence_good  Field: right sentence.
    --bad NAME = sentence_bad    Field: wrong sentence.
    --group NAME
        Field: the phenomenon. [default: the first of linguistics_term, UID, phenomenon, field that there is]
    --per-pair                   Only a JSON object for each pair, as soon as it is judged.
""")
@opt.group(opt.compute, opt.json)
def pairs(folders_and_file: tuple[str, ...], by: Any, per_pair: bool, as_json: bool, **options: Any) -> None:
    """Judge the minimal pairs of FILE with the models in DIR...

    A pair is a JSON object with a right sentence and a wrong one, on a line or as an item of a list. The model is
    right where it gives the right sentence the greater probability; a tie counts half. For each phenomenon: the
    accuracy, its 95 % confidence interval, and that of a baseline which prefers the sentence of fewer tokens.
    FILE may be - for standard input.

    Of several models: a row for each, with the bits per byte of the right sentences beside the accuracy.

    A masked model goes by pseudo-log-likelihoods.

    \b
    chainrule pairs model blimp/anaphor_number_agreement.jsonl
    chainrule pairs bigram 5-gram lstm blimp.jsonl
    chainrule pairs model pairs.jsonl --good right --bad wrong --group topic --json
    """
    from chainrule.tasks.pairs import judge, read_pairs

    folders, file = opt.split_file(folders_and_file)
    given = list(read_pairs(file, **{name: options[name] for name in ("good", "bad", "group")}))
    if per_pair:
        if len(folders) > 1:
            raise click.UsageError("--per-pair prints what one model says")
        for judged in judge(opt.load_model(folders[0], options, "language", "masked"), given, by=by):
            echo_json(judged.to_json())
        return
    results, bits = [], []
    for folder in folders:
        model = opt.load_model(folder, options, "language", "masked")
        results.append((folder, cr.tasks.minimal_pairs(model, given, by=by, progress=terminal_progress())))
        bits.append("" if len(folders) == 1 else intrinsic(model, [pair.good for pair in given]))
    parts: list[Part]
    if len(folders) == 1:
        found = results[0][1]
        has_several = len(found.phenomena) > 1
        shown = (*(found.phenomena if has_several else ()), found.whole)
        parts = [ResultTable(["phenomenon", *_HEADINGS], [[one.name, *_figures(one)] for one in shown])]
        if has_several:
            parts.append(f"mean of the phenomena: {found.mean_accuracy:.1%}; chance is 50 %")
    else:
        every = zip(results, bits, strict=True)
        rows = [[folder, right, *_figures(result.whole)] for (folder, result), right in every]
        table = ResultTable(["model", "bits/byte", *_HEADINGS], rows)
        parts = [table, "bits/byte: of the right sentences; chance is 50 %"]
    emit(as_json, measured_objects(results, file=file), *parts)


_HEADINGS = ("pairs", "accuracy", "95 % interval", "ties", "fewer tokens")


def _figures(one: Phenomenon) -> list[str]:
    interval = "{:.1%} - {:.1%}".format(*one.interval)
    return [f"{one.pairs:,}", f"{one.accuracy:.1%}", interval, f"{one.ties:,}", f"{one.fewer_tokens:.1%}"]
