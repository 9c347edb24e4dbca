"""`chainrule predict`: suggestions as one types, and the keystrokes that they save."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option, note_slow_precision, precision_option
from chainrule.cli.options.runs import json_option
from chainrule.cli.options.texts import corpus_options, open_corpus, standard_input
from chainrule.cli.output.lines import WAITING, console, echo, print_json
from chainrule.cli.output.tables import results_table, show_table
from chainrule.cli.verbs.suggest import as_record

if TYPE_CHECKING:
    from chainrule.contract.lm import LanguageModel


@click.command()
@click.argument("folders", metavar="DIR...", nargs=-1, required=True, type=click.Path())
@click.option(
    "-k",
    "count",
    type=click.IntRange(1, 9),
    default=3,
    show_default=True,
    metavar="N",
    help="How many words are suggested at a time.",
)
@click.option("--evaluate", metavar="FILE", type=click.Path(), help="Measure the keystrokes saved in typing FILE.")
@click.option("--lines", type=click.IntRange(1), metavar="N", help="With --evaluate: only the first N lines.")
@corpus_options
@device_option
@precision_option
@json_option
def predict(
    folders: tuple[str, ...],
    count: int,
    evaluate: str | None,
    lines: int | None,
    device: str,
    dtype: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Suggest words as you type, with the model in DIR.

    On a terminal: Tab takes the suggestion that is marked, a digit the one of that number (Ctrl-V types it), arrows
    up and down move the mark, Enter ends the line and prints it, Ctrl-D or Ctrl-C ends. Elsewhere: the suggestions
    for each line of standard input, separated by tabs.

    With --evaluate: how many keystrokes the suggestions of each model save, 1 - keys / characters, to someone who
    types TEXT and takes every suggestion that is right (docs/tasks.md).

    \b
    chainrule predict model
    chainrule predict model other --evaluate test.txt --lines 200
    """
    from chainrule.contract.kinds import load
    from chainrule.tasks.prediction import Remembered

    if evaluate is not None:
        _evaluate(folders, evaluate, count, lines, device, dtype, as_json=as_json, options=options)
        return
    if len(folders) > 1:
        raise click.UsageError("one model at a time suggests words; several are for --evaluate TEXT")
    if lines is not None or options["fields"] or options["files"]:
        raise click.UsageError("--lines, --field and --files go with --evaluate TEXT")
    lm = load(folders[0], device=device, dtype=dtype, tasks=["language"])
    note_slow_precision(dtype, lm)
    remembered = Remembered(lm)
    if sys.stdin.isatty() and sys.stderr.isatty() and not as_json:
        _type(remembered, count)
    else:
        _answer(remembered, count, as_json=as_json)


def _type(lm: LanguageModel, count: int) -> None:
    """Let someone type lines on the terminal; what they typed is standard output."""
    from chainrule.cli.output.typing import typed_lines
    from chainrule.contract.lm import prepare
    from chainrule.decode.suggest import suggest

    prepare(lm)
    WAITING.end()
    echo("Tab or 1-9 takes a word, arrows choose, Enter ends the line, Ctrl-D quits", err=True)
    keys = characters = 0
    for line in typed_lines(lambda text: [(one.word, one.completion) for one in suggest(lm, text, count)]):
        text = line.text.rstrip(" ")
        sys.stdout.write(text + ("\r\n" if sys.stdout.isatty() else "\n"))
        sys.stdout.flush()
        keys, characters = keys + line.keys, characters + len(text) + 1
    if characters:
        echo(f"{keys:,} keys for {characters:,} characters: {1 - keys / characters:.1%} saved", err=True)


def _answer(lm: LanguageModel, count: int, *, as_json: bool) -> None:
    """Suggest words for each line of standard input."""
    from chainrule.decode.suggest import suggest
    from chainrule.folder import to_json

    for text in standard_input():
        found = suggest(lm, text, count)
        if as_json:
            echo(to_json({"text": text, "suggestions": [as_record(one) for one in found]}))
        else:
            echo("\t".join(one.word for one in found))


def _evaluate(
    folders: tuple[str, ...],
    text: str,
    count: int,
    lines: int | None,
    device: str,
    dtype: str,
    *,
    as_json: bool,
    options: dict[str, Any],
) -> None:
    """Print the keystrokes that each model saves."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import load
    from chainrule.tasks.prediction import keystrokes

    corpus, results = open_corpus(options, text), []
    for folder in folders:
        lm = load(folder, device=device, dtype=dtype, tasks=["language"])
        results.append((folder, keystrokes(lm, corpus, count, most_lines=lines, progress=terminal_progress())))
    if as_json:
        objects = [{"folder": folder, **found.to_json()} for folder, found in results]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    table = results_table("model", "saved", "keys", "characters", "taken", "without context", "at most")
    for folder, found in results:
        counts = f"{found.keys:,}", f"{found.characters:,}", f"{found.taken:,}"
        table.add_row(folder, f"{found.saved:.1%}", *counts, f"{found.baseline:.1%}", f"{found.limit:.1%}")
    show_table(console(), table)
