"""`chainrule tokenize`: text as tokens, shown, counted and written down."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.output import console, number, print_json, print_table, terminal_progress
from chainrule.errors import CorpusError, FolderError

if TYPE_CHECKING:
    from chainrule.tokens.ids import Encoded

_COLOURS = tuple(f"black on bright_{name}" for name in ("cyan", "yellow", "green", "magenta"))


@click.command(short_help="Learn a tokenizer from CORPUS, and show what it does.")
@texts.corpus_argument
@texts.tokenizer_options("bpe")
@opt.option("--out DIR", "Write the tokenizer to DIR/tokenizer.json.")
@opt.option("--ids FILE", "Write the ids: uint16, or uint32 where V > 65,536.", type=click.Path(dir_okay=False))
@opt.overwrite("a tokenizer or a FILE")
@opt.option("--show", "Show the first lines with their tokens in colours.")
@opt.option("--merges", "Show how BPE learns, merge by merge with its count.")
@opt.option("--lines N", "Lines or merges to show.", type=click.IntRange(1), default=20)
@opt.executor_options
@texts.corpus_options
@opt.json
def tokenize(
    corpus: tuple[str, ...], overwrite: bool, show: bool, merges: bool, lines: int, as_json: bool, **options: Any
) -> None:
    """Learn a tokenizer from CORPUS, or take one from a folder, and show its tokens.

    \b
    chainrule tokenize corpus.txt --tokenizer bpe --vocab-size 1000 --show
    chainrule tokenize corpus.txt --merges
    chainrule tokenize corpus.txt --tokenizer model --ids corpus.ids
    """
    from chainrule.system.disk import replaced_path, scratch_folder
    from chainrule.tokens.ids import check_ids_file

    if bool(options["ids"]) + show + merges > 1:
        raise click.UsageError("choose one of --ids, --show and --merges")
    if options["executor"] != "embedded" and (show or merges):
        raise click.UsageError("--show and --merges need no executor: leave out --executor")
    if merges and options["out"]:
        raise click.UsageError("--merges only shows how BPE learns: leave out --out, or --merges")
    if options["out"]:
        _check_folder(Path(options["out"]), overwrite)
    opt.check_new_file(options["ids"], "--ids", overwrite)
    text = texts.open_corpus(options, *corpus)
    if options["ids"]:
        check_ids_file(Path(options["ids"]), text)
    if merges:
        if options["tokenizer"] != "bpe" or options["vocabulary"]:
            raise click.UsageError("only BPE merges: --merges goes with --tokenizer bpe")
        _merges(text, options["vocab_size"], options["min_count"], lines, as_json)
        text.note_losses(terminal_progress())
        return
    from chainrule.tokens.registry import write_tokenizer

    choice = texts.tokenizer_choice(options)
    encoded = None
    if show:
        tokenizer = choice.make(text, terminal_progress())
    else:
        with (
            opt.opened_executor(options) as executor,
            scratch_folder() as folder,
            replaced_path(Path(options["ids"] or folder / "ids")) as ids,
        ):
            tokenizer, encoded = choice.make_and_encode(text, ids, terminal_progress(), executor)
    if options["out"]:
        write_tokenizer(tokenizer, Path(options["out"]))
    if encoded is None:
        _show(tokenizer, text, lines, as_json)
        text.note_losses(terminal_progress())
    else:
        _summary(tokenizer, encoded, as_json)


def _merges(text: cr.Corpus, vocab_size: str | None, min_count: int, lines: int, as_json: bool) -> None:
    from chainrule.tokens.subwords.merges import count_pieces, learn_merges
    from chainrule.tokens.subwords.tokenizer import readable, vocabulary_size
    from chainrule.tokens.vocabulary import Limit

    size = vocabulary_size("bpe", Limit.parse(vocab_size, min_count))
    pieces = count_pieces(text.blocks())
    if not pieces:
        raise CorpusError(f"{text.name} is empty")
    found = islice(learn_merges(pieces, size, max(2, min_count)), lines)
    if as_json:
        print_json([{"left": readable(m.left), "right": readable(m.right), "count": m.count} for m in found])
        return
    rows = []
    for merge in found:
        pieces_of = (repr(readable(piece)) for piece in (merge.token, merge.left, merge.right))
        rows.append([*pieces_of, f"{merge.count:,}", f"{merge.vocab_size:,}"])
    headings = "token", "left", "right", "count", "vocabulary"
    print_table(console(), headings, rows, title="256 bytes, and what is merged")


def _show(tokenizer: cr.Tokenizer, text: cr.Corpus, lines: int, as_json: bool) -> None:
    from rich.text import Text

    from chainrule.tokens.base import lines_of

    if not any(text.blocks()):
        raise CorpusError(f"{text.name} is empty")
    every_line = (line for block in text.blocks() for line in lines_of(block))
    tokens = [
        [tokenizer.token(int(i)) for i in tokenizer.encode(line.decode())] for line in islice(every_line, lines)
    ]
    if as_json:
        print_json(tokens)
        return
    screen = console()
    has_colours = screen.is_terminal and not screen.no_color
    between = "|" if not has_colours else "" if tokenizer.lossless else " "  # tells tokens apart
    for line in tokens:
        shown = Text()
        for place, token in enumerate(line):
            shown.append(between if place else "")
            shown.append(token, style=_COLOURS[place % len(_COLOURS)])
        screen.print(shown, soft_wrap=True)


def _check_folder(folder: Path, overwrite: bool) -> None:
    """Refuse a folder that has a tokenizer, or that is a model folder, whose tokenizer belongs to its weights."""
    from chainrule.folder import MANIFEST
    from chainrule.tokens.registry import FILE_NAME

    if folder.is_file():
        raise FolderError(f"{folder} is a file, not a folder; choose another --out")
    if (folder / MANIFEST).exists():
        raise FolderError(f"{folder} is a model folder; choose another --out")
    if (folder / FILE_NAME).exists() and not overwrite:
        raise FolderError(f"{folder} has a tokenizer already; choose another --out, or --overwrite it")


def _summary(tokenizer: cr.Tokenizer, encoded: Encoded, as_json: bool) -> None:
    figures: dict[str, Any] = {
        "vocab_size": tokenizer.vocab_size,
        **{name: getattr(encoded, name) for name in ("lines", "bytes", "tokens")},
        "oov": encoded.unknown / encoded.tokens,
        "bytes_per_token": encoded.bytes / encoded.tokens,
        "id_type": encoded.ids.dtype.name,
    }
    if as_json:
        print_json(figures)
        return
    rows = []
    for key, value in figures.items():
        shown = f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else value
        rows.append([key.replace("_", " "), f"{value:.2%}" if key == "oov" else shown])
    print_table(console(), ["tokenizer", tokenizer.name], rows)
