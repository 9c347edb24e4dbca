"""A line that is typed on a terminal, with suggestions below it.

    Tab       takes the suggestion that is marked, the first unless an arrow has moved the mark
    1 ... 9   take the suggestion of that number; after Ctrl-V they are typed
    ↑ ↓       move the mark
    Enter     ends the line; other keys edit it, as in a shell
    Ctrl-C    and Ctrl-D quit

A suggestion is taken with a space after it; the space is removed if a punctuation mark is typed next.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.input import Input, create_input
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import AfterInput
from prompt_toolkit.output import Output
from prompt_toolkit.output.vt100 import Vt100_Output

Suggestions: TypeAlias = Sequence[tuple[str, str]]
"""Words, and what each adds to the text."""
Suggest: TypeAlias = Callable[[str], Suggestions]

_CLOSING = ".,;:!?)]}'\"…"


class TypedLine:
    """The text that has been typed, its suggestions, and which of them is marked."""

    def __init__(self, suggest: Suggest) -> None:
        self._suggest = suggest
        self._known: tuple[str | None, Suggestions] = (None, ())
        self._taken: str | None = None  # the text after a suggestion was taken: its last space may be removed
        self.buffer = Buffer(multiline=False)
        self.marked = 0
        self.keys = 0
        """How many keys were pressed for this line."""

    @property
    def text(self) -> str:
        """The text before the cursor."""
        return self.buffer.document.text_before_cursor

    @property
    def suggestions(self) -> Suggestions:
        """The words that may come next; they are searched for once for a text."""
        if self._known[0] != self.text:
            self._known, self.marked = (self.text, self._suggest(self.text)), 0
        return self._known[1]

    def take(self, which: int) -> None:
        """Append the suggestion of that number, if there is one."""
        if which < len(self.suggestions):
            self.buffer.insert_text(self.suggestions[which][1] + " ")
            self._taken = self.text

    def ghost(self) -> StyleAndTextTuples:
        """Show what the marked suggestion would add."""
        return [("fg:ansigray", self.suggestions[self.marked][1])] if self.suggestions else []

    def menu(self) -> StyleAndTextTuples:
        """Show the suggestions with their numbers, the marked one in reverse."""
        parts: StyleAndTextTuples = []
        for number, (word, _) in enumerate(self.suggestions):
            parts += [("reverse" if number == self.marked else "", f"{number + 1} {word}"), ("", "  ")]
        return parts

    def bindings(self) -> KeyBindings:
        """Return the keys that do something else than edit the text."""
        keys = KeyBindings()

        @keys.add("c-c")
        @keys.add("c-d")
        def _quit(event: KeyPressEvent) -> None:
            event.app.exit(result=False)

        @keys.add("enter")
        def _end(event: KeyPressEvent) -> None:
            event.app.exit(result=True)

        @keys.add("tab")
        def _take_marked(event: KeyPressEvent) -> None:
            self.take(self.marked)

        @keys.add("up")
        @keys.add("down")
        def _move_mark(event: KeyPressEvent) -> None:
            step = -1 if event.key_sequence[0].key == "up" else 1
            self.marked = (self.marked + step) % max(len(self.suggestions), 1)

        @keys.add("c-v")
        def _type_next_key(event: KeyPressEvent) -> None:
            event.app.quoted_insert = True

        @keys.add("<any>")
        def _type(event: KeyPressEvent) -> None:
            key, has_own_space = event.data, self.text == self._taken
            self._taken = None
            if key.isdecimal() and 0 < int(key) <= len(self.suggestions):
                self.take(int(key) - 1)
            elif not (has_own_space and key == " "):
                if has_own_space and key in _CLOSING:
                    self.buffer.delete_before_cursor()
                self.buffer.insert_text(key)

        return keys


def typed_lines(suggest: Suggest, source: Input | None = None, screen: Output | None = None) -> Iterator[TypedLine]:
    """Yield the lines that someone types on the terminal of standard input, drawn on standard error."""
    source = source or create_input()
    if screen is None:
        screen = Vt100_Output.from_pty(sys.stderr)
        screen.enable_cpr = False  # the terminal is not asked where its cursor is: two lines fit anywhere
    while True:
        line = TypedLine(suggest)
        typed = Window(BufferControl(line.buffer, [AfterInput(line.ghost)]), height=1)
        below = Window(FormattedTextControl(line.menu), height=1)
        app: Application[bool] = Application(
            Layout(HSplit([typed, below])),
            key_bindings=line.bindings(),
            erase_when_done=True,
            input=source,
            output=screen,
        )

        def count(_: object, line: TypedLine = line) -> None:
            line.keys += 1

        app.key_processor.before_key_press += count
        if not app.run():
            return
        yield line
