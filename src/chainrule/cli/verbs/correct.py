"""`chainrule correct`: misspelled words of a text, corrected in context."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.output import echo, echo_json, emit, intrinsic
from chainrule.system.display import Part, ResultTable

if TYPE_CHECKING:
    from chainrule.tasks.spelling.correct import Corrector


@click.command(short_help="Correct the spelling of TEXT with a model of words.")
@click.argument("folders_and_text", nargs=-1, required=True, metavar="DIR... [TEXT|-]", type=click.Path())
@opt.options("""
    --errors FILE
        Learn which errors are likely from FILE: lines such as typed TAB right, or right: typed typed ...
    --keep P : [0,1)
        How likely an unknown word is right before it is read; 0 if all words are known to be wrong. [default:
        0.98; 0.05 for a word that is alone in its line]
    --new P : [0,1)  How likely a right word is one that the vocabulary lacks. [default: 0.001]
    --lm-weight W : float
        The power of the model's probabilities. [default: 0.85; 0.6 for a word that is alone in its line]
    --beams B : int  Readings of a line that are kept. [default: 6]
    --evaluate FILE
        Instead of a text: how many misspelled words of FILE, of the same form as --errors, become right.
    --clean FILE     Instead of a text: how many words of a right one are changed.
""")
@opt.group(texts.corpus_options, opt.compute, opt.json)
def correct(folders_and_text: tuple[str, ...], as_json: bool, **options: Any) -> None:
    """Correct the spelling of TEXT with the model in DIR, whose tokens are words.

    For each word: the one of the vocabulary within two edits (a letter left out, put in, replaced, or two swapped)
    that is most likely in its context and as what was meant; so words that exist are corrected too, where another
    one fits far better. Case, punctuation and spaces stay. TEXT is a file, a folder, a pattern in quotes, a text of
    several words itself, or - for standard input, each line of which is answered at once.

    With --json: an object per line, with original, corrected and edits (start, end, typed, corrected, probability).

    --evaluate and --clean measure instead: accuracy on misspelled words, each by itself, and the share of words of
    a right text that are changed, both beside a baseline that knows edits and frequencies alone. They take several
    models, DIR..., and print a row for each, with the bits per byte of the right text.

    \b
    chainrule correct model "Teh cat sat on teh mat."
    chainrule correct unigram trigram --evaluate misspelled.txt --clean test.txt
    """
    from chainrule.folder import MANIFEST
    from chainrule.tasks.spelling.channel import Channel, read_misspellings
    from chainrule.tasks.spelling.correct import Corrector

    errors, evaluate, clean = (options[name] for name in ("errors", "evaluate", "clean"))
    given = {name: options[name] for name in ("keep", "new", "lm_weight", "beams")}
    chosen: Any = {name: value for name, value in given.items() if value is not None}
    chosen["channel"] = None if errors is None else Channel.learned(read_misspellings(errors))

    def corrector(folder: str) -> Corrector:
        return Corrector(opt.load_model(folder, options, "language"), **chosen)

    if evaluate is not None or clean is not None:
        right = None if clean is None else texts.open_corpus(options, clean)
        _measure(((folder, corrector(folder)) for folder in folders_and_text), evaluate, right, as_json)
        return
    folder, *given_texts = folders_and_text
    if given_texts and Path(given_texts[0], MANIFEST).is_file():
        raise click.UsageError("one model corrects a text; several are measured, by --evaluate or --clean")
    if len(given_texts) > 1:
        raise click.UsageError(f"Got unexpected extra arguments ({' '.join(given_texts[1:])})")
    text = given_texts[0] if given_texts else "-"
    if text == "-":
        corrections = corrector(folder).correct(texts.standard_input(), at_once=1)
    else:
        corrections = corrector(folder).correct(texts.lines_of_corpus(texts.open_text(options, text)))
    for one in corrections:
        echo_json(one.to_json()) if as_json else echo(one.corrected)


def _measure(
    correctors: Iterable[tuple[str, Corrector]], evaluate: str | None, clean: cr.Corpus | None, as_json: bool
) -> None:
    """Print how many misspelled words become right under each model, and how many right ones are changed."""
    from chainrule.tasks.spelling.channel import read_misspellings
    from chainrule.tasks.spelling.measure import measure_clean, measure_misspellings

    misspelled = None if evaluate is None else read_misspellings(evaluate)
    right = None if clean is None else list(texts.lines_of_corpus(clean))
    found: list[tuple[str, dict[str, Any], str]] = []
    for folder, corrector in correctors:
        measured: dict[str, Any] = {}
        if misspelled is not None:
            measured["misspelled"] = measure_misspellings(corrector, misspelled)
        if right is not None:
            measured["clean"] = measure_clean(corrector, right)
        found.append((folder, measured, "" if right is None or as_json else intrinsic(corrector.lm, right)))
    objects = [
        {"folder": folder} | {key: one.to_json() for key, one in every.items()} for folder, every, _ in found
    ]
    parts, baseline = list[Part](), "  nearest, most frequent"
    if misspelled is not None:
        first, rows = found[0][1]["misspelled"], []
        for folder, every, _ in found:
            one = every["misspelled"]
            shares = (f"{share:.1%}" for share in one.shares)
            rows.append([folder, f"{one.texts:,}", *shares, f"{one.words_per_second:,.0f}"])
        rows.append([baseline, f"{first.texts:,}", f"{first.baseline:.1%}", "", "", "", ""])
        headings = ["misspelled", "texts", "right", "left as typed", "precision", "recall", "words/s"]
        parts += [ResultTable(headings, rows), f"of {first.unreachable:.1%} the vocabulary lacks the right word"]
    if right is not None:
        first, rows = found[0][1]["clean"], []
        for folder, every, bits in found:
            one = every["clean"]
            rows.append([folder, bits, f"{one.words:,}", f"{one.rate:.2%}", f"{one.words_per_second:,.0f}"])
        rows.append([baseline, "", f"{first.words:,}", f"{first.baseline:.2%}", ""])
        headings = ["right text", "bits/byte", "words", "falsely changed", "words/s"]
        parts += [ResultTable(headings, rows), f"{first.unknown:.2%} of the words are not in the vocabulary"]
    emit(as_json, objects if len(objects) > 1 else objects[0], *parts)
