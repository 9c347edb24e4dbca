"""`chainrule convert`: ARPA files to model folders, and back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.runs import json_option, overwrite_option
from chainrule.cli.output.lines import console, print_json, say
from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from chainrule.contract.lm import LanguageModel
    from chainrule.system.progress import Progress

_ENDINGS = (".arpa", ".arpa.gz")


@click.command(short_help="Make a model folder of an ARPA file, or the reverse.")
@click.argument("source", type=click.Path())
@click.argument("target", type=click.Path())
@click.option(
    "--context",
    type=click.Choice(["line", "stream"]),
    help="For what an ARPA file says: a line is a sequence, or context flows across lines. [default: line]",
)
@overwrite_option("a TARGET")
@json_option
def convert(source: str, target: str, context: Any, overwrite: bool, as_json: bool) -> None:
    """Make a model folder of an ARPA file, or an ARPA file of a model folder.

    ARPA files are how KenLM, SRILM and others write n-gram models. A TARGET that ends in .arpa or .arpa.gz becomes
    one, any other a model folder. Only models of word tokens can be written.

    \b
    chainrule convert other.arpa.gz model
    chainrule convert model model.arpa
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.folder import check_destination
    from chainrule.ngram.arpa.model import save_arpa
    from chainrule.ngram.arpa.writing import check_target

    to_arpa = target.lower().endswith(_ENDINGS)
    if Path(source).is_dir() and not to_arpa:
        raise click.UsageError(f"{source} is a model folder: TARGET should end in .arpa or .arpa.gz")
    if Path(source).is_dir() and context:
        raise click.UsageError("--context is for what an ARPA file says; a model folder has a context")
    if to_arpa:
        check_target(Path(target), overwrite=overwrite)
    else:
        check_destination(target, overwrite=overwrite)
    progress = terminal_progress()
    lm = _read(source, context, progress)
    if to_arpa:
        save_arpa(lm, target, overwrite=overwrite, progress=progress)
    else:
        lm.save(target, overwrite=overwrite)
    _report(lm, target, as_json)


def _read(source: str, context: Any, progress: Progress) -> LanguageModel:
    from chainrule.contract.kinds import load
    from chainrule.ngram.arpa.model import load_arpa

    if Path(source).is_dir():
        return load(source, tasks=["language"])
    return load_arpa(source, context=context or "line", progress=progress)


def _report(lm: LanguageModel, target: str, as_json: bool) -> None:
    from chainrule.folder import megabytes

    ngrams, words = list(lm.metrics["ngrams"]), lm.tokenizer.vocab_size
    size = megabytes(target) if Path(target).is_dir() else Path(target).stat().st_size / 1e6
    if as_json:
        print_json({"target": target, "vocab_size": words, "ngrams": ngrams, "megabytes": size})
    else:
        counts = ", ".join(f"{count:,}" for count in ngrams)
        say(console(), f"{target}: n-grams of 1 to {len(ngrams)} words: {counts}; {number(size)} MB")
