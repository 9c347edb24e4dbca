"""`chainrule tag`: words with their tags; and how good a tagger is, for `chainrule evaluate`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, lines_of_corpus, open_text, text_argument
from chainrule.cli.output import console, echo, echo_json, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.tagging.contract import TaggedWords
    from chainrule.tagging.evaluate import TaggingMeasured
    from chainrule.text.tagged import Sentence

_AT_ONCE = 256  # sentences
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_green", "bright_magenta")
_WIDEST_CONFUSION = 24  # tags; a table of more is not read


@click.command()
@opt.model
@text_argument
@opt.option(
    "--format [text|conllu|json]",
    "word/TAG on a line for each sentence, CoNLL-U, or a JSON object for each sentence.",
    default="text",
    name="form",
)
@opt.option(
    "--split [unicode|whitespace]",
    "Where words end: by the classes of characters, punctuation apart; or at white space alone.",
    default="unicode",
)
@opt.option("--conllu", "TEXT is CoNLL-U, whose words are given.", name="is_conllu")
@corpus_options
@opt.compute
def tag(folder: str, text: str, form: str, split: Any, is_conllu: bool, **options: Any) -> None:
    """Tag the words of TEXT with the tagger in DIR.

    Each line of TEXT is a sentence. TEXT is a file, a folder, a pattern in quotes, - for standard input, or a text
    of several words itself. With --conllu its words are those of CoNLL-U; with --format conllu, its other
    columns are kept.

    On a terminal tags are coloured. With --format json: an object per line, with words, tags and log_probs, which
    are ln p of these tags.

    \b
    chainrule tag model "The cat sat on the mat."
    chainrule tag model test.conllu --conllu --format conllu
    """
    from chainrule.tagging.contract import Tagger
    from chainrule.tagging.tag import words_of
    from chainrule.text.tagged import Sentence, read_sentences

    tagger = Tagger.expect(opt.load_model(folder, options, "tagging"))
    corpus = open_text(options, text)
    sentences: Iterator[Sentence]
    if is_conllu:
        sentences = read_sentences(corpus, with_tags=False, form="conllu")
    else:
        lines = (words_of(line, split) for line in lines_of_corpus(corpus))
        sentences = (Sentence(tuple(words), ("_",) * len(words)) for words in lines if words)
    screen = console()
    while some := list(islice(sentences, _AT_ONCE)):
        for sentence, tagged in zip(some, tagger.tag([one.words for one in some]), strict=True):
            _print(screen, form, sentence, tagged)


def _print(screen: Console, form: str, sentence: Sentence, tagged: TaggedWords) -> None:
    if form == "conllu":
        echo("\n".join([*sentence.retagged(tagged.tags), ""]))
    elif form == "json":
        log_probs = [round(float(value), 6) for value in tagged.log_probs]
        echo_json({"words": list(tagged.words), "tags": list(tagged.tags), "log_probs": log_probs})
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
    """Return a colour that depends on the tag alone."""
    return _COLOURS[sum(tag.encode()) % len(_COLOURS)]


# -- chainrule evaluate, for taggers ----------------------------------------------------------------------


def show_taggers(screen: Console, results: Sequence[tuple[str, TaggingMeasured]]) -> None:
    """Print how good taggers are; of a single one also each tag, and which tags are confused."""
    _print_accuracies(screen, results)
    if len(results) == 1:
        _print_tags(screen, results[0][1])
        _print_confusion(screen, results[0][1])


def _print_accuracies(screen: Console, results: Iterable[tuple[str, TaggingMeasured]]) -> None:
    rows = []
    for folder, measured in results:
        unknown = f"{measured.unknown_accuracy:.2%}" if measured.unknown else "-"
        counts = f"{measured.words:,}", f"{measured.unknown:,}"
        rows.append([folder, f"{measured.accuracy:.2%}", f"{measured.known_accuracy:.2%}", unknown, *counts])
        right = measured.baseline_correct - measured.baseline_unknown_correct
        of_known = f"{right / max(1, measured.words - measured.unknown):.2%}"
        of_unknown = f"{measured.baseline_unknown:.2%}" if measured.unknown else "-"
        rows.append(["  most frequent tag", f"{measured.baseline:.2%}", of_known, of_unknown, *counts])
    print_table(screen, ["model", "accuracy", "known words", "unknown words", "words", "unknown"], rows)


def _print_tags(screen: Console, measured: TaggingMeasured) -> None:
    rows = (
        [one.tag, f"{one.words:,}", f"{one.precision:.2%}", f"{one.recall:.2%}", f"{one.f1:.2%}"]
        for one in sorted(measured.by_tag, key=lambda one: -one.words)
    )
    screen.print()
    print_table(screen, ["tag", "words", "precision", "recall", "F1"], rows)


def _print_confusion(screen: Console, measured: TaggingMeasured) -> None:
    """Print which tags are confused: a row for each right tag, a column for each that was given."""
    if not (pairs := measured.confused()):
        return
    screen.print()
    have = [one.tag for one in sorted(measured.by_tag, key=lambda one: -one.words)]
    places = [measured.tags.index(name) for name in have]
    if len(have) <= _WIDEST_CONFUSION:
        counts = measured.confusion_KK[places][:, places].tolist()
        rows = [
            [name, *(f"{number:,}" if number else "·" for number in row)]
            for name, row in zip(have, counts, strict=True)
        ]
        print_table(screen, ["right \\ given", *have], rows)
        screen.print()
    listed = ", ".join(f"{right} as {given} {times:,}" for right, given, times in pairs)
    say(screen, f"confused most often: {listed}")
