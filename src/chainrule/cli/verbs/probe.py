"""`chainrule probe`: how far back a model remembers, and how far it reads on."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from chainrule.cli import options as opt
from chainrule.cli.output import draw, emit, number
from chainrule.system.display import ResultTable


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
    import chainrule as cr
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
