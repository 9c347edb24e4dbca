"""Lines of text and JSON on standard output, after the line that says a verb is starting."""

from __future__ import annotations

import os
import sys
import textwrap
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from rich.console import Console


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


def say(screen: Console, message: str, indent: int = 0, emphasis: int = 0) -> None:
    """Print a sentence; on a terminal it wraps between words, further indented, elsewhere it stays one line.

    Its first `emphasis` characters are coloured.
    """
    from rich.text import Text

    if indent and screen.is_terminal:
        message = textwrap.fill(
            message,
            max(screen.width, 20),
            initial_indent=" " * indent,
            subsequent_indent=" " * (indent + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
    text = Text(message if screen.is_terminal else " " * indent + message)
    text.stylize("cyan", 0, emphasis)
    screen.print(text, soft_wrap=not screen.is_terminal)


def print_json(value: Any) -> None:
    """Print a value as one JSON document."""
    from chainrule.folder import to_json

    echo(to_json(value, indent=2))
