"""`chainrule pairs`: which sentence of minimal pairs a model prefers; `probe`: how far back it remembers."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import draw, echo_json, emit, intrinsic, measured_objects, number, terminal_progress
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


@click.command(short_help="Ask models for a word that an earlier word decides.")
@opt.models
@opt.options("""
    --ask [gaps|order|agreement|shots] = gaps
        A word that another decides over a gap; the later of two such words; a verb that agrees with its noun; a
        new task, given by examples.
    --longest N : 0.. = 12  The longest gap in words, or the most examples.
    --by-position FILE      Instead: the perplexity of the text FILE by position.
    --length N : 2.. = 256  With --by-position: tokens that are read at once.
    --svg FILE : new        Draw a curve for each model.
    --overwrite             Replace a FILE that exists.
""")
@opt.json
def probe(folders: tuple[str, ...], ask: str, svg: str | None, as_json: bool, **options: Any) -> None:
    """Ask the models in DIR... for a word that an earlier word decides, over a growing gap.

    The models have been trained on the made text of the same name, such as builtin:gaps, where "the strawberry ...
    with" goes on with cream and "the hair ... with" with clippers. The figure of a gap is the mean of p(right) /
    (p(right) + p(wrong)) over 40 questions: 1 for a model that remembers, 0.5 for one that guesses.

    With --ask shots, for builtin:shots: a prompt such as "cat wug hen dax cat" has examples of a task, what animals
    are called, and the text has other tasks of that kind but not this one. The figures are by number of examples.

    With --by-position: the perplexity of a text by position, in stretches of --length tokens. A Transformer reads
    them at once even if it was trained on shorter ones.

    \b
    chainrule train lstm builtin:gaps --tokenizer word --out lstm
    chainrule probe lstm --svg gaps.svg
    chainrule probe rotary alibi --by-position builtin:shakespeare --length 256
    """
    from chainrule.autodiff.tape_model import load_on_tape
    from chainrule.system.pictures import curves_picture, linear_axis
    from chainrule.tasks.probes import by_position
    from chainrule.tasks.probes import probe as answers
    from chainrule.text.builtin.probes import PROBES

    models = ((folder, load_on_tape(folder)) for folder in folders)
    found: dict[str, list[Any]]
    if is_by_position := options["by_position"] is not None:
        text = "".join(one.decode() for one in cr.Corpus.open(options["by_position"]).documents())
        found = {folder: by_position(lm, text, options["length"]) for folder, lm in models}
        title, across, up, said = "Perplexity by position", "position", "perplexity", "perplexity by position"
        names = [f"{one.first}-{one.last}" for one in found[folders[0]]]
        points = {
            name: [((one.first + one.last) / 2, one.perplexity) for one in each] for name, each in found.items()
        }
    else:
        found = {folder: answers(lm, ask, longest=options["longest"]) for folder, lm in models}
        title, across, up = f"The right word: {ask}", PROBES[ask].counts, "p(right) / (p(right) + p(wrong))"
        names, said = [str(one.gap) for one in found[folders[0]]], f"{up} by {across}"
        points = {name: [(float(one.gap), one.probability) for one in each] for name, each in found.items()}
    rows = [[name, *(number(value, 3) for _, value in curve)] for name, curve in points.items()]
    values = {name: [asdict(one) for one in each] for name, each in found.items()}
    x, y = zip(*(at for curve in points.values() for at in curve), strict=True)
    axes = linear_axis(across, x), linear_axis(up, y if is_by_position else [0, 1])
    drawn = draw(svg, lambda: curves_picture(title, [*points.items()], *axes))
    emit(as_json, values, ResultTable(["model", *names], rows), said, *drawn)
