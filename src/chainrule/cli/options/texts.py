"""Texts: the corpus, its fields and files, held-out text, where a sequence ends, and the tokenizer."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli.options.declaring import Command, group, rare
from chainrule.cli.options.declaring import options as declare
from chainrule.cli.output import echo
from chainrule.errors import CorpusError

if TYPE_CHECKING:
    from chainrule.contract.tasks import Task


def _complete_corpus(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.text.builtin import BUILTIN

    if incomplete and (found := [name for name in BUILTIN if name.startswith(incomplete)]):
        return [CompletionItem(name) for name in found]
    return [CompletionItem(incomplete, type="file")]


corpus_argument = click.argument(
    "corpus", nargs=-1, required=True, metavar="CORPUS...", shell_complete=_complete_corpus
)
corpus_argument_or_none = click.argument("corpus", nargs=-1, metavar="[CORPUS...]", shell_complete=_complete_corpus)
text_argument = click.argument("text", metavar="[TEXT|-]", default="-", type=click.Path())
id_field = declare("--id-field NAME  The field that names a record. [default: its line or row]")
label_field = declare(
    "--label-field NAME  Classification: the field of a record that is its label. [default: label]"
)
source_tokenizer = declare("""
    --source-tokenizer NAME
        Kinds that learn from pairs: a tokenizer for the sources alone. [default: one for both sides]
""")
corpus_options = declare("""
    --field NAME[,NAME]... as fields
        The fields of .jsonl, .csv, .tsv and .parquet files that are text, a.b inside objects; several are joined,
        each on a new line. [default: text]
    --files PATTERN...
        Of a folder, only files that match, such as '*.txt'; repeatable. [default: all but hidden ones]
    --encoding-errors [strict|replace] = strict
        Stop at bytes that are not UTF-8, or replace them with U+FFFD and say how many.
""")
"""The options that `open_corpora` reads."""


def context_option(default: str = "auto") -> Callable[[Command], Command]:
    """Declare --context, which says where a sequence ends."""
    return declare(f"""
        --context [auto|line|stream] = {default}
            Each line is a sequence, or context flows across lines; auto: it flows across those of paragraphs and of
            files of code.
    """)


def open_corpora(options: Mapping[str, Any], *texts: Sequence[str] | None) -> list[cr.Corpus | None]:
    """Open a corpus for each sequence of sources, None for None, as the options of `corpus_options` say."""
    from chainrule.text.records import Fields
    from chainrule.text.remote import is_address

    names, identity, files = options["fields"], options.get("id_field"), options["files"]
    if files and not any(Path(one).is_dir() or is_address(one) for sources in texts for one in sources or ()):
        raise click.UsageError("--files chooses among the files of a folder, and no folder is given")
    if any("-" in (sources or ()) for sources in texts):
        note_terminal_input()
    how: Any = {"encoding_errors": options["encoding_errors"], "mask": bool(options.get("mask"))}
    how |= {"fields": Fields.parse(names, identity), "files": files}
    corpora = [None if sources is None else cr.Corpus.open(*sources, **how) for sources in texts]
    if (names or identity) and not any(corpus.has_records for corpus in corpora if corpus):
        raise click.UsageError(
            "plain text has no fields: --field and --id-field are for .jsonl, .csv, .tsv and .parquet files"
        )
    return corpora


def open_corpus(options: Mapping[str, Any], *sources: str) -> cr.Corpus:
    """Open the corpus of the sources."""
    (corpus,) = open_corpora(options, sources)
    assert corpus is not None
    return corpus


def open_text(options: Mapping[str, Any], given: str) -> cr.Corpus:
    """Open a corpus by its name; several words that name no file are the text itself."""
    if is_text(given):
        return cr.Corpus.from_text(given)
    if given.isalpha() and not Path(given).exists():
        raise CorpusError(f"{given}: no such file; a text of a single word is read from standard input, as by echo")
    return open_corpus(options, given)


def is_text(given: str) -> bool:
    """Return True if an argument is a text itself: several words that neither name a file nor look like a name."""
    from chainrule.text.given import FILE_ENDINGS

    path = Path(given)
    return len(given.split()) > 1 and path.suffix not in FILE_ENDINGS and not path.exists()


def open_examples(options: Mapping[str, Any], task: Task, *given: Sequence[str] | None) -> list[Any]:
    """Open the examples of a task; None for None."""
    from chainrule.system.plugins import import_object
    from chainrule.text.files import form_of
    from chainrule.text.hub import is_dataset

    if (label := options.get("label_field")) is not None:
        if not task.has_labels:
            raise click.UsageError("--label-field is for models that classify texts")
        options = {**options, "id_field": label}
    if not task.has_sources:
        made = import_object(task.examples)
        return [None if corpus is None else made(corpus) for corpus in open_corpora(options, *given)]
    chosen = [name for names in options["fields"] for name in names.split(",")]
    if options["files"]:
        raise click.UsageError("--files chooses among the files of a folder, and pairs are named file by file")
    named = [file for files in given for file in files or ()]
    if chosen and all(form_of(Path(file)) == "text" and not is_dataset(file) for file in named):
        raise click.UsageError("plain text has no fields: --field is for .jsonl, .csv, .tsv and .parquet files")
    fields = chosen or task.fields
    return [
        None if files is None else cr.Pairs.open(*files, fields=fields, encoding_errors=options["encoding_errors"])
        for files in given
    ]


def standard_input() -> Iterator[str]:
    """Read the lines of standard input, each as soon as it is there."""
    note_terminal_input()
    for place, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CorpusError(f"standard input: line {place} is not UTF-8: {error.reason}") from None


def note_terminal_input() -> None:
    """Say that the verb waits for lines to be typed, if standard input is a terminal."""
    if sys.stdin.isatty():
        echo("reading standard input; Ctrl-D ends it", err=True)


def lines_of_corpus(corpus: cr.Corpus) -> Iterator[str]:
    """Read the lines of a corpus."""
    for block in corpus.blocks():
        yield from block.decode().removesuffix("\n").split("\n")


# -- tokenizers -------------------------------------------------------------------------------------------


def _tokenizers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.tokens.registry import tokenizer_names

    names = [CompletionItem(name) for name in tokenizer_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]


def tokenizer_options(default: str | None) -> Callable[[Command], Command]:
    """Declare --tokenizer and the options of its vocabulary, which `tokenizer_choice` reads.

    Without a default, the kind of model has one.
    """
    usual = "that of the kind" if default is None else True
    common = declare(
        """
        --tokenizer TEXT  word, word:unicode, char, byte, bpe, wordpiece, unigram, or a folder that holds one.
        --vocab-size N|P%
            Keep the N, or the P percent, most frequent; special tokens come on top.
            [default: all; subwords 1,024 to 8,192, by the size of the text]
        --min-count INTEGER : int = 1  What is seen less often is unknown.
        --vocabulary FILE  Know exactly the words of FILE, one on each line (word, word:unicode).
        """,
        tokenizer={"default": default, "show_default": usual, "shell_complete": _tokenizers},
    )
    lowercase = "--lowercase  Read upper-case letters as lower-case ones; the model then writes no others."
    return group(common, rare(declare(lowercase)))


def tokenizer_choice(options: Mapping[str, Any], default: str = "bpe") -> cr.TokenizerChoice:
    """Return the tokenizer that the options of `tokenizer_options` choose."""
    if options["vocabulary"] is not None:
        default = "word"  # a list of words
    names = ("vocab_size", "min_count", "vocabulary", "lowercase")
    return cr.TokenizerChoice(options["tokenizer"] or default, **{name: options[name] for name in names})


def given_tokenizer(options: Mapping[str, Any]) -> cr.TokenizerChoice | None:
    """Return the tokenizer if any of its options is given, else None."""
    is_given = any(options[name] is not None for name in ("tokenizer", "vocab_size", "vocabulary"))
    return tokenizer_choice(options) if is_given or options["min_count"] > 1 or options["lowercase"] else None
