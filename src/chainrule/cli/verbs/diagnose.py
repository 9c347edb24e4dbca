"""`chainrule diagnose`: what goes on inside a network that reads a text."""

from __future__ import annotations

from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.output import console, echo_json, show, terminal_progress


@click.command()
@opt.model
@opt.read_text
@opt.read_prompt
@opt.option("--token N", "Predict the N-th token of the text instead, and end there.", type=int)
@opt.option("--longest N", "Of a longer text only the last N tokens are read.", type=click.IntRange(1), default=200)
@opt.option("--out FILE", "Write all figures to FILE, a JSON object per line.")
@opt.overwrite("a FILE")
@opt.json
def diagnose(
    folder: str,
    text: str | None,
    prompt: str | None,
    token: int | None,
    longest: int,
    out: str | None,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Look into the network in DIR while it reads TEXT, or --prompt.

    The loss of predicting the last token of TEXT, or the most likely one after --prompt, is differentiated with
    respect to the embedding of every token before it and, in a recurrent network, to the state of every layer at
    every step: a gradient that vanishes on the way back teaches nothing. For an LSTM, GRU or QRNN the gates are
    shown, for a Transformer what each head attends to.

    Steps count from 0, which is <s> (in a stream, </s>). With --json: what --out writes.
    """
    from chainrule.autodiff.tape_model import load_on_tape

    if out is not None:
        opt.check_new_file(out, "--out", overwrite)
    how: Any = {"token": token, "longest": longest, "progress": terminal_progress()}
    found = cr.diagnose(load_on_tape(folder), **opt.read_by_model(text, prompt), **how)
    if out is not None:
        found.save(out)
    if as_json:
        for record in found.records():
            echo_json(record)
        return
    screen = console()
    show(screen, found.parts(screen.width))
