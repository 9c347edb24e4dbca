"""`chainrule explain`: how a model predicts one token; `chainrule diagnose`: what goes on inside a network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, echo_json, print_json, say, show, terminal_progress


@click.command()
@opt.model
@opt.read_text
@opt.read_prompt
@opt.option("--token N", "Predict the N-th token of the text instead, and end there.", type=int)
@opt.option("--longest N", "Of a longer text only the last N tokens are read.", type=click.IntRange(1), default=200)
@opt.option("--out FILE", "Write all figures to FILE, a JSON object per line.")
@opt.overwrite("a FILE")
@opt.json
def diagnose(folder: str, text: str | None, prompt: str | None, as_json: bool, **options: Any) -> None:
    """Look into the network in DIR while it reads TEXT, or --prompt.

    The loss of predicting the last token of TEXT, or the most likely one after --prompt, is differentiated with
    respect to the embedding of every token before it and, in a recurrent network, to the state of every layer at
    every step: a gradient that vanishes on the way back teaches nothing. For an LSTM, GRU or QRNN the gates are
    shown, for a Transformer what each head attends to.

    Steps count from 0, which is <s> (in a stream, </s>). With --json: what --out writes.
    """
    from chainrule.autodiff.tape_model import load_on_tape

    opt.check_new_file(options["out"], "--out", options["overwrite"])
    how: Any = {"token": options["token"], "longest": options["longest"], "progress": terminal_progress()}
    found = cr.diagnose(load_on_tape(folder), **opt.read_by_model(text, prompt), **how)
    if options["out"] is not None:
        found.save(options["out"])
    if as_json:
        for record in found.records():
            echo_json(record)
    else:
        screen = console()
        show(screen, found.parts(screen.width))


@click.command(short_help="Show how the model in DIR predicts a token of a text.")
@opt.model
@opt.read_text
@opt.read_prompt
@opt.option("--next WORD", "Predict WORD after the text.", name="next_word")
@opt.option(
    "--last N",
    "For a recurrent network or a bag of words show the last N tokens; the tokens before them are data.",
    type=click.IntRange(1, 50),
    default=3,
)
@opt.option("--svg FILE", "Draw the graph, for a document.")
@opt.overwrite("a FILE")
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
    all tokens at once: each of its matrices has a row for each token in the window.
    """
    from chainrule.autodiff.tape_model import load_on_tape
    from chainrule.explanation.networks import NetworkExplanation
    from chainrule.system.disk import replaced_file

    opt.check_new_file(svg, "--svg", options["overwrite"])
    read = opt.read_by_model(text, prompt, options["next_word"])
    found = cr.explain(load_on_tape(folder), **read, last=options["last"], progress=terminal_progress())
    if svg is not None:
        if not isinstance(found, NetworkExplanation):
            raise click.UsageError("--svg draws the graph of a network; an n-gram model has none")
        with replaced_file(Path(svg)) as file:
            file.write(found.svg().encode())
    if as_json:
        print_json(found.record())
        return
    screen = console()
    show(screen, found.parts())
    if svg is not None:
        say(screen, f"the picture is in {svg}")
