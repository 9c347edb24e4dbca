"""`chainrule compare`: a ladder of models, trained on one corpus and measured on one scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.common import (
    SCORES,
    UNPAID,
    bits_per_byte,
    console,
    context_option,
    corpus_argument,
    corpus_options,
    device_option,
    figure,
    held_out_option,
    json_option,
    minutes_option,
    number,
    open_corpora,
    overwrite_option,
    print_json,
    results_table,
    say,
    seed_option,
    show_table,
    tokenizer_choice,
    tokenizer_options,
)

if TYPE_CHECKING:
    from chainrule.evaluation.compare import Comparison


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
    comparison = compare_models(
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
        print_json(comparison.to_json())
    else:
        _print(comparison, out)


def _print(comparison: Comparison, out: str) -> None:
    screen = console()
    train, test = comparison.parts["train"], comparison.parts["test"]
    say(
        screen,
        f"{comparison.tokenizer}, vocabulary {comparison.vocab_size:,}; trained on {train['tokens']:,} tokens, "
        f"measured on {test['tokens']:,} tokens ({test['bytes']:,} bytes) of text no model has seen",
    )
    table = results_table("model", "bits/byte", "perplexity", "tokens/s", "train s", "MB")
    best = min((r.test.bits_per_byte for r in comparison.results if r.test.normalised), default=None)
    for result in comparison.results:
        table.add_row(
            result.name,
            bits_per_byte(result.test),
            figure(result.test, result.test.perplexity),
            f"{result.test.tokens_per_second:,.0f}",
            number(result.training_seconds, 2),
            number(result.megabytes, 3),
            style="bold green" if result.test.normalised and result.test.bits_per_byte == best else None,
        )
    show_table(screen, table)
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
    say(screen, f"\nThe models are in {out}; try: chainrule generate {out}/{comparison.results[-1].folder}")
