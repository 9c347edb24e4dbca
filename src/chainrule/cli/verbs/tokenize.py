"""`chainrule tokenize`: text as tokens, shown, counted and written down."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

import chainrule as cr
from chainrule.cli import options as opt
from chainrule.cli.options import texts
from chainrule.cli.output import console, emit, number, print_json, terminal_progress
from chainrule.errors import CorpusError, FolderError
from chainrule.system.display import ResultTable

if TYPE_CHECKING:
    from chainrule.tokens.ids import Encoded

_COLOURS = tuple(f"black on bright_{name}" for name in ("cyan", "yellow", "green", "magenta"))


@click.command(short_help="Learn a tokenizer from CORPUS, and show what it does.")
@texts.corpus_argument
@texts.tokenizer_options("bpe")
@opt.options("""
    --out DIR                            Write the tokenizer to DIR/tokenizer.json.
    --ids FILE : new                     Write the ids: uint16, or uint32 where V > 65,536.
    --overwrite                          Replace a tokenizer or a FILE that exists.
    --show                               Show the first lines with their tokens in colours.
    --merges                             Show how BPE learns, merge by merge with its count.
    --trace N : 1..
        Show N steps of BPE that begins with the characters of the words: the pairs counted, the merge, and the
        text after it.
    --compare NAME[:SIZE],... as compared
        Compare these tokenizers, learned from CORPUS, in one table: word,char,bpe:1000,wordpiece:1000.
    --held-out FILE... formerly --valid  With --compare: measure the tokenizers on this text, not on CORPUS.
    --lines N : 1.. = 20                 Lines or merges to show.
""")
@opt.group(opt.executor_options, texts.corpus_options, opt.json)
def tokenize(
    corpus: tuple[str, ...], overwrite: bool, show: bool, merges: bool, lines: int, as_json: bool, **options: Any
) -> None:
    """Learn a tokenizer from CORPUS, or take one from a folder, and show its tokens.

    CORPUS can also be a text of several words itself, in quotes.

    \b
    chainrule tokenize corpus.txt --tokenizer bpe --vocab-size 1000 --show
    chainrule tokenize corpus.txt --merges
    chainrule tokenize "love love cats" --trace 3
    chainrule tokenize train.txt --compare word,char,bpe:1000 --held-out test.txt
    chainrule tokenize corpus.txt --tokenizer model --ids corpus.ids
    """
    from chainrule.system.disk import replaced_path, scratch_folder
    from chainrule.tokens.ids import check_ids_file

    trace, compared = options["trace"], options["compared"]
    ways = {"--ids": options["ids"], "--show": show, "--merges": merges, "--trace": trace, "--compare": compared}
    chosen = [name for name, is_chosen in ways.items() if is_chosen]
    if len(chosen) > 1:
        raise click.UsageError(f"choose one of {' and '.join(chosen)}")
    if options["executor"] != "embedded" and chosen and chosen != ["--ids"]:
        raise click.UsageError(f"{chosen[0]} needs no executor: leave out --executor")
    if options["out"] and chosen and chosen[0] in ("--merges", "--trace", "--compare"):
        raise click.UsageError(f"{chosen[0]} writes no tokenizer: leave out --out, or {chosen[0]}")
    if options["held_out"] and not compared:
        raise click.UsageError("--held-out goes with --compare")
    if options["out"]:
        _check_folder(Path(options["out"]), overwrite)
    text = texts.open_text(options, corpus[0]) if len(corpus) == 1 else texts.open_corpus(options, *corpus)
    if options["ids"]:
        check_ids_file(Path(options["ids"]), text)
    if compared:
        _compare(text, compared, options, as_json)
        return
    if merges or trace:
        if options["tokenizer"] != "bpe" or options["vocabulary"]:
            raise click.UsageError(f"only BPE merges: {chosen[0]} goes with --tokenizer bpe")
        if trace:
            _trace(text, trace, options["min_count"], options["lowercase"], as_json)
        else:
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
    rows, described = [], []
    for merge in found:
        token, left, right = (readable(piece) for piece in (merge.token, merge.left, merge.right))
        described.append({"left": left, "right": right, "count": merge.count})
        rows.append([repr(token), repr(left), repr(right), f"{merge.count:,}", f"{merge.vocab_size:,}"])
    headings = "token", "left", "right", "count", "vocabulary"
    emit(as_json, described, ResultTable(headings, rows, "256 bytes, and what is merged"))


def _trace(text: cr.Corpus, count: int, min_count: int, lowercase: bool, as_json: bool) -> None:
    """Print the first steps of BPE from characters: all pairs, the merge, and the text after it."""
    from chainrule.tokens.lowercase import lowered
    from chainrule.tokens.subwords.merges import merge_steps

    words: list[str] = []
    for block in text.blocks():
        words += (lowered(block) if lowercase else block).decode().split()
    if not words:
        raise CorpusError(f"{text.name} is empty")
    steps = list(islice(merge_steps(Counter(words), min_count=max(2, min_count)), count))
    first = sorted(set("".join(words)))
    shown: list[dict[str, Any]] = [{"tokens": first, "text": [[*word] for word in words]}]
    parts = [f"V_0: {len(first)} characters: {' '.join(first)}", f"text: {_spelled(shown[0]['text'])}"]
    for place, step in enumerate(steps, start=1):
        pairs = [{"left": left, "right": right, "count": count} for left, right, count in step.ranked()]
        tokens = {word: [step.tokens[i] for i in ids] for word, ids in step.words.items()}
        spelled = [tokens[word] for word in words]
        shown.append({"pairs": pairs, "merged": pairs[0], "tokens": step.tokens, "text": spelled})
        counted = ", ".join(f"{one['left']}+{one['right']} {one['count']:,}" for one in pairs[:_PAIRS])
        more = f", and {len(pairs) - _PAIRS:,} pairs more" if len(pairs) > _PAIRS else ""
        left, right, times = pairs[0].values()
        parts += [
            f"\nstep {place}: {counted}{more}",
            f"merge {left} + {right} -> {left}{right} ({times:,} times); V_{place}: {len(step.tokens):,} tokens",
            f"text: {_spelled(spelled)}",
        ]
    if len(steps) < count:
        parts.append(f"\nno pair occurs {max(2, min_count)} times any more")
    emit(as_json, shown, *parts)


_PAIRS = 6  # of a step that are shown
_TEXT = 70  # characters of the text that are shown


def _spelled(words: list[list[str]]) -> str:
    """Return the beginning of a text with bars between the tokens of a word."""
    length = 0
    for place, tokens in enumerate(words):
        length += sum(map(len, tokens)) + 1
        if place and length > _TEXT:
            return f"{' '.join(map('|'.join, words[:place]))} …"
    return " ".join(map("|".join, words))


def _compare(text: cr.Corpus, names: str, options: Mapping[str, Any], as_json: bool) -> None:
    """Print a row for each tokenizer: its vocabulary, and what it makes of the text."""
    from chainrule.system.disk import scratch_folder
    from chainrule.tokens.ids import encode_corpus

    held_out = options["held_out"] and texts.open_corpus(options, *options["held_out"])
    measured = held_out or text
    words = sum(len(block.split()) for block in measured.blocks())
    found = []
    for given in names.split(","):
        name, _, size = (
            given.rpartition(":") if given.rpartition(":")[2].rstrip("%").isdigit() else (given, "", None)
        )
        own = {"tokenizer": name, "vocab_size": size or options["vocab_size"], "vocabulary": None}
        tokenizer = texts.tokenizer_choice({**options, **own}).sized_for(text).make(text, terminal_progress())
        with scratch_folder() as folder:
            encoded = encode_corpus(measured, tokenizer, folder / "ids", terminal_progress())
            tokens = encoded.tokens - encoded.lines  # without line ends, which all have alike
            unknown, in_bytes = encoded.unknown, encoded.bytes
            del encoded
        one: dict[str, Any] = {"tokenizer": given, "vocab_size": tokenizer.vocab_size, "tokens": tokens}
        one |= {"tokens_per_word": tokens / max(1, words), "bytes_per_token": in_bytes / max(1, tokens)}
        found.append(one | {"unknown": unknown, "oov": unknown / max(1, tokens)})
    forms = ("{}", "{:,}", "{:,}", "{:.3f}", "{:.3f}", "{:,}", "{:.2%}")
    rows = [[form.format(value) for form, value in zip(forms, one.values(), strict=True)] for one in found]
    headings = ["tokenizer", "vocabulary", "tokens", "tokens/word", "bytes/token", "unknown", "OOV"]
    emit(as_json, found, ResultTable(headings, rows), f"of {words:,} words; line ends are not counted as tokens")


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
    rows = []
    for key, value in figures.items():
        shown = f"{value:,}" if isinstance(value, int) else number(value) if isinstance(value, float) else value
        rows.append([key.replace("_", " "), f"{value:.2%}" if key == "oov" else shown])
    emit(as_json, figures, ResultTable(["tokenizer", tokenizer.name], rows))
