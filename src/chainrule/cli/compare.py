"""`chainrule compare`: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.common import (
    console,
    context_option,
    corpus_argument,
    encoding_option,
    json_option,
    number,
    print_json,
    seed_option,
    tokenizer_options,
)

if TYPE_CHECKING:
    from chainrule.evaluation.compare import Comparison


@click.command()
@corpus_argument
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="A new folder for the models.")
@click.option("--kind", "kinds", multiple=True, metavar="KIND", help="Only this kind; repeatable. [default: all]")
@tokenizer_options("bpe")
@context_option
@seed_option
@encoding_option
@json_option
def compare(
    corpus: tuple[str, ...],
    out: str,
    kinds: tuple[str, ...],
    encoding_errors: Any,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a ladder of models on CORPUS and measure them on one scale.

    The documents of CORPUS are split 80/10/10: models learn from the first part, tune on the second and are
    measured on the third. Each model stays in a folder of DIR that generate, score, evaluate and inspect take;
    compare.json has every figure.

    Example: chainrule compare corpus.txt --out ladder
    """
    from chainrule.cli.progress import terminal_progress
    from chainrule.evaluation.compare import compare as compare_models
    from chainrule.text.corpus import Corpus
    from chainrule.training.prepare import TokenizerChoice

    comparison = compare_models(
        Corpus.open(*corpus, encoding_errors=encoding_errors),
        Path(out),
        kinds=kinds or None,
        tokenizer=TokenizerChoice(options["tokenizer"], options["vocab_size"], options["min_count"]),
        context=options["context"],
        seed=options["seed"],
        progress=terminal_progress(),
    )
    if as_json:
        print_json(comparison.to_json())
    else:
        _print(comparison, out)


def _print(comparison: Comparison, out: str) -> None:
    from rich.table import Table

    screen = console()
    parts = comparison.parts
    screen.print(
        f"{comparison.tokenizer}, vocabulary {comparison.vocab_size:,}; trained on "
        f"{parts['train']['tokens']:,} tokens, measured on {parts['test']['tokens']:,} tokens "
        f"({parts['test']['bytes']:,} bytes) of text no model has seen",
        soft_wrap=True,
    )
    table = Table()
    table.add_column("model")
    for heading in ("bits/byte", "perplexity", "tokens/s", "training s", "MB"):
        table.add_column(heading, justify="right")
    best = min(result.test.bits_per_byte for result in comparison.results)
    for result in comparison.results:
        test = result.test
        table.add_row(
            result.name,
            number(test.bits_per_byte, 4),
            number(test.perplexity, 4),
            f"{test.tokens_per_second:,.0f}",
            number(result.training_seconds, 2),
            number(result.megabytes, 3),
            style="bold green" if test.bits_per_byte == best else None,
        )
    screen.print(table)
    impossible = [r for r in comparison.results if r.test.impossible]
    if impossible:
        least = min(r.test.impossible / r.test.tokens for r in impossible)
        most = max(r.test.impossible / r.test.tokens for r in impossible)
        screen.print(f"∞: the model gave probability 0 to {least:.1%} to {most:.1%} of the tokens", soft_wrap=True)
    screen.print("\nSamples (top-p 0.9)", style="bold")
    for result in comparison.results:
        sample = " / ".join(" ".join(line.split()) for line in result.sample.splitlines())
        screen.print(f"{result.name}:", style="cyan", end=" ")
        screen.print(sample[:160] or "(empty lines)", soft_wrap=True)
    screen.print(
        f"\nThe models are in {out}; try: chainrule generate {out}/{comparison.results[-1].folder}",
        soft_wrap=True,
    )
