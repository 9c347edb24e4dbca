"""`chainrule anomalies`: the least likely lines of a log."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import (
    device_option,
    model_argument,
    note_slow_precision,
    precision_option,
)
from chainrule.cli.options.runs import json_option
from chainrule.cli.options.texts import corpus_options, open_corpus
from chainrule.cli.output.lines import console, echo, print_json
from chainrule.cli.output.words import number

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.contract.lm import LanguageModel
    from chainrule.tasks.anomaly import Anomaly

_TOP = 20
_STYLES = ((3.0, "bold red"), (1.5, "yellow"))
"""How a token is shown that is at least so many times as surprising as the mean of its line."""
_LEAST = 4.0  # bits of a token that is marked
_WAIT = 0.2  # seconds between two looks at a log that grows


@click.command(short_help="Show the lines of LOG that the model finds least likely.")
@model_argument
@click.argument("log", metavar="[LOG|-]", default="-", type=click.Path())
@click.option("--top", type=click.IntRange(1), metavar="N", help=f"The N most surprising lines. [default: {_TOP}]")
@click.option(
    "--threshold",
    type=float,
    metavar="BITS",
    help="Only lines of BITS or more; without --top all of them, in their order, as they come.",
)
@click.option(
    "--by",
    type=click.Choice(["mean", "total"]),
    default="mean",
    show_default=True,
    help="The bits of a line: the mean of its tokens, or their sum.",
)
@click.option("--follow", is_flag=True, help="Go on as LOG grows, as tail -F does. Ctrl-C ends it.")
@click.option(
    "--labels",
    metavar="NAME",
    help="The field that says which records are anomalies: measure how well they are found.",
)
@click.option("--id-field", metavar="NAME", help="The field that names a record. [default: its line or row]")
@corpus_options
@device_option
@precision_option
@json_option
def anomalies(
    folder: str,
    log: str,
    top: int | None,
    threshold: float | None,
    by: Any,
    follow: bool,
    labels: str | None,
    device: str,
    dtype: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Show the lines of LOG that the model in DIR finds least likely.

    A line is a line of a text file, or a record of a .jsonl, .csv, .tsv or .parquet file. The most surprising come
    first; tokens that surprise most are coloured on a terminal, and stand in «» elsewhere. With --json: an object
    per line, with the bits of each token and where it is in the text, in characters.

    With --follow, what LOG has already is ranked first; then lines are shown as they come, if they reach the
    threshold, or without one, if they are among the N most surprising so far. Of a log that is rotated, or cut,
    the new one is read from its start.

    \b
    chainrule anomalies usual app.log --top 10
    chainrule anomalies usual /var/log/app.log --follow --threshold 9
    chainrule anomalies usual labelled.jsonl --field line --labels is_anomaly
    """
    from chainrule.contract.kinds import load

    if follow and (labels or log == "-"):
        raise click.UsageError("--follow reads a log that grows: a file of text, without --labels")
    lm = load(folder, device=device, dtype=dtype, tasks=["language"])
    note_slow_precision(dtype, lm)
    if threshold is None and top is None:
        top = _TOP
    if labels is not None:
        _measure(lm, log, labels, by, as_json=as_json, options=options)
    elif follow:
        _follow(lm, log, top, threshold, by, as_json=as_json, options=options)
    else:
        _rank(lm, log, top, threshold, by, as_json=as_json, options=options)


def _rank(
    lm: LanguageModel,
    log: str,
    top: int | None,
    threshold: float | None,
    by: Any,
    *,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.lm import tokens_at_once
    from chainrule.tasks import anomaly as task
    from chainrule.text.batches import record_batches

    if log == "-" and sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)
    corpus, screen = open_corpus(options, log), console()
    if top is not None:
        found = task.anomalies(lm, corpus, top, threshold=threshold, by=by, progress=terminal_progress())
        _show(screen, found, as_json=as_json)
    else:
        batches = record_batches(corpus, tokens_at_once(lm))
        for batch in task.scored_batches(lm, batches, is_one_file=len(corpus.paths) <= 1):
            _show(screen, task.Ranking(lm, None, threshold, by).add(batch), as_json=as_json)
    corpus.note_losses(terminal_progress())


def _follow(
    lm: LanguageModel,
    log: str,
    top: int | None,
    threshold: float | None,
    by: Any,
    *,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    from chainrule.errors import CorpusError
    from chainrule.tasks import anomaly as task
    from chainrule.text.files import form_of

    path, screen = Path(log), console()
    if not path.is_file() or form_of(path) != "text" or path.suffix.lower() in (".gz", ".zst"):
        raise CorpusError(f"{path}: --follow reads a file of plain text, which is there")
    ranking = task.Ranking(lm, top, threshold, by)
    is_ranked = False  # whether what was there at first has been shown

    def wait() -> bool:
        nonlocal is_ranked
        if not is_ranked and top is not None:
            _show(screen, ranking.ranked(), as_json=as_json)
            sys.stdout.flush()
        is_ranked = True
        time.sleep(_WAIT)
        return True

    batches = task.follow(path, wait=wait, encoding_errors=options["encoding_errors"])
    for batch in task.scored_batches(lm, batches, ahead=False):
        if top is None:  # nothing is ranked, so nothing is kept
            ranking = task.Ranking(lm, None, threshold, by)
        added = ranking.add(batch)
        if is_ranked or top is None:
            _show(screen, added, as_json=as_json)
            sys.stdout.flush()


def _measure(lm: LanguageModel, log: str, labels: str, by: Any, *, as_json: bool, options: dict[str, Any]) -> None:
    from chainrule.tasks.anomaly import detect

    found = detect(lm, open_corpus(options, log), labels, by=by)
    if as_json:
        print_json(found.to_json())
        return
    echo(
        f"{found.anomalies:,} anomalies among {found.records:,} records: average precision "
        f"{found.average_precision:.3f} ({found.baseline:.3f} in a random order), AUROC {found.auroc:.3f} (0.5)"
    )


def _show(screen: Console, found: Iterable[Anomaly], *, as_json: bool) -> None:
    from chainrule.folder import to_json

    for anomaly in found:
        if as_json:
            echo(to_json(anomaly.to_json()))
        elif screen.is_terminal:
            from rich.text import Text

            line = Text(f"{anomaly.id}  {number(anomaly.bits, 3)} bits  ", style="dim")
            body = Text(_on_one_line(anomaly.text), style="not dim")
            for start, end, ratio in _marks(anomaly):
                body.stylize(next(style for least, style in _STYLES if ratio >= least), start, end)
            line.append_text(body)
            screen.print(line, soft_wrap=True)
        else:
            echo(f"{anomaly.id}\t{anomaly.bits:.4f}\t{_marked(anomaly)}")


def _marks(anomaly: Anomaly) -> list[tuple[int, int, float]]:
    """The places of the tokens that are marked, and how many times as surprising as the mean each is."""
    mean = sum(token.bits for token in anomaly.tokens) / len(anomaly.tokens)
    least, most = min(ratio for ratio, _ in _STYLES), max(ratio for ratio, _ in _STYLES)
    ratios = [most if math.isinf(token.bits) else token.bits / mean for token in anomaly.tokens]
    return [
        (token.start, token.end, ratio)
        for token, ratio in zip(anomaly.tokens, ratios, strict=True)
        if token.end > token.start and token.bits >= _LEAST and ratio >= least
    ]


def _marked(anomaly: Anomaly) -> str:
    """The text on one line, with « and » around what surprises most."""
    text, place = "", 0
    for start, end, _ in _marks(anomaly):
        text += anomaly.text[place:start] + "«" + anomaly.text[start:end] + "»"
        place = end
    return (text + anomaly.text[place:]).replace("»«", "").replace("\n", "\\n").replace("\t", " ")


def _on_one_line(text: str) -> str:
    """A text without what a terminal would take for a command, character by character."""
    return "".join(character if character.isprintable() else " " for character in text)
