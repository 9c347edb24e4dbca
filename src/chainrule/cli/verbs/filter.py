"""`chainrule filter`: the fluent part of a corpus."""

from __future__ import annotations

import sys
import time
from typing import Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_argument, corpus_options, note_terminal_input, open_corpus
from chainrule.cli.output import WAITING, binary_output, count, echo, echo_json, number, terminal_progress


@click.command("filter", short_help="Keep the documents of CORPUS that the model finds fluent.")
@opt.model
@corpus_argument
@opt.options("""
    --keep SHARE : (0,1]
        Keep this share of the documents, those of the lowest perplexities. Takes two passes.
    --max-perplexity P : [1,∞)  Keep documents of perplexity P or less.
    --paragraphs                In text, a document is the lines up to a blank one, not a line by itself.
    --out FILE : new            Where to write; .gz and .zst compress. [default: -]
    --overwrite                 Replace a file that exists.
""")
@opt.group(corpus_options, opt.compute, opt.executor_options, opt.json)
def filter_verb(folder: str, corpus: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Keep the documents of CORPUS that the model in DIR finds fluent.

    A document is a line of a text file, an object of a .jsonl file, a row of a .csv, .tsv or .parquet file. It is
    kept, as it is and in its place, if its perplexity is low enough. Blank lines stay where something of the
    paragraph before them stays; records without text are dropped.

    A report of what was kept and dropped goes to standard error, or, with --out, to standard output.

    \b
    chainrule filter model crawl.txt.gz --keep 0.6 --out fluent.txt.gz
    zcat crawl.gz | chainrule filter model - --max-perplexity 800 > fluent.txt
    """
    from chainrule.tasks.filtering.writing import check_forms

    keep, max_perplexity = options["keep"], options["max_perplexity"]
    if (keep is None) == (max_perplexity is None):
        raise click.UsageError("choose --keep SHARE or --max-perplexity P")
    target = None if options["out"] == "-" else options["out"]
    lm = opt.load_model(folder, options, "language")
    began = time.monotonic()
    if max_perplexity is not None and corpus == ("-",) and target is None and options["executor"] == "embedded":
        filtered = _filter_pipe(lm, options)
    else:
        texts = open_corpus(options, *corpus)
        WAITING.end()
        out = target or binary_output()
        check_forms(texts, out)
        with opt.opened_workers(folder, options) as workers:
            how: Any = {name: options[name] for name in ("keep", "max_perplexity", "paragraphs")}
            how |= {"progress": terminal_progress(), "workers": workers}
            filtered = cr.tasks.filter_corpus(lm, texts, out, **how)
    sys.stdout.flush()
    _report(filtered, time.monotonic() - began, as_json=as_json, err=target is None)


def _filter_pipe(lm: cr.LanguageModel, options: dict[str, Any]) -> cr.tasks.Filtered:
    """Filter standard input as it comes, without a copy of it."""
    from chainrule.tasks.filtering.filter import filter_stream
    from chainrule.text.files import Cleaning, standard_input

    if options["fields"] or options["files"]:
        raise click.UsageError("standard input is plain text: --field and --files are for files")
    note_terminal_input()
    WAITING.end()
    cleaning = Cleaning(options["encoding_errors"])
    how: Any = {name: options[name] for name in ("max_perplexity", "paragraphs")}
    how |= {"cleaning": cleaning, "name": "standard input"}
    filtered = filter_stream(lm, standard_input(), binary_output(), **how)
    if cleaning.replaced:
        terminal_progress().note(f"standard input: not UTF-8, replaced by U+FFFD: {cleaning.replaced:,}")
    return filtered


def _report(filtered: cr.tasks.Filtered, seconds: float, *, as_json: bool, err: bool) -> None:
    if as_json:
        echo_json({**filtered.to_json(), "seconds": round(seconds, 3)}, err=err)
        return
    share, of_bytes = filtered.kept / filtered.documents, filtered.kept_bytes / filtered.bytes
    quantiles = ", ".join(f"{share:.0%} {number(value, 4)}" for share, value in filtered.quantiles.items())
    echo(
        f"kept {filtered.kept:,} of {count(filtered.documents, 'document')} ({share:.1%}), "
        f"{filtered.kept_bytes:,} of {count(filtered.bytes, 'byte')} ({of_bytes:.1%}), "
        f"of perplexity {number(filtered.max_perplexity, 4)} or less\n"
        f"perplexity of all documents, quantiles: {quantiles}\n"
        f"{seconds:.1f} s, {filtered.bytes / 1e6 / max(seconds, 1e-3):.1f} MB/s",
        err=err,
    )
