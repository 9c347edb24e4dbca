"""`chainrule suggest`: the words that complete a text or follow it; `chainrule predict`: the same as one types."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli import output
from chainrule.cli.options.texts import corpus_options, lines_of_corpus, open_corpus, standard_input
from chainrule.cli.output import console, echo, echo_json, number, print_table

if TYPE_CHECKING:
    from rich.console import Console

_COLUMNS = (
    "saved: 1 - keys / characters, a line end being one; taken: keys that took a suggestion; without context: "
    "saved if each word is suggested as if it began a line; at most: saved if the right word is always suggested"
)
"""What the columns of `predict --evaluate` mean."""


@click.command()
@opt.model
@opt.option("--prompt TEXT", "The text so far; without it, a text on each line of standard input.")
@opt.option("-k N", "How many words.", type=click.IntRange(1), default=5, name="count")
@opt.option(
    "--min-probability P",
    "Leave out words of a smaller probability.",
    type=click.FloatRange(0, 1),
    default=0.0,
    show_default=False,
)
@opt.compute
@opt.json
def suggest(
    folder: str, prompt: str | None, count: int, min_probability: float, as_json: bool, **options: Any
) -> None:
    """Suggest how a text goes on, with the model in DIR.

    A suggestion completes the word that is being written, or is the next word; it ends before white space. Its
    probability is that of the word, given the text. With --json: an object per text.
    """
    lm = opt.load_model(folder, options, "language")
    for text in standard_input() if prompt is None else [prompt]:
        found = cr.suggest(lm, text, count, at_least=min_probability, once=prompt is not None)
        if as_json:
            _echo_suggestions(text, found)
        else:
            print_suggestions(console(), found, title=text if prompt is None else None)


def _echo_suggestions(text: str, found: Sequence[cr.decode.Suggestion]) -> None:
    echo_json({"text": text, "suggestions": [asdict(one) for one in found]})


def print_suggestions(screen: Console, found: Sequence[cr.decode.Suggestion], title: str | None = None) -> None:
    """Print a table of suggestions."""
    rows = ([one.word, repr(one.completion), number(one.probability, 4)] for one in found)
    print_table(screen, ["word", "appends", "probability"], rows, title=title)


@click.command()
@opt.models
@opt.option("-k N", "How many words are suggested at a time.", type=click.IntRange(1, 9), default=3, name="count")
@opt.option("--evaluate FILE", "Measure the keystrokes saved in typing FILE.")
@opt.option("--lines N", "With --evaluate: only the first N lines.", type=click.IntRange(1))
@corpus_options
@opt.compute
@opt.json
def predict(
    folders: tuple[str, ...], count: int, evaluate: str | None, lines: int | None, as_json: bool, **options: Any
) -> None:
    """Suggest words as you type, with the model in DIR.

    On a terminal: Tab takes the suggestion that is marked, a digit the one of that number (Ctrl-V types it), arrows
    up and down move the mark, Enter ends the line and prints it, Ctrl-D or Ctrl-C ends. Elsewhere: the suggestions
    for each line of standard input, separated by tabs.

    With --evaluate: how many keystrokes the suggestions of each model save, 1 - keys / characters, to someone who
    types FILE and takes every suggestion that is right (docs/tasks.md). The columns:

    \b
    bits/byte        the bits per byte of the text under the model
    saved            the share of keystrokes saved
    keys             the keys pressed
    characters       the characters of the text; a line end is one
    taken            how many keys took a suggestion
    without context  saved if each word is suggested as if it began a line
    at most          saved if the right word is always suggested

    \b
    chainrule predict model
    chainrule predict model other --evaluate test.txt --lines 200
    """
    from chainrule.tasks.prediction import Remembered

    if evaluate is not None:
        corpus = open_corpus(options, evaluate)
        how: Any = {"most_lines": lines, "progress": output.terminal_progress()}
        results, bits = [], []
        for folder in folders:
            lm = opt.load_model(folder, options, "language")
            results.append((folder, cr.tasks.keystrokes(lm, corpus, count, **how)))
            bits.append("" if as_json else output.intrinsic(lm, [*islice(lines_of_corpus(corpus), lines)]))
        _show_saved(results, bits, as_json)
        return
    if len(folders) > 1:
        raise click.UsageError("one model at a time suggests words; several are for --evaluate FILE")
    if lines is not None or options["fields"] or options["files"]:
        raise click.UsageError("--lines, --field and --files go with --evaluate FILE")
    remembered = Remembered(opt.load_model(folders[0], options, "language"))
    if sys.stdin.isatty() and sys.stderr.isatty() and not as_json:
        _type(remembered, count)
    else:
        for text in standard_input():
            found = cr.suggest(remembered, text, count)
            if as_json:
                _echo_suggestions(text, found)
            else:
                echo("\t".join(one.word for one in found))


def _type(lm: cr.LanguageModel, count: int) -> None:
    """Let someone type lines on the terminal, and print them on standard output."""
    from chainrule.cli.output.typing import typed_lines
    from chainrule.contract.lm import prepare

    prepare(lm)
    output.WAITING.end()
    echo("Tab or 1-9 takes a word, arrows choose, Enter ends the line, Ctrl-D quits", err=True)
    keys = characters = 0
    for line in typed_lines(lambda text: [(one.word, one.completion) for one in cr.suggest(lm, text, count)]):
        text = line.buffer.text.rstrip(" ")
        echo(text)
        keys, characters = keys + line.keys, characters + len(text) + 1
    if characters:
        echo(f"{keys:,} keys for {characters:,} characters: {1 - keys / characters:.1%} saved", err=True)


def _show_saved(results: Sequence[tuple[str, cr.tasks.Keystrokes]], bits: Sequence[str], as_json: bool) -> None:
    """Print the keystrokes that each model saves, and the bits per byte of the text beside them."""
    from chainrule.evaluation.measure import LOWER_BOUND

    if as_json:
        output.print_measured(results)
        return
    rows = []
    for (folder, found), right in zip(results, bits, strict=True):
        counts = f"{found.keys:,}", f"{found.characters:,}", f"{found.taken:,}"
        rows.append([folder, right, f"{found.saved:.1%}", *counts, f"{found.baseline:.1%}", f"{found.limit:.1%}"])
    headings = ["model", "bits/byte", "saved", "keys", "characters", "taken", "without context", "at most"]
    screen = console()
    print_table(screen, headings, rows)
    output.say(screen, _COLUMNS)
    if any("*" in right for right in bits):
        output.say(screen, LOWER_BOUND)
