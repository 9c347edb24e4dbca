"""`chainrule compare`: a ladder of models, trained on one corpus and measured on one scale."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option
from chainrule.cli.options.runs import json_option, minutes_option, overwrite_option, seed_option
from chainrule.cli.options.texts import (
    context_option,
    corpus_argument,
    corpus_options,
    held_out_option,
    open_corpora,
)
from chainrule.cli.options.tokenizers import tokenizer_choice, tokenizer_options
from chainrule.cli.screen.lines import console, print_json, say
from chainrule.cli.screen.tables import SCORES, UNPAID, bits_per_byte, figure, results_table, show_table
from chainrule.cli.screen.words import number
from chainrule.errors import Interrupted

if TYPE_CHECKING:
    from rich.table import Table

    from chainrule.evaluation.comparison import Comparison

CHEAP = "°"
"""Marks the cost of a model to which no other is better without costing more."""


@click.command()
@corpus_argument
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="A new folder for the models.")
@overwrite_option("a comparison")
@held_out_option("Text to tune on. [default: 10 % of CORPUS]")
@click.option("--test", type=click.Path(), metavar="FILE", help="Text to measure on. [default: 10 % of CORPUS]")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; repeatable. [default: all]")
@minutes_option("The most time to train each network. [default: 0.5]")
@tokenizer_options("bpe")
@context_option
@device_option
@seed_option
@corpus_options
@json_option
def compare(
    corpus: tuple[str, ...],
    out: str,
    kinds: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Train a ladder of models on CORPUS and measure them on one scale.

    The documents of CORPUS are split 80/10/10: models learn from the first part, tune on the second and are
    measured on the third; --held-out and --test name texts of their own for that. Each model stays in a folder of
    DIR that generate, score, evaluate and inspect take; compare.json has every figure.

    Example: chainrule compare corpus.txt --out ladder
    """
    from chainrule.cli.progress import terminal_progress
    from chainrule.evaluation.compare import compare as compare_models

    given = (None if options[name] is None else [options[name]] for name in ("held_out", "test"))
    text, valid, test = open_corpora(options, corpus, *given)
    assert text is not None

    def work() -> Comparison:
        return compare_models(
            text,
            out,
            valid=valid,
            test=test,
            kinds=kinds or None,
            tokenizer=tokenizer_choice(options),
            context=options["context"],
            device=options["device"],
            minutes=options["minutes"],
            seed=options["seed"],
            overwrite=options["overwrite"],
            progress=terminal_progress(),
        )

    if as_json:
        print_json(work().to_json())
        return
    try:
        comparison = work()
    except (KeyboardInterrupt, SystemExit, Interrupted):
        _print_what_there_is(out)
        raise
    _print(comparison, out)


def _print_what_there_is(out: str) -> None:
    """The results of a comparison that is being stopped."""
    from chainrule.evaluation.comparison import read_comparison

    found = read_comparison(Path(out))
    if found is not None and found.results and not found.is_finished:
        _print(found, out)
        say(console(), "The comparison was stopped: the same command goes on with the models that are missing.")


def _print(comparison: Comparison, out: str) -> None:
    screen = console()
    train, test = comparison.parts["train"], comparison.parts["test"]
    say(
        screen,
        f"{comparison.tokenizer}, vocabulary {comparison.vocab_size:,}; trained on {train['tokens']:,} tokens, "
        f"measured on {test['tokens']:,} tokens ({test['bytes']:,} bytes) of text no model has seen",
    )
    show_table(screen, _table(comparison))
    say(screen, f"{CHEAP} no other model is both better and cheaper in this respect")
    impossible = [r.test.impossible / r.test.tokens for r in comparison.results if r.test.impossible]
    if impossible:
        say(
            screen, f"∞: some tokens had probability 0, from {min(impossible):.1%} to {max(impossible):.1%} of them"
        )
    if not all(result.test.normalised for result in comparison.results):
        say(screen, SCORES)
    if not all(result.test.lossless for result in comparison.results):
        say(screen, UNPAID)
    screen.print("\nSamples (top-p 0.9)", style="bold")
    for result in comparison.results:
        sample = " / ".join(" ".join(line.split()) for line in result.sample.splitlines())
        screen.print(f"{result.name}:", style="cyan", end=" ")
        say(screen, sample[:160] or "(empty lines)")
    best = comparison.best
    if best is not None:
        say(screen, f"\nThe best is {best.name}; try: chainrule generate {out}/{best.folder}")


def _table(comparison: Comparison) -> Table:
    """A row for each model: how good it is, and what it costs."""
    from chainrule.evaluation.comparison import COSTS

    table = results_table("model", "bits/byte", "perplexity", "steps", "tokens/s", "train s", "MB")
    cheap = {cost: comparison.frontier(cost) for cost in COSTS}
    for result in comparison.results:
        costs = {
            "speed": f"{result.test.tokens_per_second:,.0f}",
            "training": number(result.training_seconds, 2),
            "size": number(result.megabytes, 3),
        }
        is_best = result is comparison.best
        table.add_row(
            f"{result.name} (best)" if is_best else result.name,
            bits_per_byte(result.test),
            figure(result.test, result.test.perplexity),
            "" if result.steps is None else f"{result.steps:,}",
            *(text + (CHEAP if result.name in cheap[cost] else " ") for cost, text in costs.items()),
            style="bold green" if is_best else None,
        )
    return table
