"""`chainrule filter`: the fluent part of a corpus."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.executors import executor_options, opened_executor
from chainrule.cli.options.models import (
    device_option,
    model_argument,
    note_slow_precision,
    precision_option,
)
from chainrule.cli.options.runs import check_new_file, json_option, overwrite_option
from chainrule.cli.options.texts import corpus_argument, corpus_options, open_corpus
from chainrule.cli.output.lines import WAITING, echo
from chainrule.cli.output.words import count, number

if TYPE_CHECKING:
    from chainrule.contract.lm import LanguageModel
    from chainrule.tasks.filtering.filter import Filtered


@click.command("filter", short_help="Keep the documents of CORPUS that the model finds fluent.")
@model_argument
@corpus_argument
@click.option(
    "--keep",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Keep this share of the documents, those of the lowest perplexities. Takes two passes.",
)
@click.option(
    "--max-perplexity", type=click.FloatRange(1), metavar="P", help="Keep documents of perplexity P or less."
)
@click.option(
    "--paragraphs", is_flag=True, help="In text, a document is the lines up to a blank one, not a line by itself."
)
@click.option(
    "--out", type=click.Path(), metavar="FILE", help="Where to write; .gz and .zst compress. [default: -]"
)
@overwrite_option("a file")
@corpus_options
@device_option
@precision_option
@executor_options
@json_option
def filter_verb(
    folder: str,
    corpus: tuple[str, ...],
    keep: float | None,
    max_perplexity: float | None,
    paragraphs: bool,
    out: str | None,
    overwrite: bool,
    device: str,
    dtype: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Keep the documents of CORPUS that the model in DIR finds fluent.

    A document is a line of a text file, an object of a .jsonl file, a row of a .csv, .tsv or .parquet file. It is
    kept, as it is and in its place, if its perplexity is low enough. Blank lines stay where something of the
    paragraph before them stays; records without text are dropped.

    What was kept and dropped is said on standard error, or, with --out, on standard output.

    \b
    chainrule filter model crawl.txt.gz --keep 0.6 --out fluent.txt.gz
    zcat crawl.gz | chainrule filter model - --max-perplexity 800 > fluent.txt
    """
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import Stored, Workers, load
    from chainrule.tasks.filtering.filter import filter_corpus
    from chainrule.tasks.filtering.writing import check_forms

    if (keep is None) == (max_perplexity is None):
        raise click.UsageError("choose --keep SHARE or --max-perplexity P")
    target = None if out in (None, "-") else out
    if target is not None:
        check_new_file(target, "--out", overwrite)
    lm = load(folder, device=device, dtype=dtype, tasks=["language"])
    note_slow_precision(dtype, lm)
    began = time.monotonic()
    if max_perplexity is not None and corpus == ("-",) and target is None and options["executor"] == "embedded":
        filtered = _filter_pipe(lm, max_perplexity, paragraphs, options)
    else:
        texts = open_corpus(options, *corpus)
        WAITING.end()
        check_forms(texts, target or sys.stdout.buffer)
        with opened_executor(options) as executor:
            stored = Stored(Path(folder).absolute(), device, dtype)
            filtered = filter_corpus(
                lm,
                texts,
                target or sys.stdout.buffer,
                keep=keep,
                max_perplexity=max_perplexity,
                paragraphs=paragraphs,
                progress=terminal_progress(),
                workers=Workers(executor, stored) if executor.is_remote else None,
            )
    sys.stdout.flush()
    _report(filtered, time.monotonic() - began, as_json=as_json, err=target is None)


def _filter_pipe(lm: LanguageModel, max_perplexity: float, paragraphs: bool, options: dict[str, Any]) -> Filtered:
    """Filter standard input as it comes, without a copy of it."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.tasks.filtering.filter import filter_stream
    from chainrule.text.files import Cleaning, standard_input

    if options["fields"] or options["files"]:
        raise click.UsageError("standard input is plain text: --field and --files are for files")
    if sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)
    WAITING.end()
    cleaning = Cleaning(options["encoding_errors"])
    filtered = filter_stream(
        lm,
        standard_input(),
        sys.stdout.buffer,
        max_perplexity=max_perplexity,
        paragraphs=paragraphs,
        cleaning=cleaning,
        name="standard input",
    )
    if cleaning.replaced:
        terminal_progress().note(f"standard input: not UTF-8, replaced by U+FFFD: {cleaning.replaced:,}")
    return filtered


def _report(filtered: Filtered, seconds: float, *, as_json: bool, err: bool) -> None:
    if as_json:
        from chainrule.folder import to_json

        echo(to_json({**filtered.to_json(), "seconds": round(seconds, 3)}), err=err)
        return
    share, of_bytes = filtered.kept / filtered.documents, filtered.kept_bytes / filtered.bytes
    echo(
        f"kept {filtered.kept:,} of {count(filtered.documents, 'document')} ({share:.1%}), "
        f"{filtered.kept_bytes:,} of {count(filtered.bytes, 'byte')} ({of_bytes:.1%}), "
        f"of perplexity {number(filtered.max_perplexity, 4)} or less",
        err=err,
    )
    quantiles = ", ".join(f"{share:.0%} {number(value, 4)}" for share, value in filtered.quantiles.items())
    echo(f"perplexity of all documents, quantiles: {quantiles}", err=err)
    echo(f"{seconds:.1f} s, {filtered.bytes / 1e6 / max(seconds, 1e-3):.1f} MB/s", err=err)
