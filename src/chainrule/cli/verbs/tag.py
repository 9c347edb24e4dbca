"""`chainrule tag`: words with their tags; and how good a tagger is, for `chainrule evaluate`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import device_option, model_argument, precision_option
from chainrule.cli.options.texts import corpus_options, is_text_itself, open_corpus
from chainrule.cli.output.lines import console, echo, print_json, say
from chainrule.cli.output.tables import results_table, show_table

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.tagging.contract import TaggedWords, Tagger
    from chainrule.tagging.evaluate import TaggingMeasured
    from chainrule.text.corpus import Corpus
    from chainrule.text.tagged import Sentence

_AT_ONCE = 256  # sentences
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_green", "bright_magenta")
_WIDEST_CONFUSION = 24  # tags; a table of more is not read


@click.command()
@model_argument
@click.argument("text", metavar="[TEXT|-]", default="-", type=click.Path())
@click.option(
    "--format",
    "form",
    type=click.Choice(["text", "conllu", "json"]),
    default="text",
    show_default=True,
    help="word/TAG on a line for each sentence, CoNLL-U, or a JSON object for each sentence.",
)
@click.option(
    "--split",
    type=click.Choice(["unicode", "whitespace"]),
    default="unicode",
    show_default=True,
    help="Where words end: by the classes of characters, punctuation apart; or at white space alone.",
)
@click.option("--conllu", "is_conllu", is_flag=True, help="TEXT is CoNLL-U, whose words are given.")
@corpus_options
@device_option
@precision_option
def tag(
    folder: str, text: str, form: str, split: Any, is_conllu: bool, device: str, dtype: str, **options: Any
) -> None:
    """Tag the words of TEXT with the tagger in DIR.

    Each line of TEXT is a sentence. TEXT is a file, a folder, a pattern in quotes, - for standard input, or a text
    of several words itself. With --conllu its words are those of CoNLL-U; with --format conllu, what else it says
    of them is kept.

    On a terminal tags are coloured. With --format json: an object per line, with words, tags and log_probs, which
    are ln p of these tags.

    \b
    chainrule tag model "The cat sat on the mat."
    chainrule tag model test.conllu --conllu --format conllu
    """
    from chainrule.contract.kinds import load
    from chainrule.tagging.contract import Tagger
    from chainrule.text.corpus import Corpus

    tagger = Tagger.expect(load(folder, device=device, dtype=dtype, tasks=["tagging"]))
    if text == "-" and sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)
    corpus = Corpus.from_text(text) if is_text_itself(text) else open_corpus(options, text)
    sentences = _conllu(corpus) if is_conllu else _lines(corpus, split)
    screen = console()
    for sentence, tagged in _tagged(tagger, sentences):
        _print(screen, form, sentence, tagged)


def _tagged(tagger: Tagger, sentences: Iterator[Sentence]) -> Iterator[tuple[Sentence, TaggedWords]]:
    while some := list(islice(sentences, _AT_ONCE)):
        yield from zip(some, tagger.tag([sentence.words for sentence in some]), strict=True)


def _conllu(corpus: Corpus) -> Iterator[Sentence]:
    from chainrule.text.tagged import read_sentences

    return read_sentences(corpus, with_tags=False, form="conllu")


def _lines(corpus: Corpus, split: Any) -> Iterator[Sentence]:
    """The lines of a text as sentences without tags; empty ones are left out."""
    from chainrule.tagging.tag import words_of
    from chainrule.text.tagged import Sentence

    for block in corpus.blocks():
        for line in block.decode().removesuffix("\n").split("\n"):
            if words := words_of(line, split):
                yield Sentence(tuple(words), ("_",) * len(words))


def _print(screen: Console, form: str, sentence: Sentence, tagged: TaggedWords) -> None:
    if form == "conllu":
        echo("\n".join([*sentence.retagged(tagged.tags), ""]))
    elif form == "json":
        from chainrule.folder import to_json

        log_probs = [round(float(value), 6) for value in tagged.log_probs]
        echo(to_json({"words": list(tagged.words), "tags": list(tagged.tags), "log_probs": log_probs}))
    elif screen.is_terminal:
        from rich.text import Text

        line = Text()
        for number, (word, label) in enumerate(zip(tagged.words, tagged.tags, strict=True)):
            line.append(f"{' ' if number else ''}{word}")
            line.append(f"/{label}", style=_colour(label))
        screen.print(line)
    else:
        echo(str(tagged))


def _colour(tag: str) -> str:
    """A colour that depends on the tag alone."""
    return _COLOURS[sum(tag.encode()) % len(_COLOURS)]


# -- chainrule evaluate, for taggers ----------------------------------------------------------------------


def evaluate_taggers(
    folders: Sequence[str], text: str, *, device: str, dtype: str, as_json: bool, **options: Any
) -> None:
    """Print how good the taggers in the folders are on tagged sentences."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.contract.kinds import load
    from chainrule.tagging.evaluate import evaluate_tagger
    from chainrule.text.tagged import Tagged

    sentences, results = Tagged.open(text, encoding_errors=options["encoding_errors"]), []
    for folder in folders:
        tagger: Any = load(folder, device=device, dtype=dtype)
        results.append((folder, evaluate_tagger(tagger, sentences, progress=terminal_progress())))
    if as_json:
        objects = [{"folder": folder, **measured.to_json()} for folder, measured in results]
        print_json(objects[0] if len(objects) == 1 else objects)
        return
    screen = console()
    _print_accuracies(screen, results)
    if len(results) == 1:
        _print_tags(screen, results[0][1])
        _print_confusion(screen, results[0][1])


def _print_accuracies(screen: Console, results: Iterable[tuple[str, TaggingMeasured]]) -> None:
    table = results_table("model", "accuracy", "known words", "unknown words", "words", "unknown")
    measured = None
    for folder, measured in results:
        unknown = f"{measured.unknown_accuracy:.2%}" if measured.unknown else "-"
        counts = f"{measured.words:,}", f"{measured.unknown:,}"
        table.add_row(folder, f"{measured.accuracy:.2%}", f"{measured.known_accuracy:.2%}", unknown, *counts)
        known = measured.words - measured.unknown
        right = measured.baseline_correct - measured.baseline_unknown_correct
        of_unknown = f"{measured.baseline_unknown:.2%}" if measured.unknown else "-"
        table.add_row(
            "  most frequent tag", f"{measured.baseline:.2%}", f"{right / max(1, known):.2%}", of_unknown, *counts
        )
    show_table(screen, table)


def _print_tags(screen: Console, measured: TaggingMeasured) -> None:
    table = results_table("tag", "words", "precision", "recall", "F1")
    for one in sorted(measured.by_tag, key=lambda one: -one.words):
        table.add_row(one.tag, f"{one.words:,}", f"{one.precision:.2%}", f"{one.recall:.2%}", f"{one.f1:.2%}")
    screen.print()
    show_table(screen, table)


def _print_confusion(screen: Console, measured: TaggingMeasured) -> None:
    """Print which tags are confused: a row for each right tag, a column for each that was given."""
    if not (pairs := measured.confused()):
        return
    screen.print()
    have = [one.tag for one in sorted(measured.by_tag, key=lambda one: -one.words)]
    places = [measured.tags.index(name) for name in have]
    if len(have) <= _WIDEST_CONFUSION:
        table = results_table("right \\ given", *have)
        for name, row in zip(have, places, strict=True):
            counts = [int(measured.confusion_KK[row, column]) for column in places]
            table.add_row(name, *(f"{number:,}" if number else "·" for number in counts))
        show_table(screen, table)
        screen.print()
    listed = ", ".join(f"{right} as {given} {times:,}" for right, given, times in pairs)
    say(screen, f"confused most often: {listed}")
