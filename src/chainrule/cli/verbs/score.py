"""`chainrule score`: the surprisal of each record, or each token, of a text."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from chainrule.cli.options.executors import executor_options, opened_executor
from chainrule.cli.options.models import (
    device_option,
    model_argument,
    note_slow_precision,
    precision_option,
)
from chainrule.cli.options.runs import json_option
from chainrule.cli.options.texts import corpus_options, open_corpus
from chainrule.cli.output.lines import console, echo, say
from chainrule.cli.output.tables import SCORES
from chainrule.cli.output.words import cut, number

if TYPE_CHECKING:
    from chainrule.contract.kinds import Workers
    from chainrule.contract.lm import LanguageModel
    from chainrule.evaluation.records import ScoredRecord
    from chainrule.masked.contract import MaskedModel
    from chainrule.text.corpus import Corpus

_AT_ONCE = 100  # lines; to write each by itself takes longer than to score it
_HEADINGS = ("id", "bits_per_token", "bits", "tokens", "perplexity", "text")


@click.command()
@model_argument
@click.argument("text", metavar="[TEXT|-]", default="-", type=click.Path())
@click.option("--worst", type=click.IntRange(1), metavar="N", help="Only the N most surprising records, in order.")
@click.option(
    "--by",
    type=click.Choice(["mean", "total"]),
    default="mean",
    show_default=True,
    help="What --worst goes by: the mean surprisal of the tokens, or that of the whole record.",
)
@click.option("--per-line", is_flag=True, help="Each line is a record, also in .jsonl, .csv, .tsv and .parquet.")
@click.option("--per-token", is_flag=True, help="A line per token instead of per record.")
@click.option("--id-field", metavar="NAME", help="The field that names a record. [default: its line or row]")
@corpus_options
@device_option
@precision_option
@executor_options
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV, with a first row of names.")
@json_option
def score(folder: str, text: str, device: str, dtype: str, **options: Any) -> None:
    """Score each record of TEXT with the model in DIR.

    A record is a line of a text file, an object of a .jsonl file, a row of a .csv, .tsv or .parquet file. Of each:
    its id (or line), its surprisal in bits as a mean over tokens and in total, its tokens (a line's end is one),
    its perplexity, and the text. TEXT is a file, a folder, a pattern in quotes, or - for standard input.

    On a terminal that is a table, with the text cut to fit. Elsewhere the columns are separated by tabs, a line end
    in the text is written \\n, and what is impossible is inf. With --json: an object per line.
    With --per-token: ln p and the token, with an empty line after each record.

    Of a masked model: pseudo-log-likelihoods, each token predicted from those on both sides, in nats.

    \b
    chainrule score model app.log --worst 20
    chainrule score model reviews.jsonl --field body --id-field id --csv
    """
    from chainrule.contract.kinds import Stored, Workers, find_kind, load
    from chainrule.evaluation.records import expect_lines

    if options["as_csv"] and (options["as_json"] or options["per_token"]):
        raise click.UsageError("choose one of --csv, --json and --per-token (which goes with --json)")
    lm = load(folder, device=device, dtype=dtype, tasks=["language", "masked"])
    note_slow_precision(dtype, lm)
    if text == "-" and sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)
    corpus = open_corpus(options, text)
    if find_kind(lm.kind).task == "masked":
        from chainrule.cli.verbs.pseudo import score_masked

        if options["executor"] != "embedded":
            raise click.UsageError("a masked model is scored by this process: leave out --executor")
        score_masked(cast("MaskedModel", lm), corpus, options)
        return
    if options["executor"] != "embedded":
        expect_lines(lm)  # before an executor is started, which takes seconds
    with opened_executor(options) as executor:
        stored = Stored(Path(folder).absolute(), device, dtype)
        _print_records(lm, corpus, options, Workers(executor, stored) if executor.is_remote else None)


def _print_records(lm: LanguageModel, corpus: Corpus, options: dict[str, Any], workers: Workers | None) -> None:
    from chainrule.cli.output.progress import terminal_progress

    every = iter(_records(lm, corpus, options, workers))
    first = list(islice(every, 1))
    records = chain(first, every)
    if sys.stdout.isatty() and not (options["as_json"] or options["as_csv"] or options["per_token"]):
        _print_table(records, normalised=lm.normalised)
    else:
        lines = _lines(lm, records, options)
        while some := list(islice(lines, _AT_ONCE)):
            echo("".join(some), nl=False)
    if not first:
        terminal_progress().note(f"{corpus.name} is empty")
    corpus.note_losses(terminal_progress())


def _records(
    lm: LanguageModel, corpus: Corpus, options: dict[str, Any], workers: Workers | None
) -> Iterable[ScoredRecord]:
    """The records to show, with their scores."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.evaluation.records import most_surprising, score_records

    if options["worst"] is None:
        return score_records(lm, corpus, per_line=options["per_line"], workers=workers)
    return most_surprising(
        lm,
        corpus,
        options["worst"],
        by=options["by"],
        per_line=options["per_line"],
        progress=terminal_progress(),
        workers=workers,
    )


def _lines(lm: LanguageModel, records: Iterable[ScoredRecord], options: dict[str, Any]) -> Iterator[str]:
    """The lines that programs read, each with its end; those of a CSV record may be several."""
    from chainrule.folder import to_json

    if options["as_json"]:
        for record in records:
            yield to_json(_described(lm, record, per_token=options["per_token"])) + "\n"
    elif options["per_token"]:
        for record in records:
            for token, log_prob in zip(record.ids, record.log_probs, strict=True):
                yield f"{log_prob:.6f}\t{_shown(lm.tokenizer.token(token))}\n"
            yield "\n"
    elif options["as_csv"]:
        yield _csv_row(_HEADINGS)
        for record in records:
            yield _csv_row(_columns(record))
    else:
        for record in records:
            *figures, words = _columns(record)
            yield "\t".join([*figures, words.replace("\n", "\\n")]) + "\n"


def _described(lm: LanguageModel, record: ScoredRecord, *, per_token: bool) -> dict[str, Any]:
    described: dict[str, Any] = {
        "id": record.id,
        "text": record.text,
        "log_prob": record.log_prob,
        "bits": record.bits,
        "bits_per_token": record.bits_per_token,
        "tokens": len(record.ids),
        "perplexity": record.perplexity,
    }
    if per_token:
        described["per_token"] = [
            {"token": lm.tokenizer.token(token), "id": token, "log_prob": log_prob}
            for token, log_prob in zip(record.ids, record.log_probs, strict=True)
        ]
    return described


def _columns(record: ScoredRecord) -> list[str]:
    """The columns of a record, for programs."""
    figures = f"{record.bits_per_token:.4f}", f"{record.bits:.4f}", str(len(record.ids)), f"{record.perplexity:.4f}"
    return [str(record.id), *figures, record.text]


def _csv_row(columns: Sequence[str]) -> str:
    row = io.StringIO()
    csv.writer(row, lineterminator="\n").writerow(columns)
    return row.getvalue()


# -- the table on a terminal ------------------------------------------------------------------------------

_FIGURES = (("mean", 6), ("total", 7), ("tokens", 6), ("perplexity", 10))
"""The headings of the figures, and their widths."""
_GAP = "  "
_MEASURED = 1000  # records whose ids decide how wide the first column is
_LONGEST_ID = 24
_SHORTEST_TEXT = 20
_LARGE = 1e7  # figures from here on are rounded to two digits, and a power of ten


def _print_table(records: Iterable[ScoredRecord], *, normalised: bool) -> None:
    """Print a table as the records come; a narrow one leaves out the perplexity, which is 2^mean."""
    screen = console()
    every = iter(records)
    first = list(islice(every, _MEASURED))
    width = screen.width - 1  # some terminals wrap after the last column
    most = max((len(str(record.id)) for record in first), default=2)
    longest_id = max(min(most, _LONGEST_ID, width // 4), 2)
    figures = _FIGURES if _room(width, longest_id, _FIGURES) >= _SHORTEST_TEXT else _FIGURES[:-1]
    room = max(_room(width, longest_id, figures), 1)
    echo("surprisal in bits: the mean over the tokens, and in total")
    heading = _GAP.join(["id".ljust(longest_id), *(name.rjust(size) for name, size in figures), "text"])
    echo(heading)
    echo("─" * min(width, len(heading) + room - len("text")))
    for record in chain(first, every):
        echo(_table_row(record, longest_id, figures, room))
    if not normalised:
        say(screen, SCORES)


def _room(width: int, longest_id: int, figures: tuple[tuple[str, int], ...]) -> int:
    """The columns that are left for the text."""
    return width - longest_id - sum(size + len(_GAP) for _, size in figures) - len(_GAP)


def _table_row(record: ScoredRecord, longest_id: int, figures: tuple[tuple[str, int], ...], room: int) -> str:
    from rich.cells import set_cell_size

    name = set_cell_size(cut(_printable(str(record.id)), longest_id, keep="end"), longest_id)
    values = record.bits_per_token, record.bits, len(record.ids), record.perplexity
    columns = (_figure(value).rjust(size) for value, (_, size) in zip(values, figures, strict=False))
    return _GAP.join([name, *columns, cut(_printable(record.text), room)]).rstrip()


def _figure(value: float) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value:.1e}" if _LARGE <= value < float("inf") else number(value, 4)


def _printable(text: str) -> str:
    """A text on one line, without what a terminal would take for a command."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _shown(token: str) -> str:
    """A token as printed on one line: escaped if it has characters that cannot be printed."""
    return token if token.isprintable() else json.dumps(token, ensure_ascii=False)[1:-1]
