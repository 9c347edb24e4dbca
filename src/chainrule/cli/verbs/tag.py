"""`chainrule tag` and `chainrule classify`: words with their tags, and the label of each text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli import options as opt
from chainrule.cli.options.texts import corpus_options, lines_of_corpus, open_text, text_argument
from chainrule.cli.output import console, echo, echo_json

if TYPE_CHECKING:
    from rich.console import Console

    from chainrule.tagging.contract import TaggedWords
    from chainrule.text.tagged import Sentence

_AT_ONCE = 256  # sentences, or texts
_COLOURS = ("cyan", "green", "magenta", "yellow", "blue", "red", "bright_cyan", "bright_green", "bright_magenta")


@click.command()
@opt.model
@text_argument
@opt.options("""
    --format [text|conllu|json] = text as form
        word/TAG on a line for each sentence, CoNLL-U, or a JSON object for each sentence.
    --split [unicode|whitespace] = unicode
        Where words end: by the classes of characters, punctuation apart; or at white space alone.
    --conllu as is_conllu  TEXT is CoNLL-U, whose words are given.
""")
@opt.group(corpus_options, opt.compute)
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
            line.append(f"/{label}", style=_COLOURS[sum(label.encode()) % len(_COLOURS)])
        screen.print(line)
    else:
        echo(str(tagged))


@click.command()
@opt.model
@text_argument
@opt.options("""
    --format [text|label|json] = text as form
        LABEL, its probability and the text, separated by tabs; the label alone; or a JSON object for each text.
""")
@opt.group(corpus_options, opt.compute)
def classify(folder: str, text: str, form: str, **options: Any) -> None:
    """Give each text of TEXT a label, by the classifier in DIR.

    Each line of TEXT, or the --field of each of its records, is a text; empty ones are left out. TEXT is a file, a
    folder, a pattern in quotes, - for standard input, or a text of several words itself.

    With --format json: an object per line, with text, label, probability and log_probs, ln p of every label.

    \b
    chainrule classify model "Where is the station?"
    chainrule classify model reviews.jsonl --field text --format json
    """
    from chainrule.classification.contract import Classifier
    from chainrule.text.labelled import single_texts

    classifier = Classifier.expect(opt.load_model(folder, options, "classification"))
    texts = single_texts(open_text(options, text))
    while some := list(islice(texts, _AT_ONCE)):
        for found in classifier.classify(some):
            if form == "json":
                log_probs = {label: round(value, 6) for label, value in found.log_probs.items()}
                shown = {"text": found.text, "label": found.label, "probability": round(found.probability, 6)}
                echo_json({**shown, "log_probs": log_probs})
            else:
                echo(found.label if form == "label" else str(found))
