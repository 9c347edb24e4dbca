"""`chainrule mix`: two n-gram models interpolated into one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.runs import json_option, overwrite_option
from chainrule.cli.options.texts import corpus_options, held_out_option, open_corpora
from chainrule.cli.screen.lines import console, print_json, say
from chainrule.cli.screen.words import number

if TYPE_CHECKING:
    from chainrule.ngram.model import NgramModel


@click.command()
@click.argument("first", metavar="DIR1", type=click.Path())
@click.argument("second", metavar="DIR2", type=click.Path())
@click.option("--out", required=True, type=click.Path(), metavar="DIR", help="The model folder to write.")
@overwrite_option("a model folder")
@held_out_option("Text to tune the weight on.")
@click.option("--weight", type=float, metavar="W", help="How much DIR1 counts, between 0 and 1.")
@corpus_options
@json_option
def mix(
    first: str,
    second: str,
    out: str,
    overwrite: bool,
    held_out: tuple[str, ...],
    weight: float | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Interpolate the n-gram models in DIR1 and DIR2 into one.

    Every n-gram of either gets the weighted mean of their probabilities; what is left goes to shorter contexts, so
    that the result is a model like any other. The weight is given, or the one that makes held-out text most likely.

    Example: chainrule mix general medical --held-out notes.txt --out both
    """
    from chainrule.cli.progress import terminal_progress
    from chainrule.folder import check_destination
    from chainrule.kinds import load
    from chainrule.ngram.mix import interpolate

    if (not held_out) == (weight is None):
        raise click.UsageError("choose one of --held-out and --weight")
    check_destination(out, overwrite=overwrite)
    progress = terminal_progress()
    (text,) = open_corpora(options, held_out or None)
    one, other = (load(folder, tasks=["language"]) for folder in (first, second))
    lm = interpolate(one, other, text, weight=weight, progress=progress)
    if text is not None:
        text.note_losses(progress)
    lm.save(out, overwrite=overwrite)
    _report(lm, (first, second), out, as_json)


def _report(lm: NgramModel, sources: tuple[str, str], out: str, as_json: bool) -> None:
    from chainrule.folder import megabytes

    weights, size, ngrams = lm.metrics["weights"], lm.tokenizer.vocab_size, lm.metrics["ngrams"]
    if as_json:
        figures = {"weights": weights, "vocab_size": size, "ngrams": ngrams}
        print_json({"folder": out, **figures, "megabytes": megabytes(out)})
        return
    shares = ", ".join(f"{weight:.1%} {source}" for weight, source in zip(weights, sources, strict=True))
    counts = f"vocabulary {size:,}, {sum(ngrams):,} n-grams, {number(megabytes(out))} MB"
    say(console(), f"{out}: {shares}; {counts}")
