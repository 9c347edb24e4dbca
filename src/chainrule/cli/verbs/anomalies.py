"""`chainrule anomalies`: the least likely lines of a log."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, id_field, open_corpus
from chainrule.cli.output import console, echo, echo_json, emit, number, printable, terminal_progress
from chainrule.errors import CorpusError

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.tasks.anomaly import Ranking, SurprisingWord

_TOP = 20
_STYLES = ((16.0, "bold red"), (10.0, "yellow"))
"""The least bits of a word for each style: 10 bits are odds of one in a thousand."""
_WAIT = 0.2  # seconds between two looks at a log that grows


@click.command(short_help="Show the lines of LOG that the model finds least likely.")
@opt.model
@click.argument("log", metavar="[LOG|-]", default="-", type=click.Path())
@opt.options(f"""
    --top N : 1..             The N most surprising lines. [default: {_TOP}]
    --threshold BITS : float  Only lines of BITS or more; without --top all of them, in their order, as they come.
    --by [mean|total] = mean  The bits of a line: the mean of its tokens, or their sum.
    --follow                  Go on as LOG grows, as tail -F does. Ctrl-C ends it.
    --labels NAME             The field that says which records are anomalies: measure how well they are found.
""")
@opt.group(id_field, corpus_options, opt.compute, opt.json)
def anomalies(folder: str, log: str, follow: bool, labels: str | None, as_json: bool, **options: Any) -> None:
    """Show the lines of LOG that the model in DIR finds least likely.

    A line is a line of a text file, or a record of a .jsonl, .csv, .tsv or .parquet file. The most surprising come
    first; words of 10 bits or more are coloured on a terminal, and stand in «» elsewhere. With --json: an object
    per line, with the bits of each token and where it is in the text, in characters. A model that was trained with
    --mask reads times, numbers and addresses as zeros here too. A note says if the model does not know most words.

    With --follow, what LOG has already is ranked first; then lines are shown as they come, if they reach the
    threshold, or without one, if they are among the N most surprising so far. A log that is rotated or cut is read
    from the start of the new file. While it follows, bytes that are not UTF-8 are replaced, unless
    --encoding-errors strict is given.

    \b
    chainrule anomalies usual app.log --top 10
    chainrule anomalies usual /var/log/app.log --follow --threshold 9
    chainrule anomalies usual labelled.jsonl --field line --labels is_anomaly
    """
    from chainrule.tasks.anomaly import Ranking, detect

    if follow and (labels or log == "-"):
        raise click.UsageError("--follow reads a log that grows: a file of text, without --labels")
    lm = opt.load_model(folder, options, "language")
    by, top, threshold = options["by"], options["top"], options["threshold"]
    ranking = Ranking(lm, _TOP if top is None and threshold is None else top, threshold, by)
    if labels is not None:
        found = detect(lm, open_corpus(options, log), labels, by=by, progress=terminal_progress())
        emit(
            as_json,
            found.to_json(),
            f"{found.anomalies:,} anomalies among {found.records:,} records: average precision "
            f"{found.average_precision:.3f} ({found.baseline:.3f} in a random order), "
            f"AUROC {found.auroc:.3f} (0.5)",
        )
    elif follow:
        is_default = click.get_current_context().get_parameter_source("encoding_errors") is ParameterSource.DEFAULT
        _follow(ranking, Path(log), "replace" if is_default else options["encoding_errors"], as_json)
    else:
        _rank(ranking, open_corpus(options, log), as_json)


def _rank(ranking: Ranking, corpus: cr.Corpus, as_json: bool) -> None:
    """Show the most surprising lines of a corpus, or all that reach the threshold."""
    from chainrule.contract.lm import tokens_at_once
    from chainrule.tasks import anomaly as task
    from chainrule.text.batches import record_batches

    screen, lm, progress = console(), ranking.lm, terminal_progress()
    if ranking.top is not None:
        how: Any = {"threshold": ranking.threshold, "by": ranking.by, "progress": progress}
        _show(screen, task.anomalies(lm, corpus, ranking.top, **how), as_json=as_json)
    else:
        unknown = task.UnknownTokens(lm)
        batches = record_batches(corpus, tokens_at_once(lm))
        for batch in unknown.counted(task.scored_batches(lm, batches, is_one_file=len(corpus.paths) <= 1)):
            _show(screen, _unranked(ranking).add(batch), as_json=as_json)
        unknown.note(progress)
    corpus.note_losses(progress)


def _unranked(ranking: Ranking) -> Ranking:
    """Return a ranking without records, for lines that are shown as they come: nothing has to be kept."""
    from chainrule.tasks.anomaly import Ranking

    return Ranking(ranking.lm, None, ranking.threshold, ranking.by)


def _follow(ranking: Ranking, path: Path, encoding_errors: Any, as_json: bool) -> None:
    """Show the lines of a log as it grows; those that it has already are ranked first."""
    from chainrule.tasks import anomaly as task
    from chainrule.text.files import Cleaning, form_of

    cleaning, progress, unknown = Cleaning(encoding_errors), terminal_progress(), task.UnknownTokens(ranking.lm)
    screen, is_ranked = console(), ranking.top is None  # or once the lines that were there at first are shown
    is_old = True  # until all lines that were there at first are read
    if not path.is_file() or form_of(path) != "text" or path.suffix.lower() in (".gz", ".zst"):
        raise CorpusError(f"{path}: --follow reads a file of plain text, which is there")

    def wait() -> bool:
        nonlocal is_ranked, is_old
        if not is_ranked:
            _show(screen, ranking.ranked(), as_json=as_json)
            sys.stdout.flush()
        if is_old:
            unknown.note(progress)
        is_ranked, is_old = True, False
        time.sleep(_WAIT)
        return True

    batches = task.follow(path, wait=wait, cleaning=cleaning)
    for batch in unknown.counted(task.scored_batches(ranking.lm, batches, ahead=False)):
        if cleaning.replaced and not cleaning.noted[0]:
            progress.note(f"{path}: not UTF-8, replaced by U+FFFD")
            cleaning.noted = cleaning.replaced, 0
        added = (_unranked(ranking) if ranking.top is None else ranking).add(batch)
        if is_ranked:
            _show(screen, added, as_json=as_json)
            sys.stdout.flush()


def _show(screen: Console, found: Iterable[cr.tasks.Anomaly], *, as_json: bool) -> None:
    for anomaly in found:
        if as_json:
            echo_json(anomaly.to_json())
        elif screen.is_terminal:
            from rich.text import Text

            line = Text(f"{anomaly.id}  {number(anomaly.bits, 3)} bits  ", style="dim")
            body = Text(printable(anomaly.text), style="not dim")
            for start, end, bits in _marks(anomaly):
                body.stylize(next(style for least, style in _STYLES if bits >= least), start, end)
            line.append_text(body)
            screen.print(line, soft_wrap=True)
        else:
            echo(f"{anomaly.id}\t{anomaly.bits:.4f}\t{_marked(anomaly)}")


def _marks(anomaly: cr.tasks.Anomaly) -> list[SurprisingWord]:
    """Return the words to mark: those that are unlikely where they stand, whatever else the line has."""
    least = min(bits for bits, _ in _STYLES)
    return [word for word in anomaly.words() if word.bits >= least]


def _marked(anomaly: cr.tasks.Anomaly) -> str:
    """Return the text on one line, with « and » around the words that surprise."""
    text, place = "", 0
    for start, end, _ in _marks(anomaly):
        text += anomaly.text[place:start] + "«" + anomaly.text[start:end] + "»"
        place = end
    return (text + anomaly.text[place:]).replace("» «", " ").replace("\n", "\\n").replace("\t", " ")
