"""Arguments, options and printing of results that the verbs share."""

from __future__ import annotations

import copy
import math
import os
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from chainrule.evaluation.measure import Measured
    from chainrule.lm import LanguageModel
    from chainrule.pipeline.prepare import TokenizerChoice
    from chainrule.text.corpus import Corpus

Command = TypeVar("Command", bound=Callable[..., Any])

TOKENIZER_HELP = "word, word:unicode, char, byte, bpe, wordpiece, unigram, or a folder that holds one."


class RenamedOption(click.Option):
    """An option whose earlier names, declared after its present one, still work but are not shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """The option by its present name."""
        return click.Option.get_help_record(self._without_earlier_names(), ctx)

    def get_error_hint(self, ctx: click.Context | None) -> str:
        """The option by its present name."""
        return click.Option.get_error_hint(self._without_earlier_names(), ctx)

    def _without_earlier_names(self) -> RenamedOption:
        option = copy.copy(self)
        option.opts = self.opts[:1]
        return option


def held_out_option(explanation: str) -> Callable[[Command], Command]:
    """--held-out, a text of its own to tune on; --valid, its earlier name, works in 0.2 too."""
    return click.option(
        "--held-out",
        "--valid",
        "held_out",
        cls=RenamedOption,
        type=click.Path(),
        metavar="FILE",
        help=explanation,
    )


def read_prompt_option(command: Command) -> Command:
    """--prompt, for verbs that look at how a network reads; --text, its earlier name, works in 0.2 too."""
    return click.option(
        "--prompt",
        "--text",
        "prompt",
        cls=RenamedOption,
        required=True,
        help="What the network reads; its last token is predicted.",
    )(command)


def minutes_option(explanation: str) -> Callable[[Command], Command]:
    """--minutes: the most time to train."""
    return click.option("--minutes", type=click.FloatRange(min=0, min_open=True), metavar="M", help=explanation)


def corpus_argument(command: Command) -> Command:
    """CORPUS...: where the text is."""
    return click.argument("corpus", nargs=-1, required=True, metavar="CORPUS...", shell_complete=_texts)(command)


def model_argument(command: Command) -> Command:
    """DIR: a model folder."""
    return click.argument("folder", metavar="DIR", type=click.Path())(command)


def _texts(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.text.corpus import BUILTIN

    if incomplete and BUILTIN.startswith(incomplete):
        return [CompletionItem(BUILTIN)]
    return [CompletionItem(incomplete, type="file")]


def json_option(command: Command) -> Command:
    """--json: whether to print JSON, for machines."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for machines.")(command)


def encoding_option(command: Command) -> Command:
    """--encoding-errors: what to do with bytes that are not UTF-8."""
    return click.option(
        "--encoding-errors",
        type=click.Choice(["strict", "replace"]),
        default="strict",
        show_default=True,
        help="Stop at bytes that are not UTF-8, or replace them with U+FFFD and say how many.",
    )(command)


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
    for option in reversed(options):
        command = option(command)
    return command


def open_corpora(options: Mapping[str, Any], *texts: Sequence[str] | None) -> list[Corpus | None]:
    """A corpus for each sequence of sources, None for None, as the options of `corpus_options` say."""
    from chainrule.text.corpus import Corpus
    from chainrule.text.records import Fields

    names, identity, files = options["fields"], options.get("id_field"), options["files"]
    if files and not any(Path(source).is_dir() for sources in texts for source in sources or ()):
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


def open_corpus(options: Mapping[str, Any], *sources: str) -> Corpus:
    """The corpus of the sources."""
    (corpus,) = open_corpora(options, sources)
    assert corpus is not None
    return corpus


def overwrite_option(what: str) -> Callable[[Command], Command]:
    """--overwrite: whether to replace what exists."""
    return click.option("--overwrite", is_flag=True, help=f"Replace {what} that exists.")


def check_new_file(path: str | Path, option: str, overwrite: bool) -> None:
    """Refuse, before any work, a file that exists, or one in a folder that does not."""
    from chainrule.errors import FolderError

    path = Path(path)
    if path.is_dir():
        raise FolderError(f"{path} is a folder; choose another {option}")
    if path.is_file() and not overwrite:
        raise FolderError(f"{path} exists; choose another {option}, or --overwrite it")
    if not path.parent.is_dir():
        raise FolderError(f"{path}: there is no folder {path.parent}; make it, or choose another {option}")


def seed_option(command: Command) -> Command:
    """--seed: the seed of the random generators."""
    return click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random generators.")(
        command
    )


def device_option(command: Command) -> Command:
    """--device: where to compute."""
    return click.option(
        "--device",
        default="cpu",
        show_default=True,
        metavar="NAME",
        help="Where to compute: cpu, cuda (or cuda:1, mps, ... as torch names it), or auto.",
    )(command)


def precision_option(command: Command) -> Command:
    """--dtype: in which precision a network computes."""
    return click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16"]),
        default="float32",
        show_default=True,
        help="The precision in which a network computes: bfloat16 is faster on a GPU, and a little less exact.",
    )(command)


def note_slow_precision(dtype: str, *models: LanguageModel) -> None:
    """Tell the user if --dtype bfloat16, which is meant to be faster, is slower on this CPU."""
    from chainrule.devices import has_fast_bfloat16

    on_cpu = any(lm.device == "cpu" and lm.dtype == "bfloat16" for lm in models)
    if dtype == "bfloat16" and on_cpu and not has_fast_bfloat16():
        from chainrule.cli.progress import terminal_progress

        terminal_progress().note("this CPU is slow in bfloat16: without --dtype it would be faster")


def heal_option(command: Command) -> Command:
    """--heal: whether a prompt may stop inside a word."""
    return click.option(
        "--heal/--no-heal",
        default=True,
        show_default=True,
        help="A prompt is text that may stop inside a word, or its tokens are complete.",
    )(command)


def note_unknown_prompt(lm: LanguageModel, prompt: str, heal: bool = True) -> None:
    """Tell the user if some of the prompt is unknown to the model."""
    from chainrule.cli.progress import terminal_progress
    from chainrule.decode.generate import context_of
    from chainrule.decode.healing import find_openings

    _, (openings,) = find_openings(lm, [context_of(lm, prompt)], heal=heal)
    if lm.tokenizer.unk in openings.settled:
        terminal_progress().note("some of the prompt is unknown to the model, and tells it nothing")


def context_option(command: Command) -> Command:
    """--context: where a sequence ends."""
    return click.option(
        "--context",
        type=click.Choice(["line", "stream"]),
        default="line",
        show_default=True,
        help="A line is a sequence, or context flows across lines.",
    )(command)


def tokenizer_options(default: str) -> Callable[[Command], Command]:
    """--tokenizer, --vocab-size, --min-count and --vocabulary, which `tokenizer_choice` reads."""

    def decorate(command: Command) -> Command:
        options = (
            click.option(
                "--tokenizer",
                default=default,
                show_default=True,
                help=TOKENIZER_HELP,
                shell_complete=_tokenizers,
            ),
            click.option(
                "--vocab-size",
                metavar="N|P%",
                help="Keep the N, or the P percent, most frequent; special tokens come on top. "
                "[default: all; subwords 8192]",
            ),
            click.option(
                "--min-count",
                type=int,
                default=1,
                show_default=True,
                help="What is seen less often is unknown.",
            ),
            click.option(
                "--vocabulary",
                type=click.Path(),
                metavar="FILE",
                help="Know exactly the words of FILE, one on each line (word, word:unicode).",
            ),
        )
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def tokenizer_choice(options: Mapping[str, Any]) -> TokenizerChoice:
    """The tokenizer that the options of `tokenizer_options` choose."""
    from chainrule.pipeline.prepare import TokenizerChoice

    names = ("vocab_size", "min_count", "vocabulary")
    return TokenizerChoice(options["tokenizer"], **{name: options[name] for name in names})


def _tokenizers(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    from click.shell_completion import CompletionItem

    from chainrule.tokens.registry import tokenizer_names

    names = [CompletionItem(name) for name in tokenizer_names() if name.startswith(incomplete)]
    return names or [CompletionItem(incomplete, type="dir")]


class _WaitingLine:
    """A line on the terminal that lasts until there is something else to see."""

    def __init__(self) -> None:
        self.is_shown = False

    def show(self, message: str) -> None:
        """Show the message on standard error, if that is a terminal."""
        if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
            click.echo(f"{message} …", nl=False, err=True)
            self.is_shown = True

    def end(self) -> None:
        """Erase the message."""
        if self.is_shown:
            click.echo("\r\x1b[2K", nl=False, err=True)
            self.is_shown = False


WAITING = _WaitingLine()
"""Shown when a verb starts, since libraries may take seconds to load; what prints anything ends it first."""


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text as it is."""
    WAITING.end()
    click.echo(text, nl=nl, err=err)


def console() -> Console:
    """The console on standard output, for results; wide enough for tables where it is no terminal."""
    from rich.console import Console

    WAITING.end()

    class Screen(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which main.py handles; Rich would exit with 1

    out = Console()
    width = None if out.is_terminal else max(out.width, 120)
    return Screen(highlight=False, markup=False, emoji=False, width=width)  # text is printed as it is


_WIDEST = 1000  # columns of the widest table that is measured


def results_table(*headings: str, title: str | None = None) -> Table:
    """A table whose first column is a name, which may wrap or be cut, and whose others are figures, never cut."""
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, title=title, title_style="bold", title_justify="left", show_edge=False, pad_edge=False
    )
    table.add_column(headings[0], overflow="ellipsis", min_width=8)
    for heading in headings[1:]:
        table.add_column(heading, justify="right", no_wrap=True)
    return table


def show_table(screen: Console, table: Table) -> None:
    """Print a table; on a terminal that is too narrow its lines run on, since a truncated figure would be wrong.

    Where there is no terminal, the table is as wide as it needs to be, and nothing wraps.
    """
    from rich.measure import Measurement

    width = screen.width
    minimum, maximum = Measurement.get(screen, screen.options.update(max_width=_WIDEST), table)
    needed = minimum if screen.is_terminal else maximum
    screen.width = max(width, needed)
    screen.print(table)
    screen.width = width


def say(screen: Console, message: str, indent: int = 0) -> None:
    """Print a sentence; on a terminal it wraps between words, further indented, elsewhere it stays one line."""
    if indent and screen.is_terminal:
        message = textwrap.fill(
            message,
            max(screen.width, 20),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    screen.print(message if screen.is_terminal else " " * indent + message, soft_wrap=not screen.is_terminal)


UNPAID = "* a lower bound: white space, and the spelling of unknown tokens, are not counted"

SCORES = "(…) computed from scores, not from probabilities: it does not compare with the others"


def bits_per_byte(measured: Measured) -> str:
    """Bits per byte as text, with a * where they are only a lower bound (UNPAID explains it below the table)."""
    return figure(measured, measured.bits_per_byte) + ("" if measured.lossless else "*")


def figure(measured: Measured, value: float) -> str:
    """A figure as text, in brackets where it is made of scores (SCORES explains it below the table)."""
    return number(value, 4) if measured.normalised else f"({number(value, 4)})"


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    from chainrule.folder import to_json

    echo(to_json(value, indent=2))


def number(value: float, digits: int = 3) -> str:
    """A number for people: 1,234.5, 0.00123, ∞."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value == 0 or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:,.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}"


def count(amount: int, unit: str) -> str:
    """An amount with its unit, which has an s unless there is one: 1 token, 2,000 tokens."""
    return f"{amount:,} {unit}" if amount == 1 else f"{amount:,} {unit}s"


def cut(text: str, width: int, keep: Literal["start", "end"] = "start") -> str:
    """A text in at most `width` columns, cut between words with an ellipsis; only a long word is cut itself.

    >>> cut("connection refused", 15), cut("logs/2024/app.log:17", 15, keep="end"), cut("immeasurable", 5)
    ('connection…', '…app.log:17', 'imme…')
    """
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return text
    if keep == "end":
        backwards = set_cell_size(text[::-1], width - 1).rstrip()[::-1]
        place = min((i for i in (backwards.find("/"), backwards.find(" ")) if i >= 0), default=-1)
        return "…" + backwards[place + 1 :]
    start = set_cell_size(text, width - 1)
    is_whole = text[len(start) : len(start) + 1] in ("", " ")
    whole = start if is_whole or " " not in start.strip() else start.rpartition(" ")[0]
    return whole.rstrip() + "…"
