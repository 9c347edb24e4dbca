"""`chainrule tokenize`: text as tokens, shown, counted and written down."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.common import (
    console,
    corpus_argument,
    encoding_option,
    json_option,
    number,
    print_json,
    tokenizer_options,
)

if TYPE_CHECKING:
    from chainrule.text.corpus import Corpus
    from chainrule.tokens.base import Tokenizer

_COLOURS = (
    "black on bright_cyan",
    "black on bright_yellow",
    "black on bright_green",
    "black on bright_magenta",
)


@click.command()
@corpus_argument
@tokenizer_options("bpe")
@click.option("--out", type=click.Path(), metavar="DIR", help="Write the tokenizer to DIR/tokenizer.json.")
@click.option(
    "--ids",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Write the ids: uint16, or uint32 where V > 65,536.",
)
@click.option("--show", is_flag=True, help="Show the first lines with their tokens in colours.")
@click.option("--merges", is_flag=True, help="Show how BPE learns, merge by merge with its count.")
@click.option(
    "--lines",
    type=click.IntRange(1),
    default=20,
    show_default=True,
    metavar="N",
    help="Lines or merges to show.",
)
@encoding_option
@json_option
def tokenize(
    corpus: tuple[str, ...],
    encoding_errors: Any,
    show: bool,
    merges: bool,
    lines: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Learn a tokenizer from CORPUS, or take one from a folder, and see what it makes of the text.

    \b
    chainrule tokenize corpus.txt --tokenizer bpe --vocab-size 1000 --show
    chainrule tokenize corpus.txt --merges
    chainrule tokenize corpus.txt --tokenizer model --ids corpus.ids
    """
    from chainrule.errors import FolderError
    from chainrule.folder import MANIFEST
    from chainrule.text.corpus import Corpus

    if options["ids"] and (show or merges):
        raise click.UsageError("--ids goes with neither --show nor --merges")
    if options["out"] and (Path(options["out"]) / MANIFEST).exists():
        raise FolderError(f"{options['out']} is a model folder and has its tokenizer; choose another --out")
    text = Corpus.open(*corpus, encoding_errors=encoding_errors)
    if merges:
        if options["tokenizer"] != "bpe":
            raise click.UsageError("only BPE merges: --merges goes with --tokenizer bpe")
        _merges(text, options["vocab_size"], options["min_count"], lines, as_json)
        return
    from chainrule.cli.progress import terminal_progress
    from chainrule.training.prepare import TokenizerChoice

    choice = TokenizerChoice(options["tokenizer"], options["vocab_size"], options["min_count"])
    tokenizer = choice.make(text, terminal_progress())
    if options["out"]:
        _write(tokenizer, Path(options["out"]))
    if show:
        _show(tokenizer, text, lines)
    else:
        _summary(tokenizer, text, options["ids"], as_json)


def _merges(text: Corpus, vocab_size: str | None, min_count: int, lines: int, as_json: bool) -> None:
    from rich.table import Table

    from chainrule.errors import CorpusError, TokenizerError
    from chainrule.tokens.merges import count_pieces, learn_merges
    from chainrule.tokens.subword import DEFAULT_VOCAB_SIZE, readable
    from chainrule.tokens.vocabulary import Limit

    limit = Limit.parse(vocab_size, min_count)
    if limit.percent is not None:
        raise TokenizerError("a share of the words cannot bound a subword vocabulary: give a number")
    pieces = count_pieces(text.blocks())
    if not pieces:
        raise CorpusError(f"{text.name}: empty: there is no text to count")
    found = islice(learn_merges(pieces, limit.top or DEFAULT_VOCAB_SIZE, max(2, min_count)), lines)
    if as_json:
        print_json([{"left": readable(m.left), "right": readable(m.right), "count": m.count} for m in found])
        return
    table = Table(title="a vocabulary of 256 bytes grows")
    for heading in ("merge", "left", "right", "token", "count", "vocabulary"):
        table.add_column(heading, justify="right" if heading in ("merge", "count", "vocabulary") else "left")
    for i, merge in enumerate(found, start=1):
        left, right, token = (repr(readable(piece)) for piece in (merge.left, merge.right, merge.token))
        table.add_row(str(i), left, right, token, f"{merge.count:,}", f"{merge.vocab_size:,}")
    console().print(table)


def _show(tokenizer: Tokenizer, text: Corpus, lines: int) -> None:
    from rich.text import Text

    from chainrule.errors import CorpusError
    from chainrule.tokens.base import lines_of

    screen = console()
    if not any(text.blocks()):
        raise CorpusError(f"{text.name}: empty: there is no text to show")
    every_line = (line for block in text.blocks() for line in lines_of(block))
    for line in islice(every_line, lines):
        shown = Text()
        for place, token in enumerate(tokenizer.encode(line.decode())):
            if not screen.is_terminal and place:
                shown.append("|")  # where there are no colours
            elif tokenizer.kind == "word" and place:
                shown.append(" ")
            shown.append(tokenizer.token(int(token)), style=_COLOURS[place % len(_COLOURS)])
        screen.print(shown, soft_wrap=True)


def _write(tokenizer: Tokenizer, folder: Path) -> None:
    from chainrule.tokens.registry import FILE_NAME, dump_tokenizer

    folder.mkdir(parents=True, exist_ok=True)
    (folder / FILE_NAME).write_text(dump_tokenizer(tokenizer), encoding="utf-8")


def _summary(tokenizer: Tokenizer, text: Corpus, ids: str | None, as_json: bool) -> None:
    import tempfile
    import time

    from rich.table import Table

    from chainrule.cli.progress import terminal_progress
    from chainrule.tokens.ids import encode_corpus

    with tempfile.TemporaryDirectory(prefix="chainrule-") as folder:
        began = time.perf_counter()
        encoded = encode_corpus(text, tokenizer, Path(ids or f"{folder}/ids"), terminal_progress())
        seconds = time.perf_counter() - began
    figures: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        "lines": encoded.lines,
        "bytes": encoded.bytes,
        "tokens": encoded.tokens,
        "oov": encoded.unknown / encoded.tokens,
        "bytes_per_token": encoded.bytes / encoded.tokens,
        "megabytes_per_second": encoded.bytes / 1e6 / seconds,
        "id_type": encoded.ids.dtype.name,
    }
    if as_json:
        print_json(figures)
        return
    table = Table(show_header=False)
    for key, value in figures.items():
        shown = f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else value
        table.add_row(key.replace("_", " "), shown)
    console().print(table)
