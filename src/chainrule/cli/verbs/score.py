"""`chainrule score`: the surprisal of each record, or each token, of a text."""

from __future__ import annotations

import csv
import heapq
import json
import math
import sys
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from operator import attrgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, id_field, open_text, text_argument
from chainrule.cli.output import console, cut, echo, number, printable, say, terminal_progress

if TYPE_CHECKING:
    from chainrule.evaluation.records import ScoredRecord

_AT_ONCE = 100  # lines; to write each by itself takes longer than to score it

_SURPRISAL = ("bits_per_token", "bits", "perplexity")
"""The figures of a record: the mean over its tokens, the total, and the perplexity."""
_PSEUDO = ("pll_per_token", "pll", "pseudo_perplexity")
"""The same by a masked model."""


@click.command()
@opt.model
@text_argument
@opt.options("""
    --worst N : 1..           Only the N most surprising records, in order.
    --by [mean|total] = mean  What --worst goes by: the mean surprisal of the tokens, or that of the whole record.
    --per-line                Each line is a record, also in .jsonl, .csv, .tsv and .parquet.
    --per-token               A line per token instead of per record.
""")
@opt.group(id_field, corpus_options, opt.compute, opt.executor_options)
@opt.options("--csv as as_csv  Print CSV, with a first row of names.")
@opt.json
def score(folder: str, text: str, **options: Any) -> None:
    """Score each record of TEXT with the model in DIR.

    A record is a line of a text file, an object of a .jsonl file, a row of a .csv, .tsv or .parquet file. Of each:
    its id (or line), its surprisal in bits as a mean over tokens and in total, its tokens (a line's end is one),
    its perplexity, and the text. TEXT is a file, a folder, a pattern in quotes, a text of several words
    itself, or - for standard input.

    On a terminal that is a table, with the text cut to fit. Elsewhere the columns are separated by tabs, the first
    line has their names, a line end in the text is written \\n, and what is impossible is inf. With --json: an
    object per line.
    With --per-token: ln p and the token, with an empty line after each record. Of an n-gram model also the length
    of the n-gram that gave ln p: it is shorter than the model's order where the longer one was never seen.

    Of a masked model: pseudo-log-likelihoods, each token predicted from those on both sides, in nats.

    \b
    chainrule score model "to be or not to be"
    chainrule score model app.log --worst 20
    chainrule score model reviews.jsonl --field body --id-field id --csv
    """
    from chainrule.evaluation.pseudo import CAVEAT, pseudo_records
    from chainrule.evaluation.records import expect_lines, most_surprising, score_records
    from chainrule.masked.contract import MaskedModel

    if options["as_csv"] and (options["as_json"] or options["per_token"]):
        raise click.UsageError("choose one of --csv, --json and --per-token (which goes with --json)")
    lm: Any = opt.load_model(folder, options, "language", "masked")
    corpus = open_text(options, text)
    if isinstance(lm, MaskedModel):
        if options["executor"] != "embedded":
            raise click.UsageError("a masked model is scored by this process: leave out --executor")
        pseudo = pseudo_records(lm, corpus, per_line=options["per_line"])
        if options["worst"] is not None:
            by = attrgetter(_PSEUDO[1] if options["by"] == "total" else _PSEUDO[0])
            pseudo = iter(heapq.nsmallest(options["worst"], pseudo, key=by))
        _print_lines(lm, pseudo, _PSEUDO, options)
        if not options["as_json"]:
            terminal_progress().note(CAVEAT)
        return
    if options["executor"] != "embedded":
        expect_lines(lm)  # before an executor is started, which takes seconds
    with opt.opened_workers(folder, options) as workers:
        how: Any = {"per_line": options["per_line"], "workers": workers}
        records: Iterable[ScoredRecord]
        if options["worst"] is None:
            records = score_records(lm, corpus, **how)
        else:
            how |= {"by": options["by"], "progress": terminal_progress()}
            records = most_surprising(lm, corpus, options["worst"], **how)
        _print_records(lm, corpus, records, options)


def _print_records(
    lm: cr.LanguageModel, corpus: cr.Corpus, records: Iterable[ScoredRecord], options: dict[str, Any]
) -> None:
    every = iter(records)
    first = list(islice(every, 1))
    records, sums = chain(first, every), [0.0, 0]
    if options["per_token"] and lm.normalised:
        records = _added_up(records, sums)
    if sys.stdout.isatty() and not (options["as_json"] or options["as_csv"] or options["per_token"]):
        _print_table(records, normalised=lm.normalised)
    else:
        _print_lines(lm, records, _SURPRISAL, options)
    if not first:
        terminal_progress().note(f"{corpus.name} is empty")
    elif sums[1] and not options["as_json"]:
        terminal_progress().note(_product(sums[0], int(sums[1])))
    corpus.note_losses(terminal_progress())


def _added_up(records: Iterable[ScoredRecord], sums: list[float]) -> Iterator[ScoredRecord]:
    """Pass records on, and add up ln p and the number of tokens in `sums`."""
    for record in records:
        sums[0] += record.log_prob
        sums[1] += len(record.ids)
        yield record


def _product(log_prob: float, tokens: int) -> str:
    """Say what the product of the probabilities is, and where a float cannot hold it."""
    said = f"{tokens:,} tokens (</s> is one, <s> is none): ln p = {log_prob:,.6g}"
    if log_prob == -math.inf or (p := math.exp(log_prob)) > 0:
        return f"{said}, p = {0 if log_prob == -math.inf else p:.6g}"
    return f"{said}; as a float p is 0.0, too small to hold, which is why logarithms are added"


def _print_lines(model: Any, records: Iterable[Any], figures: tuple[str, ...], options: dict[str, Any]) -> None:
    """Print the lines that programs read, many at a time."""
    lines = _lines(model, records, figures, options)
    while some := list(islice(lines, _AT_ONCE)):
        echo("".join(some), nl=False)


def _lines(model: Any, records: Iterable[Any], figures: tuple[str, ...], options: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of records, each with its end; a CSV record may have several."""
    from chainrule.folder import to_json

    per_token, csv_row = options["per_token"], csv.writer(SimpleNamespace(write=str), lineterminator="\n").writerow
    names = ["id", *figures[:2], "tokens", figures[2], "text"]
    if options["as_csv"]:
        yield csv_row(names)
    elif not options["as_json"]:
        columns = ["ln_p", "token", *(["ngram"] if _lengths_of(model) else [])] if per_token else names
        yield "\t".join(columns) + "\n"
    for record in records:
        if options["as_json"]:
            tokens = {"per_token": [*_tokens(model, record)]} if per_token else {}
            yield to_json(_described(record, figures) | tokens) + "\n"
        elif per_token:
            for token in _tokens(model, record):
                length = f"\t{token['ngram']}" if "ngram" in token else ""
                shown = token["token"]
                if not shown.isprintable():  # on one line
                    shown = json.dumps(shown, ensure_ascii=False)[1:-1]
                yield f"{token['log_prob']:.6f}\t{shown}{length}\n"
            yield "\n"
        elif options["as_csv"]:
            yield csv_row(_columns(record, figures))
        else:
            *columns, words = _columns(record, figures)
            yield "\t".join([*columns, words.replace("\n", "\\n")]) + "\n"


def _columns(record: Any, figures: tuple[str, ...]) -> list[str]:
    mean, total, perplexity = (f"{getattr(record, name):.4f}" for name in figures)
    return [str(record.id), mean, total, str(len(record.ids)), perplexity, record.text]


def _described(record: Any, figures: tuple[str, ...]) -> dict[str, Any]:
    mean, total, perplexity = ({name: getattr(record, name)} for name in figures)
    first = {"log_prob": record.log_prob} if figures is _SURPRISAL else {}
    tokens = {"tokens": len(record.ids)}
    return {"id": record.id, "text": record.text} | first | total | mean | tokens | perplexity


def _tokens(model: Any, record: Any) -> Iterator[dict[str, Any]]:
    import numpy as np

    lengths: list[Any] = [None] * len(record.ids)
    if (lengths_of := _lengths_of(model)) is not None:
        ids = np.asarray(record.ids, dtype=np.int64)
        lengths = lengths_of(ids, *model.bounds(ids)).tolist()
    for token, log_prob, length in zip(record.ids, record.log_probs, lengths, strict=True):
        found = {"token": model.tokenizer.token(token), "id": token, "log_prob": log_prob}
        yield found if length is None else found | {"ngram": length}


def _lengths_of(model: Any) -> Any:
    """Return the function that finds the n-grams of a model; None if it has none."""
    from chainrule.contract.lm import offered

    return offered(model, "ngram_lengths") if isinstance(model, cr.LanguageModel) else None


# -- the table on a terminal ------------------------------------------------------------------------------

_WIDTHS = (("mean", 6), ("total", 7), ("tokens", 6), ("perplexity", 10))
"""The headings of the figures, and their widths."""
_GAP = "  "
_MEASURED = 1000  # records whose ids decide how wide the first column is
_LONGEST_ID = 24
_SHORTEST_TEXT = 20
_LARGE = 1e7  # figures from here on are rounded to two digits, and a power of ten


def _print_table(records: Iterable[ScoredRecord], *, normalised: bool) -> None:
    """Print a table as the records come; a narrow one leaves out the perplexity, which is 2^mean."""
    from rich.cells import set_cell_size

    screen, every = console(), iter(records)
    first = list(islice(every, _MEASURED))
    width = screen.width - 1  # some terminals wrap after the last column
    most = max((len(str(record.id)) for record in first), default=2)
    longest_id = max(min(most, _LONGEST_ID, width // 4), 2)
    figures = list(_WIDTHS)
    room = width - longest_id - sum(size + len(_GAP) for _, size in figures) - len(_GAP)
    if room < _SHORTEST_TEXT:
        room = max(room + figures.pop()[1] + len(_GAP), 1)
    echo("surprisal in bits: the mean over the tokens, and in total")
    heading = _GAP.join(["id".ljust(longest_id), *(name.rjust(size) for name, size in figures), "text"])
    echo(heading)
    echo("─" * min(width, len(heading) + room - len("text")))
    for record in chain(first, every):
        mean, total, perplexity = (
            f"{value:.1e}" if _LARGE <= value < math.inf else number(value, 4)
            for value in (record.bits_per_token, record.bits, record.perplexity)
        )
        shown = mean, total, str(len(record.ids)), perplexity
        columns = (text.rjust(size) for text, (_, size) in zip(shown, figures, strict=False))
        name = set_cell_size(cut(_words(str(record.id)), longest_id, keep="end"), longest_id)
        echo(_GAP.join([name, *columns, cut(_words(record.text), room)]).rstrip())
    if not normalised:
        from chainrule.evaluation.measure import SCORES

        say(screen, SCORES)


def _words(text: str) -> str:
    return " ".join(printable(text).split())
