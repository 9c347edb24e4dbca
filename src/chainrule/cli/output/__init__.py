"""What verbs print: lines, JSON, sentences, tables, and the numbers in them.

measured.py  the figures of models on a text
progress.py  bars of progress
typing.py    a line that is typed, with suggestions below it
"""

from __future__ import annotations

import io
import os
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, cast

import click

from chainrule.system.display import CONTROLS
from chainrule.system.display import number as number

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Column, Table

    from chainrule.system.display import Part
    from chainrule.system.progress import Progress


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
"""Shown when a verb starts, since libraries may take seconds to load; every function that prints ends it first."""


# -- lines ------------------------------------------------------------------------------------------------


def echo(text: str = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a text as it is; on a terminal, characters that it would take for a command are shown as signs."""
    WAITING.end()
    stream = sys.stderr if err else sys.stdout
    # without color=True, click would take colour codes out of a text that goes to a pipe
    click.echo(neutral(text) if stream is not None and stream.isatty() else text, nl=nl, err=err, color=True)


class _Terminal(io.RawIOBase):
    """Takes whole texts as bytes and prints them by `echo`."""

    def write(self, texts: Any) -> int:
        echo(bytes(texts).decode("utf-8", "replace"), nl=False)
        return len(texts)


def binary_output() -> IO[bytes]:
    """Return standard output for texts that are bytes; a terminal is shown them as `echo` shows a text."""
    return cast("IO[bytes]", _Terminal() if sys.stdout.isatty() else sys.stdout.buffer)


def echo_json(value: Any, *, err: bool = False) -> None:
    """Print a value as JSON on one line."""
    from chainrule.folder import to_json

    echo(to_json(value), err=err)


def print_json(value: Any) -> None:
    """Print a value as one JSON document of several lines."""
    from chainrule.folder import to_json

    echo(to_json(value, indent=2))


def measured_objects(results: Sequence[tuple[str, Any]], **more: Any) -> Any:
    """Return measurements by their folders as plain values: an object for one folder, a list for several."""
    objects = [{"folder": folder, **more, **measured.to_json()} for folder, measured in results]
    return objects[0] if len(objects) == 1 else objects


def console() -> Console:
    """Return the console on standard output; where it is no terminal, it is wide enough for tables."""
    from rich.console import Console

    WAITING.end()

    class Screen(Console):
        def render(self, renderable: Any, options: Any = None) -> Iterable[Any]:
            for segment in super().render(renderable, options):
                if self.is_terminal and not segment.control:
                    yield segment._replace(text=neutral(segment.text))
                else:
                    yield segment

        def on_broken_pipe(self) -> None:
            raise BrokenPipeError  # which main.py handles; Rich would exit with 1

    out = Console()
    width = None if out.is_terminal else max(out.width, 120)
    return Screen(highlight=False, markup=False, emoji=False, width=width)  # text is printed as it is


def say(screen: Console, message: str, indent: int = 0, emphasis: int = 0) -> None:
    """Print a sentence; on a terminal it wraps between words, further indented, elsewhere it stays one line.

    Its first `emphasis` characters are coloured.
    """
    from rich.text import Text

    if indent and screen.is_terminal:
        message = wrapped(message, screen.width, indent)
    text = Text(message if screen.is_terminal else " " * indent + message)
    text.stylize("cyan", 0, emphasis)
    screen.print(text, soft_wrap=not screen.is_terminal)


def wrapped(text: str, width: int, indent: int = 0) -> str:
    """Wrap a sentence between words; with an `indent`, the lines after the first are indented further."""
    how: Any = {"break_long_words": False, "break_on_hyphens": False, "initial_indent": " " * indent}
    return textwrap.fill(text, max(width, 20), subsequent_indent=" " * (indent + 4) if indent else "", **how)


def terminal_progress() -> Progress:
    """Return the progress that a verb shows."""
    from chainrule.cli.output.progress import TerminalProgress

    return TerminalProgress()


# -- numbers and words ------------------------------------------------------------------------------------


def count(amount: int, unit: str) -> str:
    """Write an amount with its unit, which has an s unless there is one: 1 token, 2,000 tokens."""
    return f"{amount:,} {unit}" if amount == 1 else f"{amount:,} {unit}s"


def cut(text: str, width: int, keep: Literal["start", "end"] = "start") -> str:
    """Cut a text to `width` columns, between words and with an ellipsis; only a long word is cut itself.

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


_SIGNS = CONTROLS | dict.fromkeys(range(0x80, 0xA0), 0xFFFD)


def neutral(text: str) -> str:
    """Replace each control character, but for line ends and tabs, by a sign that shows it and does nothing.

    >>> neutral("\x1b]0;title\x07 done")
    '␛]0;title␇ done'
    """
    return text.translate(_SIGNS)


def printable(text: str) -> str:
    """Replace by a space each character that a terminal would take for a command."""
    return "".join(character if character.isprintable() else " " for character in text)


# -- tables -----------------------------------------------------------------------------------------------

_WIDEST = 1000  # columns of the widest table that is measured
_GAP, _TIGHT = 3, 1  # columns between two of a table: the usual, and where there is little room
_LONGEST = 24  # letters of the longest word that a narrow table keeps whole


def results_table(*headings: str, title: str = "", left: Sequence[int] = ()) -> Table:
    """Make a table: its first column is a name, which may wrap or be cut; the others are figures, never cut.

    The columns at the places `left` are words, and start at the left.
    """
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD,
        title=title or None,
        title_style="bold",
        title_justify="left",
        show_edge=False,
        pad_edge=False,
    )
    table.add_column(headings[0], overflow="ellipsis", min_width=8)
    for place, heading in enumerate(headings[1:], start=1):
        table.add_column(heading, justify="left" if place in left else "right", no_wrap=True)
    return table


def show_table(screen: Console, table: Table) -> None:
    """Print a table; on a narrow terminal its figures come in blocks, since one that is cut would be wrong.

    Where there is no terminal, the table is as wide as it needs to be, and nothing wraps.
    """
    from rich.measure import Measurement

    width = screen.width
    if screen.is_terminal:
        for place, (block, needed) in enumerate(_blocks(screen, table)):
            if place:
                screen.print()
            screen.width = max(width, needed)
            screen.print(block)
    else:
        screen.width = max(width, Measurement.get(screen, screen.options.update(max_width=_WIDEST), table).maximum)
        with screen.capture() as captured:
            screen.print(table)
        screen.out("\n".join(line.rstrip() for line in captured.get().split("\n")), end="", highlight=False)
    screen.width = width


def _blocks(screen: Console, table: Table) -> list[tuple[Table, int]]:
    """Divide a table into parts that fit the screen, each with the width that it needs.

    It stays one if it fits, with less space between the columns if need be. Otherwise each part has the first
    column, and as many of the others as there is room for.
    """
    needs = [_needed(screen, column) for column in table.columns]
    edge = 2 * (table.show_edge and table.box is not None) + 2 * table.pad_edge

    def width(columns: Sequence[int], gap: int) -> int:
        return edge + sum(needs[i] for i in columns) + gap * (len(columns) - 1)

    columns = range(len(needs))
    for gap in (_GAP, _TIGHT):
        if (whole := width(columns, gap)) <= screen.width:
            return [(_part(table, columns, gap), whole)]
    parts: list[list[int]] = []
    for column in columns[1:]:
        if parts and width([*parts[-1], column], _GAP) <= screen.width:
            parts[-1].append(column)
        else:
            parts.append([0, column])
    return [(_part(table, part, _GAP), width(part, _GAP)) for part in parts or [[0]]]


def _needed(screen: Console, column: Column) -> int:
    """Return the width that a column needs: one that wraps needs its longest word, unless that is very long."""
    from rich.measure import Measurement

    room = screen.options.update(max_width=_WIDEST)
    measured = [Measurement.get(screen, room, cell) for cell in (column.header, *column.cells)]
    if column.no_wrap:
        return max(one.maximum for one in measured)
    return max(min(max(one.minimum for one in measured), _LONGEST), column.min_width or 0)


def _part(table: Table, columns: Sequence[int], gap: int) -> Table:
    """Return some columns of a table, with `gap` spaces between them."""
    part = copy(table)
    part.columns = [replace(table.columns[i], _index=place) for place, i in enumerate(columns)]
    part.padding = (0, (gap - 1) // 2)
    return part


# -- results ----------------------------------------------------------------------------------------------


def show(screen: Console, parts: Iterable[Part], *, style: str = "bold") -> None:
    """Print the parts of a result, sentences and tables; rows that stand out have the style."""
    from chainrule.system.display import ResultTable

    for part in parts:
        if isinstance(part, ResultTable):
            table = results_table(*part.headings, title=part.title, left=part.left)
            for place, row in enumerate(part.rows):
                table.add_row(*row, style=style if place in part.strong else None)
            show_table(screen, table)
        else:
            say(screen, part.lstrip(" "), indent=len(part) - len(part.lstrip(" ")))


def emit(as_json: bool, value: Any, *parts: Part, style: str = "bold") -> None:
    """Print a result: as JSON its plain value, else its parts for people."""
    if as_json:
        print_json(value)
    else:
        show(console(), parts, style=style)


def draw(path: str | None, picture: Callable[[], str]) -> list[str]:
    """Write a picture, the text of an SVG file, to `path` if there is one; return the line that says so.

    The picture comes before what is printed, which may end early, as in `| head`; its line comes last.
    """
    from chainrule.system.disk import replaced_file

    if path is None:
        return []
    with replaced_file(Path(path)) as file:
        file.write(picture().encode())
    return [f"the picture is in {path}"]


def intrinsic(lm: Any, texts: Sequence[str]) -> str:
    """Return the bits per byte of texts under a language model, for a table; an empty text for other models."""
    import chainrule as cr

    return cr.evaluate(lm, list(texts)).figures()["bits/byte"] if isinstance(lm, cr.LanguageModel) else ""
