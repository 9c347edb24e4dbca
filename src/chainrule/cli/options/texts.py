"""Texts: the corpus, its fields and files, held-out text, and where a sequence ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import Command, RenamedOption, with_options

if TYPE_CHECKING:
    from chainrule.contract.kinds import Task
    from chainrule.text.corpus import Corpus
    from chainrule.text.pairs import Pairs


def corpus_argument(command: Command) -> Command:
    """CORPUS...: where the text is."""
    return click.argument("corpus", nargs=-1, required=True, metavar="CORPUS...", shell_complete=_texts)(command)


def corpus_options(command: Command) -> Command:
    """--field, --files and --encoding-errors, which `open_corpora` reads."""
    options = (
        click.option(
            "--field",
            "fields",
            multiple=True,
            metavar="NAME[,NAME]",
            help="The fields of .jsonl, .csv, .tsv and .parquet files that are text, a.b inside objects; several "
            "are joined, each on a new line. [default: text]",
        ),
        click.option(
            "--files",
            multiple=True,
            metavar="PATTERN",
            help="Of a folder, only files that match, such as '*.txt'; repeatable. [default: all but hidden ones]",
        ),
        encoding_option,
    )
    return with_options(command, options)


def encoding_option(command: Command) -> Command:
    """--encoding-errors: what to do with bytes that are not UTF-8."""
    return click.option(
        "--encoding-errors",
        type=click.Choice(["strict", "replace"]),
        default="strict",
        show_default=True,
        help="Stop at bytes that are not UTF-8, or replace them with U+FFFD and say how many.",
    )(command)


def held_out_option(explanation: str) -> Callable[[Command], Command]:
    """--held-out, texts of their own to tune on, as a tuple; --valid, its earlier name, works in 0.2 too."""
    return click.option(
        "--held-out",
        "--valid",
        "held_out",
        cls=RenamedOption,
        type=click.Path(),
        multiple=True,
        metavar="FILE",
        help=explanation,
    )


def source_tokenizer_option(command: Command) -> Command:
    """--source-tokenizer: for kinds that learn from pairs."""
    return click.option(
        "--source-tokenizer",
        metavar="NAME",
        help="Kinds that learn from pairs: a tokenizer for the sources alone. [default: one for both sides]",
    )(command)


def context_option(command: Command) -> Command:
    """--context: where a sequence ends."""
    return click.option(
        "--context",
        type=click.Choice(["line", "stream"]),
        default="line",
        show_default=True,
        help="A line is a sequence, or context flows across lines.",
    )(command)


def open_corpora(options: Mapping[str, Any], *texts: Sequence[str] | None) -> list[Corpus | None]:
    """A corpus for each sequence of sources, None for None, as the options of `corpus_options` say."""
    from chainrule.text.corpus import Corpus
    from chainrule.text.records import Fields
    from chainrule.text.remote import is_address

    names, identity, files = options["fields"], options.get("id_field"), options["files"]
    if files and not any(Path(one).is_dir() or is_address(one) for sources in texts for one in sources or ()):
        raise click.UsageError("--files chooses among the files of a folder, and no folder is given")
    fields = Fields.parse(names, identity)
    corpora = [
        None
        if sources is None
        else Corpus.open(*sources, encoding_errors=options["encoding_errors"], fields=fields, files=files)
        for sources in texts
    ]
    if (names or identity) and not any(corpus.has_records for corpus in corpora if corpus):
        raise click.UsageError(
            "plain text has no fields: --field and --id-field are for .jsonl, .csv, .tsv and .parquet files"
        )
    return corpora


def open_examples(
    options: Mapping[str, Any], task: Task, *given: Sequence[str] | None
) -> list[Corpus | Pairs | None]:
    """What models of a task learn from: pairs for translation, and a corpus for others; None for None."""
    from chainrule.text.files import form_of
    from chainrule.text.hub import is_dataset
    from chainrule.text.pairs import Pairs

    if task != "translation":
        return [*open_corpora(options, *given)]
    fields = [name for names in options["fields"] for name in names.split(",")]
    if options["files"]:
        raise click.UsageError("--files chooses among the files of a folder, and pairs are named file by file")
    named = [file for files in given for file in files or ()]
    if fields and all(form_of(Path(file)) == "text" and not is_dataset(file) for file in named):
        raise click.UsageError("plain text has no fields: --field is for .jsonl, .csv, .tsv and .parquet files")
    return [
        None if files is None else Pairs.open(*files, fields=fields, encoding_errors=options["encoding_errors"])
        for files in given
    ]


def is_text_itself(given: str) -> bool:
    """Whether a word of the command line is a text rather than the name of one: several words, and no file."""
    return given != "-" and len(given.split()) > 1 and not Path(given).exists()


def standard_input() -> Iterator[str]:
    """The lines of standard input, each as soon as it is there."""
    from chainrule.errors import CorpusError

    for place, line in enumerate(sys.stdin.buffer, start=1):
        try:
            yield line.decode().removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise CorpusError(f"standard input: line {place} is not UTF-8: {error.reason}") from None


def open_corpus(options: Mapping[str, Any], *sources: str) -> Corpus:
    """The corpus of the sources."""
    (corpus,) = open_corpora(options, sources)
    assert corpus is not None
    return corpus


def _texts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.text.corpus import BUILTIN

    if incomplete and BUILTIN.startswith(incomplete):
        return [CompletionItem(BUILTIN)]
    return [CompletionItem(incomplete, type="file")]
