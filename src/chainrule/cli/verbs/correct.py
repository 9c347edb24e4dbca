"""`chainrule correct`: misspelled words of a text, corrected in context."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option, model_argument, precision_option
from chainrule.cli.options.runs import json_option
from chainrule.cli.options.texts import corpus_options, is_text_itself, open_corpus, standard_input
from chainrule.cli.output.lines import console, echo, print_json, say
from chainrule.cli.output.tables import results_table, show_table

if TYPE_CHECKING:
    from chainrule.tasks.spelling.correct import Corrector
    from chainrule.text.corpus import Corpus


@click.command(short_help="Correct the spelling of TEXT with a model of words.")
@model_argument
@click.argument("text", metavar="[TEXT|-]", default="-", type=click.Path())
@click.option(
    "--errors",
    type=click.Path(),
    metavar="FILE",
    help="Learn which errors are likely from FILE: lines such as typed TAB right, or right: typed typed ...",
)
@click.option(
    "--keep",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="P",
    help="How likely a typed word is right before it is read; 0 if all are known to be wrong. [default: 0.99]",
)
@click.option(
    "--new",
    type=click.FloatRange(0, 1, max_open=True),
    metavar="P",
    help="How likely a right word is one that the vocabulary lacks. [default: 0.002]",
)
@click.option("--lm-weight", type=float, metavar="W", help="The power of the model's probabilities. [default: 1]")
@click.option("--beams", type=int, metavar="B", help="Readings of a line that are kept. [default: 6]")
@click.option(
    "--evaluate",
    type=click.Path(),
    metavar="FILE",
    help="Instead of a text: how many misspelled words of FILE, of the same form as --errors, become right.",
)
@click.option(
    "--clean",
    type=click.Path(),
    metavar="FILE",
    help="Instead of a text: how many words of a right one are changed.",
)
@corpus_options
@device_option
@precision_option
@json_option
def correct(
    folder: str,
    text: str,
    errors: str | None,
    evaluate: str | None,
    clean: str | None,
    device: str,
    dtype: str,
    as_json: bool,
    **options: Any,
) -> None:
    """Correct the spelling of TEXT with the model in DIR, whose tokens are words.

    For each word: the one of the vocabulary within two edits (a letter left out, put in, replaced, or two swapped)
    that is most likely in its context and as what was meant; so words that exist are corrected too, where another
    one fits far better. Case, punctuation and spaces stay. TEXT is a file, a folder, a pattern in quotes, a text of
    several words itself, or - for standard input, each line of which is answered at once.

    With --json: an object per line, with original, corrected and edits (start, end, typed, corrected, probability).

    --evaluate and --clean measure instead: accuracy on misspelled words, each by itself, and the share of words of
    a right text that are changed, both beside a baseline that knows edits and frequencies alone.

    \b
    chainrule correct model "Teh cat sat on teh mat."
    chainrule correct model --evaluate misspelled.txt --clean test.txt
    """
    from chainrule.contract.kinds import load
    from chainrule.folder import to_json
    from chainrule.tasks.spelling.channel import Channel, read_misspellings
    from chainrule.tasks.spelling.correct import Corrector
    from chainrule.text.corpus import Corpus

    lm = load(folder, device=device, dtype=dtype, tasks=["language"])
    given = {name: options.pop(name) for name in ("keep", "new", "lm_weight", "beams")}
    chosen = {name: value for name, value in given.items() if value is not None}
    channel = None if errors is None else Channel.learned(read_misspellings(errors))
    corrector = Corrector(lm, channel=channel, **chosen)
    if evaluate is not None or clean is not None:
        _measure(corrector, evaluate, None if clean is None else open_corpus(options, clean), as_json)
        return
    if text == "-":
        if sys.stdin.isatty():
            echo("reading standard input; Ctrl-D ends it", err=True)
        corrections = corrector.correct(standard_input(), at_once=1)
    else:
        corpus = Corpus.from_text(text) if is_text_itself(text) else open_corpus(options, text)
        corrections = corrector.correct(_lines(corpus))
    for one in corrections:
        echo(to_json(one.to_json()) if as_json else one.corrected)


def _lines(corpus: Corpus) -> Iterator[str]:
    for block in corpus.blocks():
        yield from block.decode().removesuffix("\n").split("\n")


def _measure(corrector: Corrector, evaluate: str | None, clean: Corpus | None, as_json: bool) -> None:
    """Print how many misspelled words become right, and how many right ones are changed."""
    from chainrule.tasks.spelling.channel import read_misspellings
    from chainrule.tasks.spelling.measure import measure_clean, measure_misspellings

    typos = None if evaluate is None else measure_misspellings(corrector, read_misspellings(evaluate))
    right = None if clean is None else measure_clean(corrector, _lines(clean))
    if as_json:
        figures = {"misspelled": typos, "clean": right}
        print_json({name: one.to_json() for name, one in figures.items() if one is not None})
        return
    screen = console()
    if typos is not None:
        table = results_table("misspelled", "texts", "right", "left as typed", "words/s")
        speed = f"{typos.words_per_second:,.0f}"
        table.add_row("channel and model", f"{typos.texts:,}", f"{typos.accuracy:.1%}", f"{typos.kept:.1%}", speed)
        table.add_row("  nearest, most frequent", f"{typos.texts:,}", f"{typos.baseline:.1%}", "", "")
        show_table(screen, table)
        say(screen, f"of {typos.unreachable:.1%} the vocabulary lacks the right word")
    if right is not None:
        table = results_table("right text", "words", "falsely changed", "words/s")
        table.add_row(
            "channel and model", f"{right.words:,}", f"{right.rate:.2%}", f"{right.words_per_second:,.0f}"
        )
        table.add_row("  nearest, most frequent", f"{right.words:,}", f"{right.baseline:.2%}", "")
        show_table(screen, table)
        say(screen, f"{right.unknown:.2%} of the words are not in the vocabulary")
