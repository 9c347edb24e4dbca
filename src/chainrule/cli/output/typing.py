"""A line that is typed on a terminal, with suggestions below it.

    Tab       takes the suggestion that is marked, the first unless an arrow has moved the mark
    1 ... 9   take the suggestion of that number; after Ctrl-V they are typed
    ↑ ↓       move the mark
    Enter     ends the line; Backspace, Ctrl-W and Ctrl-U erase a character, a word, all of it
    Ctrl-C    and Ctrl-D quit

A suggestion is taken with a space after it, which goes again where a mark of punctuation is typed next.
"""

from __future__ import annotations

import codecs
import os
import select
import sys
import termios
import tty
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, TypeAlias

Suggestions: TypeAlias = Sequence[tuple[str, str]]
"""Words, and what each adds to the text."""
Suggest: TypeAlias = Callable[[str], Suggestions]

_QUIT = ("\x03", "\x04")
_BACKSPACE = ("\x7f", "\x08")
_CLOSING = ".,;:!?)]}'\"…"
_ARROWS = {"\x1b[A": -1, "\x1bOA": -1, "\x1b[B": 1, "\x1bOB": 1}


class TypedLine:
    """The text that has been typed, what is suggested, and which suggestion is marked."""

    def __init__(self, suggest: Suggest) -> None:
        self._suggest = suggest
        self.text = ""
        self.suggestions: Suggestions = ()
        self.marked = 0
        self.keys = 0
        """How many keys were pressed for this line."""
        self._literal = False
        self._spaced = False  # whether the last space came with a suggestion

    def refresh(self) -> None:
        """Ask what may come next."""
        self.suggestions, self.marked = self._suggest(self.text), 0

    def press(self, key: str) -> Literal["line", "quit"] | None:
        """Take a key; returns whether it ended the line, or all of it."""
        if key in _QUIT:
            return "quit"
        self.keys += 1
        if key in ("\r", "\n"):
            return "line"
        if self._literal:
            self._literal = False
            self._type(key)
        elif key in _ARROWS:
            self.marked = (self.marked + _ARROWS[key]) % max(len(self.suggestions), 1)
        elif key == "\t":
            self._take(self.marked)
        elif key in "123456789" and int(key) <= len(self.suggestions):
            self._take(int(key) - 1)
        else:
            self._edit(key)
        return None

    def _edit(self, key: str) -> None:
        if key in _BACKSPACE:
            self._become(self.text[:-1])
        elif key == "\x17":
            words = self.text.rstrip()
            self._become(words[: max(words.rfind(" "), words.rfind("\t")) + 1])
        elif key == "\x15":
            self._become("")
        elif key == "\x16":
            self._literal = True
        else:
            self._type(key)

    def _type(self, key: str) -> None:
        if not key.isprintable():
            return
        before = self.text[:-1] if self._spaced and key in _CLOSING else self.text
        self._become(before + ("" if self._spaced and key == " " else key))

    def _take(self, which: int) -> None:
        if which < len(self.suggestions):
            self._become(self.text + self.suggestions[which][1] + " ", spaced=True)

    def _become(self, text: str, *, spaced: bool = False) -> None:
        """Change the text; what was suggested for the one before does not hold any more."""
        self.text, self._spaced = text, spaced
        self.suggestions, self.marked = (), 0

    def drawn(self, width: int) -> str:
        """The line and the suggestions below it, as a terminal draws them from where the line begins."""
        from rich.cells import cell_len

        room = max(width - 2, 8)
        shown = self.text
        while cell_len(shown) > room:
            shown = shown[1:]
        ghost = self.suggestions[self.marked][1] if self.suggestions else ""
        ghost = ghost if cell_len(shown + ghost) <= room else ""
        menu = ""
        for number, (word, _) in enumerate(self.suggestions):
            entry = f"{number + 1} {word}"
            if cell_len(_plain(menu)) + cell_len(entry) + 2 > room:
                break
            menu += (f"\x1b[7m{entry}\x1b[0m" if number == self.marked else entry) + "  "
        back = f"\x1b[{cell_len(shown)}C" if shown else ""
        return f"\r\x1b[J{shown}\x1b[2m{ghost}\x1b[0m\r\n{menu}\x1b[1A\r{back}"


def _plain(drawn: str) -> str:
    return drawn.replace("\x1b[7m", "").replace("\x1b[0m", "")


@contextmanager
def _raw(descriptor: int) -> Iterator[None]:
    """The terminal hands over each key as it is pressed, also Ctrl-C; afterwards it is as it was."""
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor, termios.TCSADRAIN)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _keys(descriptor: int) -> Iterator[str]:
    """The keys that are pressed: characters, and the sequences that arrows send; "" while none is waiting."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    waiting = ""
    while True:
        if not waiting:
            if not _is_ready(descriptor, 0):
                yield ""
            piece = os.read(descriptor, 1024)
            if not piece:
                return
            waiting = decoder.decode(piece)
            continue
        if waiting == "\x1b" and _is_ready(descriptor, 0.05):  # the rest of a sequence comes right after its start
            waiting += decoder.decode(os.read(descriptor, 1024))
        size = _size_of_key(waiting)
        yield waiting[:size]
        waiting = waiting[size:]


def _size_of_key(waiting: str) -> int:
    """How many characters the first key has sent: ESC [ parameters letter, ESC O letter, or one character."""
    if waiting[:2] == "\x1b[":
        return next((place + 1 for place in range(2, len(waiting)) if "@" <= waiting[place] <= "~"), len(waiting))
    return min(3, len(waiting)) if waiting[:2] == "\x1bO" else 1


def _is_ready(descriptor: int, seconds: float) -> bool:
    return bool(select.select([descriptor], [], [], seconds)[0])


def typed_lines(suggest: Suggest) -> Iterator[TypedLine]:
    """The lines that someone types on the terminal of standard input, drawn on standard error."""
    descriptor, screen = sys.stdin.fileno(), sys.stderr
    line = TypedLine(suggest)
    with _raw(descriptor):
        for key in _keys(descriptor):
            if key == "":  # nothing is waiting: there is time to think
                if not line.suggestions:
                    line.refresh()
                screen.write(line.drawn(_width(screen.fileno())))
                screen.flush()
                continue
            ended = line.press(key)
            if ended:
                screen.write("\r\x1b[J")
                screen.flush()
            if ended == "quit":
                return
            if ended == "line":
                yield line
                line = TypedLine(suggest)


def _width(descriptor: int) -> int:
    try:
        return os.get_terminal_size(descriptor).columns or 80
    except OSError:
        return 80
