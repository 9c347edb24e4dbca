"""`chainrule explain`: one prediction of a network, module by module, forward and backward."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chainrule.cli.common import (
    check_new_file,
    console,
    json_option,
    model_argument,
    number,
    overwrite_option,
    print_json,
    read_prompt_option,
    results_table,
    say,
    show_table,
)

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.autodiff.picture.explain import Explanation
    from chainrule.autodiff.picture.graph import GraphNode


@click.command()
@model_argument
@read_prompt_option
@click.option("--next", "next_word", metavar="WORD", help="Predict WORD after the text instead.")
@click.option(
    "--last",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    metavar="N",
    help="Unroll a recurrent network over the last N tokens; the state before them is data.",
)
@click.option("--svg", type=click.Path(), metavar="FILE", help="Draw the graph, for a document.")
@overwrite_option("a FILE")
@json_option
def explain(
    folder: str, prompt: str, next_word: str | None, last: int, svg: str | None, overwrite: bool, as_json: bool
) -> None:
    """Show how the network in DIR predicts a token, and what it would learn from it.

    The loss L = -ln p(token | text before it) is recorded on a tape, module by module, and differentiated: each
    line is a module with its equation, the shape of its value, and the size of the gradient that flows back to it.

    For feed-forward, Elman, LSTM and GRU models, whichever engine trained them.
    """
    from chainrule.autodiff.picture.explain import explain as explain_prediction
    from chainrule.cli.progress import terminal_progress
    from chainrule.disk import replaced_file
    from chainrule.kinds import load

    if svg is not None:
        check_new_file(svg, "--svg", overwrite)
    found = explain_prediction(load(folder), prompt, next_word=next_word, last=last, progress=terminal_progress())
    if svg is not None:
        with replaced_file(Path(svg)) as file:
            file.write(found.svg().encode())
    if as_json:
        print_json(found.record())
    else:
        _print(found, svg)


def _print(found: Explanation, svg: str | None) -> None:
    screen = console()
    before = len(found.tokens) - found.shown
    if before and found.kind != "feedforward":
        some = "the first token is" if before == 1 else f"the first {before:,} tokens are"
        say(screen, f"{some} read without the tape: the state after {'it' if before == 1 else 'them'} is data")
    p = math.exp(-found.nats)
    say(screen, f"{found.title} = {found.nats / math.log(2):.4g} bits, p = {number(p)}\n")
    _print_modules(screen, found)
    _print_parameters(screen, found)
    likely = ", ".join(f"{token} {number(chance)}" for token, chance in found.likely)
    say(screen, f"most likely: {likely}")
    if svg is not None:
        say(screen, f"the picture is in {svg}")


def _print_modules(screen: Console, found: Explanation) -> None:
    """Print the modules in the order of the forward pass; gradients flow from bottom to top."""
    table = results_table("module", "equation", "shape", "||dL/dz||")
    table.columns[1].justify = "left"
    step = None
    modules = found.graph.of_kind("module")
    for node in modules:
        if node.step != step and modules[-1].step:
            step = node.step
            table.add_row(f"step {step + 1}: {found.tokens[step - found.shown]}", style="bold")
        gradient = "" if node.gradient is None else f"{node.gradient:.2e}"
        table.add_row(node.name, node.equation, _shape(node), gradient)
    show_table(screen, table)
    screen.print()


def _print_parameters(screen: Console, found: Explanation) -> None:
    table = results_table("parameter", "shape", "used", "||dL/dW||")
    for node, uses in zip(found.graph.nodes, found.graph.uses, strict=True):
        if node.kind == "parameter":
            times = "once" if len(uses) == 1 else f"{len(uses)} times"
            table.add_row(node.symbol, _shape(node), times, f"{node.gradient or 0:.2e}")
    show_table(screen, table)
    screen.print()


def _shape(node: GraphNode) -> str:
    return "×".join(map(str, node.shape)) or "number"
