"""`chainrule correct`: misspelled words of a text, corrected in context."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.output import console, echo, echo_json, print_json, print_table, say

if TYPE_CHECKING:
    from chainrule.tasks.spelling.correct import Corrector


@click.command(short_help="Correct the spelling of TEXT with a model of words.")
@opt.model
@texts.text_argument
@opt.option(
    "--errors FILE",
    "Learn which errors are likely from FILE: lines such as typed TAB right, or right: typed typed ...",
)
@opt.option(
    "--keep P",
    "How likely a typed word is right before it is read; 0 if all are known to be wrong. [default: 0.99]",
    type=click.FloatRange(0, 1, max_open=True),
)
@opt.option(
    "--new P",
    "How likely a right word is one that the vocabulary lacks. [default: 0.002]",
    type=click.FloatRange(0, 1, max_open=True),
)
@opt.option("--lm-weight W", "The power of the model's probabilities. [default: 1]", type=float)
@opt.option("--beams B", "Readings of a line that are kept. [default: 6]", type=int)
@opt.option(
    "--evaluate FILE",
    "Instead of a text: how many misspelled words of FILE, of the same form as --errors, become right.",
)
@opt.option("--clean FILE", "Instead of a text: how many words of a right one are changed.")
@texts.corpus_options
@opt.compute
@opt.json
def correct(
    folder: str,
    text: str,
    errors: str | None,
    evaluate: str | None,
    clean: str | None,
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
    from chainrule.tasks.spelling.channel import Channel, read_misspellings
    from chainrule.tasks.spelling.correct import Corrector

    lm = opt.load_model(folder, options, "language")
    given = {name: options[name] for name in ("keep", "new", "lm_weight", "beams")}
    chosen = {name: value for name, value in given.items() if value is not None}
    channel = None if errors is None else Channel.learned(read_misspellings(errors))
    corrector = Corrector(lm, channel=channel, **chosen)
    if evaluate is not None or clean is not None:
        _measure(corrector, evaluate, None if clean is None else texts.open_corpus(options, clean), as_json)
        return
    if text == "-":
        corrections = corrector.correct(texts.standard_input(), at_once=1)
    else:
        corrections = corrector.correct(texts.lines_of_corpus(texts.open_text(options, text)))
    for one in corrections:
        if as_json:
            echo_json(one.to_json())
        else:
            echo(one.corrected)


def _measure(corrector: Corrector, evaluate: str | None, clean: cr.Corpus | None, as_json: bool) -> None:
    """Print how many misspelled words become right, and how many right ones are changed."""
    from chainrule.tasks.spelling.channel import read_misspellings
    from chainrule.tasks.spelling.measure import measure_clean, measure_misspellings

    typos = None if evaluate is None else measure_misspellings(corrector, read_misspellings(evaluate))
    right = None if clean is None else measure_clean(corrector, texts.lines_of_corpus(clean))
    if as_json:
        figures = {"misspelled": typos, "clean": right}
        print_json({name: one.to_json() for name, one in figures.items() if one is not None})
        return
    screen, ours, baseline = console(), "channel and model", "  nearest, most frequent"
    if typos is not None:
        number, speed = f"{typos.texts:,}", f"{typos.words_per_second:,.0f}"
        rows = [
            [ours, number, f"{typos.accuracy:.1%}", f"{typos.kept:.1%}", speed],
            [baseline, number, f"{typos.baseline:.1%}", "", ""],
        ]
        print_table(screen, ["misspelled", "texts", "right", "left as typed", "words/s"], rows)
        say(screen, f"of {typos.unreachable:.1%} the vocabulary lacks the right word")
    if right is not None:
        words, speed = f"{right.words:,}", f"{right.words_per_second:,.0f}"
        rows = [[ours, words, f"{right.rate:.2%}", speed], [baseline, words, f"{right.baseline:.2%}", ""]]
        print_table(screen, ["right text", "words", "falsely changed", "words/s"], rows)
        say(screen, f"{right.unknown:.2%} of the words are not in the vocabulary")
