"""`chainrule explain`: how a model predicts one token; `chainrule diagnose`: what goes on inside a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, draw, echo_json, print_json, say, show, terminal_progress


def _head(context: click.Context, parameter: click.Parameter, value: str | None) -> tuple[int, int] | None:
    """Read a layer and a head of it, such as 0.1."""
    if value is None:
        return None
    layer, _, head = value.partition(".")
    if not (layer.isdecimal() and head.isdecimal()):
        raise click.BadParameter(f"{value!r} is not a layer and a head, such as 0.1", context, parameter)
    return int(layer), int(head)


@click.command(short_help="Look into the networks in DIR... while they read TEXT.")
@click.argument("folders_and_text", nargs=-1, required=True, metavar="DIR... [TEXT]")
@opt.read_prompt
@opt.options("""
    --token N : int          Predict the N-th token of the text instead, and end there.
    --longest N : 1.. = 200  Of a longer text only the last N tokens are read.
    --scale-recurrent X : float
        First scale the recurrent matrix of each gate and layer to the spectral norm X; DIR stays as it is.
    --svg FILE : new         Draw the norms of the gradients against the distance, of all models in one picture.
    --out FILE : new         Write all figures to FILE, a JSON object per line.
    --overwrite              Replace a FILE that exists.
""")
@opt.json
def diagnose(folders_and_text: tuple[str, ...], prompt: str | None, as_json: bool, **options: Any) -> None:
    """Look into the networks in DIR... while they read TEXT, or --prompt.

    The loss of predicting the last token of TEXT, or the most likely one after --prompt, is differentiated with
    respect to the embedding of every token before it and, in a recurrent network, to the state of every layer at
    every step: a gradient that vanishes on the way back teaches nothing. For an LSTM, GRU or QRNN the gates are
    shown, and what would be left of the last gradient if they alone multiplied it; for an Elman network, if the
    recurrent matrix U alone did. For a Transformer: what each head attends to.

    Steps count from 0, which is <s> (in a stream, </s>). With --json: what --out writes; of several models, each
    line names its own.

    \b
    chainrule diagnose model "the cat sat on the mat"
    chainrule diagnose elman lstm gru "the cat sat on the mat" --svg gradients.svg
    chainrule diagnose elman "the cat sat on the mat" --scale-recurrent 0.5
    """
    from chainrule.autodiff.tape_model import load_on_tape
    from chainrule.explanation.diagnosis import gradients_picture
    from chainrule.folder import to_json
    from chainrule.system.disk import replaced_file

    folders = folders_and_text if prompt is not None else folders_and_text[:-1]
    text = None if prompt is not None or len(folders_and_text) < 2 else folders_and_text[-1]
    if text and Path(text).is_dir():
        raise click.UsageError(f"{text} is a folder: the last argument is the TEXT that the models read, in quotes")
    read = opt.read_by_model(text, prompt)
    how: Any = {"token": options["token"], "longest": options["longest"], "progress": terminal_progress()}
    how["recurrent_norm"] = options["scale_recurrent"]
    found = {folder: cr.diagnose(load_on_tape(folder), **read, **how) for folder in folders}
    lines = [
        {**({"model": folder} if len(found) > 1 else {}), **record}
        for folder, one in found.items()
        for record in one.records()
    ]
    if options["out"] is not None:
        with replaced_file(Path(options["out"])) as file:
            file.writelines(to_json(line).encode() + b"\n" for line in lines)
    named = {"": found[folders[0]]} if len(found) == 1 else found
    drawn = draw(options["svg"], lambda: gradients_picture(named))
    screen = console()
    for line in lines if as_json else ():
        echo_json(line)
    for folder, one in {} if as_json else found.items():
        if len(found) > 1:
            say(screen, f"{folder}:")
        show(screen, one.parts(screen.width))
        if len(found) > 1:
            screen.print()
    show(screen, () if as_json else drawn)


@click.command(short_help="Show how the model in DIR predicts a token of a text.")
@opt.model
@opt.read_text
@opt.read_prompt
@opt.options(
    """
    --next WORD as next_word  Predict WORD after the text.
    --last N : 1..50 = 3
        For a recurrent network or a bag of words show the last N tokens; the tokens before them are data.
    --head LAYER.HEAD
        For a Transformer: show query, keys, scores, weights and values of the last token in this head, such as
        0.1; both count from 0.
    --svg FILE : new          Draw the graph or, with --head, the attention of the last token.
    --overwrite               Replace a FILE that exists.
    """,
    head={"callback": _head},
)
@opt.json
def explain(
    folder: str, text: str | None, prompt: str | None, svg: str | None, as_json: bool, **options: Any
) -> None:
    """Show how the model in DIR predicts the last token of TEXT, or the token after --prompt.

    For an n-gram model: the contexts that were seen, the weight of each step to a shorter one, and the product of
    weights and stored probability; then the equation of the smoothing method with its numbers (with more of the
    counts where the model was trained with --set counts=true); for an any-gram, the mixture of all contexts. For a
    mixture of models: the weight of each, and what each of them says.

    For a network: the loss L = -ln p(token | text before it) is recorded on a tape, module by module, and
    differentiated. Each line is a module with its equation, the shape of its value, and the size of the gradient
    that flows back to it.

    For every built-in kind that predicts text, whichever engine trained the model. A Transformer is computed for
    all tokens at once: each of its matrices has a row for each token in the window. With --json, `attention` has
    the numbers of the last token in every head, or only in that of --head.
    """
    from chainrule.autodiff.tape_model import load_on_tape
    from chainrule.explanation.networks import NetworkExplanation

    read = opt.read_by_model(text, prompt, options["next_word"])
    found = cr.explain(load_on_tape(folder), **read, last=options["last"], progress=terminal_progress())
    drawn: Any = found
    if svg is not None and not isinstance(found, NetworkExplanation):
        raise click.UsageError("--svg draws the graph of a network; an n-gram model has none")
    if options["head"] is not None:
        if not isinstance(found, NetworkExplanation):
            raise click.UsageError("--head is for Transformers; a model without a network has no attention")
        drawn = found.head(*options["head"])
    said = [] if svg is None else draw(svg, drawn.svg)
    if as_json:
        print_json(found.record() | ({} if drawn is found else {"attention": [drawn.record()]}))
    else:
        show(console(), [*drawn.parts(), *said])
