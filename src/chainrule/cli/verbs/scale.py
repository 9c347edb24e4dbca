"""`chainrule scale`: a grid of Transformers, the scaling law fitted to it, and the size for a budget."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option
from chainrule.cli.options.runs import json_option, minutes_option, overwrite_option, seed_option
from chainrule.cli.options.texts import corpus_argument, corpus_options, open_corpus
from chainrule.cli.options.tokenizers import tokenizer_choice, tokenizer_options
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.tables import results_table, show_table

if TYPE_CHECKING:
    from chainrule.comparison.scaling.grid import Scaling


@click.command(short_help="Fit a scaling law to a grid of Transformers.")
@corpus_argument
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="A new folder for the results.")
@overwrite_option("a grid")
@click.option(
    "--sizes",
    default="1x32,2x48,2x64,3x96,4x128",
    show_default=True,
    metavar="LxW,...",
    help="The sizes of the networks: layers and features of a token.",
)
@click.option(
    "--shares",
    default="1/8,1/4,1/2,1",
    show_default=True,
    metavar="S,...",
    help="The parts of the text, of as much of it as fits into the time.",
)
@minutes_option("The time of the whole grid. [default: 6]")
@click.option(
    "--budget",
    "budgets",
    type=float,
    multiple=True,
    metavar="FLOPS",
    help="Floating-point operations for which to find the best size; repeatable. [default: those of the grid, "
    "times 10 and times 100]",
)
@tokenizer_options(None)
@click.option(
    "--context",
    type=click.Choice(["line", "stream"]),
    default="stream",
    show_default=True,
    help="A line is a sequence, or context flows across lines.",
)
@device_option
@seed_option
@corpus_options
@json_option
def scale(
    corpus: tuple[str, ...],
    out: str,
    sizes: str,
    shares: str,
    budgets: tuple[float, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Train Transformers of several sizes on parts of CORPUS, and fit a scaling law to their losses.

    The law is L(N, D) = E + A/N^a + B/D^b, for N parameters and D tokens. Each network reads each token of its part
    once. DIR/scale.json has every figure and DIR/scale.html draws them; the same command goes on with a grid that
    was stopped, and trains no network twice.

    \b
    chainrule scale corpus.txt --minutes 10 --out law
    chainrule scale corpus.txt --sizes 4x128,6x256,8x512 --device cuda --minutes 30 --budget 1e19 --out law
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.comparison.scaling.grid import MINUTES
    from chainrule.comparison.scaling.grid import scale as fit

    given = any(options[name] is not None for name in ("tokenizer", "vocab_size", "vocabulary"))
    found = fit(
        open_corpus(options, *corpus),
        out,
        sizes=sizes.split(","),
        shares=shares.split(","),
        minutes=options["minutes"] or MINUTES,
        budgets=budgets,
        tokenizer=tokenizer_choice(options, "bpe") if given or options["min_count"] > 1 else None,
        context=options["context"],
        device=options["device"],
        seed=options["seed"],
        overwrite=options["overwrite"],
        progress=terminal_progress(),
    )
    if as_json:
        print_json(found.to_json())
        return
    _print(found)
    _draw(found, out)


def _print(found: Scaling) -> None:
    from chainrule.report.scaling import equation

    assert found.law is not None
    screen, law = console(), found.law
    table = results_table("size", "parameters", "tokens", "nats", "by the law", "bits/byte", "train s")
    for cell in found.cells:
        fitted = float(law.loss(float(cell.parameters), float(cell.tokens)))
        figures = f"{cell.nats:.4f}", f"{fitted:.4f}", f"{cell.bits_per_byte:.3f}", f"{cell.seconds:.1f}"
        table.add_row(cell.size, f"{cell.parameters:,}", f"{cell.tokens:,}", *figures)
    show_table(screen, table)
    say(screen, f"\n{equation(law)}; typical error {law.error:.2%}")
    spread = ", ".join(f"{name} {low:.3g} to {high:.3g}" for name, (low, high) in found.ranges.items())
    say(screen, f"With any one network left out: {spread}")
    say(screen, f"The grid took {found.flops:.2e} operations.")
    for one in found.advice:
        say(
            screen,
            f"For {one['flops']:.2e} operations: {one['parameters']:,.0f} parameters "
            f"({one['least_parameters']:,.0f} to {one['most_parameters']:,.0f} with any one network left out) on "
            f"{one['tokens']:,.0f} tokens, loss {one['nats']:.3f} nats a token",
        )


def _draw(found: Scaling, out: str) -> None:
    """Write the page, and say where it is."""
    from chainrule.errors import ChainruleError
    from chainrule.report.scaling import write_scaling

    try:
        page = write_scaling(found, Path(out))
    except ChainruleError as error:  # a library that is missing, say: the figures are there all the same
        say(console(), f"There is no picture: {error}")
    else:
        say(console(), f"The page: {page}; its charts: {Path(out) / 'scale'}")
