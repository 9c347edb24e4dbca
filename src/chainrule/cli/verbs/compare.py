"""`chainrule compare`: a ladder of models, trained on one corpus and measured on one scale."""

from __future__ import annotations

import math
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
    open_examples,
    source_tokenizer_option,
)
from chainrule.cli.options.tokenizers import tokenizer_choice, tokenizer_options
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.tables import SCORES, UNPAID, bits_per_byte, figure, results_table, show_table
from chainrule.cli.output.words import number
from chainrule.errors import Interrupted

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from chainrule.comparison.results import Comparison, Result
    from chainrule.contract.kinds import Task
    from chainrule.evaluation.measure import Measured

CHEAP = "°"
"""Marks the cost of a model to which no other is better without costing more."""


@click.command(short_help="Train a ladder of models and measure them on one scale.")
@corpus_argument
@click.option(
    "--task",
    type=click.Choice(["language", "translation", "tagging"]),
    default="language",
    show_default=True,
    help="What the models do: each task has a ladder and a measure of its own.",
)
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="A new folder for the models.")
@overwrite_option("a comparison")
@held_out_option("Text to tune on; repeatable. [default: 10 % of CORPUS]")
@click.option(
    "--test",
    type=click.Path(),
    multiple=True,
    metavar="FILE",
    help="Text to measure on; repeatable. [default: 10 % of CORPUS]",
)
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; repeatable. [default: all]")
@click.option(
    "--ladder",
    default="full",
    show_default=True,
    metavar="NAME|FILE",
    help="The models: quick (a few), full (all), lecture-ngrams or lecture-networks (tables of the lectures), or "
    "the [[rung]] tables (kind, name, settings, share) of a TOML or JSON file.",
)
@minutes_option("The time of the whole comparison, which networks share. [default: 4; other tasks 1 for each]")
@click.option(
    "--curve",
    is_flag=True,
    help="Learning curves: train the models of the short ladder (of a FILE all) on 1/16, 1/8, 1/4 and 1/2 of the "
    "text too, networks on 1/4 and 1/2, within the same time.",
)
@click.option("--report/--no-report", default=True, show_default=True, help="Write DIR/report.html at the end.")
@tokenizer_options(None)
@source_tokenizer_option
@context_option
@device_option
@seed_option
@corpus_options
@json_option
def compare(
    corpus: tuple[str, ...],
    task: Task,
    out: str,
    kinds: tuple[str, ...],
    as_json: bool,
    **options: Any,
) -> None:
    """Train a ladder of models on CORPUS and measure them on one scale.

    The documents of CORPUS are split 80/10/10: models learn from the first part, tune on the second and are
    measured on the third; --held-out and --test name texts of their own for that. Each model stays in a folder of
    DIR that generate, score, evaluate and inspect take; compare.json has every figure.

    The same command goes on with a comparison that was stopped, and takes up the models that are there. ± is half
    of the 95 % interval of a figure, over documents of the test text.

    Models that translate are compared on pairs: CORPUS is the sources and their targets, as for `chainrule train`.

    \b
    chainrule compare corpus.txt --out ladder
    chainrule compare corpus.txt --ladder quick --curve --out ladder
    chainrule compare corpus.txt --ladder lecture-ngrams --tokenizer word --out ladder
    chainrule compare --task translation train.en train.de --out ladder
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.comparison.compare import compare as compare_models
    from chainrule.runs.prepare import TokenizerChoice

    text, valid, test = open_examples(options, task, corpus, options["held_out"] or None, options["test"] or None)
    assert text is not None
    sources = options["source_tokenizer"]
    tokenizer = None
    if (
        any(options[name] is not None for name in ("tokenizer", "vocab_size", "vocabulary"))
        or options["min_count"] > 1
    ):
        tokenizer = tokenizer_choice(options, "bpe")

    def work() -> Comparison:
        return compare_models(
            text,
            out,
            task=task,
            ladder=options["ladder"],
            valid=valid,
            test=test,
            kinds=kinds or None,
            tokenizer=tokenizer,
            source_tokenizer=None if sources is None else TokenizerChoice(sources),
            context=options["context"],
            device=options["device"],
            minutes=options["minutes"],
            curve=options["curve"],
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
    if options["report"] and task == "language":
        write_page(out)


def write_page(out: str) -> None:
    """Write the report of a comparison, and say where it is."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.errors import ChainruleError
    from chainrule.report.write import write_report

    screen = console()
    try:
        page = write_report(out, pictures=False, progress=terminal_progress())
    except ChainruleError as error:  # a library that is missing, say: the comparison is done all the same
        say(screen, f"There is no report: {error}")
    else:
        say(screen, f"The report: {page}")


def _print_what_there_is(out: str) -> None:
    """The results of a comparison that is being stopped."""
    from chainrule.comparison.results import read_comparison

    found = read_comparison(Path(out))
    if found is not None and found.results and not found.is_finished:
        _print(found, out)
        say(console(), "The comparison was stopped: the same command goes on with the models that are missing.")


def _print(comparison: Comparison, out: str) -> None:
    screen = console()
    if comparison.task != "language":
        _print_task(screen, comparison, out)
        return
    train, test = comparison.parts["train"], comparison.parts["test"]
    say(
        screen,
        f"{comparison.tokenizer}, vocabulary {comparison.vocab_size:,}; trained on {train['tokens']:,} tokens, "
        f"measured on {test['tokens']:,} tokens ({test['bytes']:,} bytes) of text no model has seen",
    )
    show_table(screen, _table(comparison))
    say(screen, f"{CHEAP} no other model is both better and cheaper in this respect")
    measured = [test for _, test in _language(comparison)]
    impossible = [test.impossible / test.tokens for test in measured if test.impossible]
    if impossible:
        say(
            screen, f"∞: some tokens had probability 0, from {min(impossible):.1%} to {max(impossible):.1%} of them"
        )
    if not all(test.normalised for test in measured):
        say(screen, SCORES)
    if not all(test.lossless for test in measured):
        say(screen, UNPAID)
    _print_curve(screen, comparison)
    _print_failures(screen, comparison)
    _print_samples(screen, comparison, "Samples (top-p 0.9)")
    _print_best(screen, comparison, out)


def _print_curve(screen: Console, comparison: Comparison) -> None:
    """The learning curves: a row for each model, a column for each part of the training text."""
    from chainrule.comparison.learning_curve import fraction

    if not comparison.curve:
        return
    shares = sorted({one.share for one in comparison.curve})
    points: dict[str, dict[float, float]] = {}
    for one in comparison.curve:
        points.setdefault(one.name, {})[one.share] = one.bits_per_byte
    screen.print("\nBits/byte by the share of the training text", style="bold")
    table = results_table("model", *(fraction(share) for share in shares), "twice the text")
    for name, found in points.items():
        half, whole = found.get(0.5, math.inf), found.get(1.0, math.inf)
        gained = f"{whole - half:+.3f}" if max(half, whole) < math.inf else ""
        table.add_row(name, *(number(found[share], 4) if share in found else "" for share in shares), gained)
    show_table(screen, table)


def _print_failures(screen: Console, comparison: Comparison) -> None:
    from chainrule.comparison.learning_curve import on_part

    for failure in comparison.failures:
        say(screen, f"{on_part(failure.name, failure.share)} failed: {failure.error}")


def _print_samples(screen: Console, comparison: Comparison, title: str) -> None:
    screen.print(f"\n{title}", style="bold")
    for result in comparison.results:
        sample = " / ".join(" ".join(line.split()) for line in result.sample.splitlines())
        say(screen, f"{result.name}: {sample[:160] or '(empty lines)'}", emphasis=len(result.name) + 1)


def _print_best(screen: Console, comparison: Comparison, out: str) -> None:
    from chainrule.contract.kinds import VERBS

    best = comparison.best
    if best is not None:
        verb = VERBS[comparison.task][1]
        equal = [one.name for one in comparison.results if not one.differs_from_best]
        if equal:
            say(screen, f"\nThe test text cannot tell the best from {', '.join(equal)}.")
        if comparison.advice is not None:
            say(screen, f"\n{comparison.advice}")
        say(screen, f"\nThe best is {best.name}; try: chainrule {verb} {out}/{best.folder}")


def _print_task(screen: Console, comparison: Comparison, out: str) -> None:
    """The results of another task than language: its figures, as they are named, and what models cost."""
    from chainrule.contract.kinds import Figures

    train, test = comparison.parts["train"], comparison.parts["test"]
    say(
        screen,
        f"{comparison.tokenizer}, vocabulary {comparison.vocab_size:,}; trained on {train['lines']:,} examples, "
        f"measured on {test['lines']:,} that no model has seen",
    )
    figures = [result.test.values for result in comparison.results if isinstance(result.test, Figures)]
    names = list(dict.fromkeys(name for values in figures for name in values))
    table = results_table("model", *names, "steps", "tokens/s", "train s", "MB")
    for result, values in zip(comparison.results, figures, strict=True):
        shown = [number(values[name], 4) if name in values else "" for name in names]
        _add_row(table, comparison, result, shown)
    show_table(screen, table)
    say(screen, f"{CHEAP} no other model is both better and cheaper in this respect")
    for note in dict.fromkeys(one.test.note for one in comparison.results if isinstance(one.test, Figures)):
        if note:
            say(screen, note)
    _print_failures(screen, comparison)
    _print_samples(screen, comparison, "Examples")
    _print_best(screen, comparison, out)


def _language(comparison: Comparison) -> list[tuple[Result, Measured]]:
    """The results of language models."""
    from chainrule.evaluation.measure import Measured

    return [(result, result.test) for result in comparison.results if isinstance(result.test, Measured)]


def _table(comparison: Comparison) -> Table:
    """A row for each model: how good it is, and what it costs."""
    table = results_table("model", "bits/byte", "±", "perplexity", "steps", "tokens/s", "train s", "MB")
    for result, test in _language(comparison):
        half = "" if result.interval is None else f"{(result.interval[1] - result.interval[0]) / 2:.3f}"
        _add_row(table, comparison, result, [bits_per_byte(test), half, figure(test, test.perplexity)])
    return table


def _add_row(table: Table, comparison: Comparison, result: Result, figures: list[str]) -> None:
    """Add a model to the table, with its figures, its costs, and marks of the best and the cheap."""
    costs = {
        "tokens_per_second": f"{result.test.tokens_per_second:,.0f}",
        "training_seconds": number(result.training_seconds, 2),
        "megabytes": number(result.megabytes, 3),
    }
    is_best = result is comparison.best
    table.add_row(
        f"{result.name} (best)" if is_best else result.name,
        *figures,
        "" if result.steps is None else f"{result.steps:,}",
        *(text + (CHEAP if result.name in comparison.frontier(cost) else " ") for cost, text in costs.items()),
        style="bold green" if is_best else None,
    )
