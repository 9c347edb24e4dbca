"""Results for people: sentences, tables and coloured texts, which a terminal prints and a notebook shows.

A result has its parts in one place: each part is a sentence or a `ResultTable`. The command line prints the parts,
and `to_html` makes HTML of them, which has no script and takes the colours of its page. Every text is escaped,
because the tokens of a model and the lines of a corpus may be anything.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, TypeAlias

MOST_BITS = 12.0
"""The surprisal at which the colour of a token is deepest; of a word, which the report colours, it is 20."""
_HOT = "217 89 38"  # the report's colour of surprise, which shows on white and on black
_DEEPEST = 0.85
CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
"""The sign that shows each control character."""
_RULE = "border-bottom:1px solid rgb(128 128 128 / 0.5)"


class Html(str):
    """Text that is HTML: it is not escaped again."""

    __slots__ = ()


@dataclass(frozen=True)
class ResultTable:
    """A table of results: its first column has names, the others have figures."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    """Cells; a row may be shorter than the headings."""
    title: str = ""
    left: Sequence[int] = ()
    """The columns of words, beside the first; they start at the left."""
    strong: Sequence[int] = ()
    """The rows that stand out."""

    def to_html(self) -> Html:
        """Return the table as HTML."""
        left = {0, *self.left}
        heads = "".join(_html_cell("th", text, i in left, _RULE) for i, text in enumerate(self.headings))
        rows = []
        for number, row in enumerate(self.rows):
            marked = [Html(f"<b>{to_text(text)}</b>") if number in self.strong else text for text in row]
            rows.append(
                "<tr>" + "".join(_html_cell("td", text, i in left) for i, text in enumerate(marked)) + "</tr>"
            )
        caption = f'<caption style="text-align:left">{to_text(self.title)}</caption>' if self.title else ""
        return Html(
            '<div style="overflow-x:auto;margin:0.4em 0"><table style="font-variant-numeric:tabular-nums">'
            f"{caption}<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
        )


Part: TypeAlias = str | ResultTable
"""A sentence or a table. A sentence that begins with spaces is indented; an empty one is an empty line."""


def to_html(parts: Iterable[Part]) -> str:
    """Return the parts of a result as HTML.

    >>> to_html(["p < 0.5", Html("<svg></svg>")])
    '<div><p style="margin:0.3em 0">p &lt; 0.5</p><svg></svg></div>'
    """
    return f"<div>{''.join(map(_part, parts))}</div>"


class PlainResult:
    """A result whose fields are plain values: the base of a dataclass."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields as plain values."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]


class Measurements(PlainResult, ABC):
    """The measurements of a model: plain values, and a row of figures, which a notebook shows."""

    @abstractmethod
    def figures(self) -> dict[str, str]:
        """Return the figures as people read them, by their headings in a table."""

    def remarks(self) -> list[Part]:
        """Return what explains the figures."""
        return []

    def _repr_html_(self) -> str:
        shown = self.figures()
        return to_html([ResultTable([*shown], [[*shown.values()]]), *self.remarks()])


def _part(part: Part) -> str:
    if isinstance(part, ResultTable):
        return part.to_html()
    if isinstance(part, Html) or not part.strip():
        return part.strip()
    indent = " 0 0.3em 2em" if part.startswith(" ") else " 0"
    return f'<p style="margin:0.3em{indent}">{to_text(part.strip())}</p>'


def _html_cell(tag: str, text: str, is_left: bool, style: str = "") -> str:
    side = "left" if is_left else "right"
    return f'<{tag} style="{";".join(filter(None, [f"text-align:{side}", style]))}">{to_text(text)}</{tag}>'


def to_text(text: str) -> Html:
    """Return a text as HTML that shows it as it is.

    >>> to_text("a < b")
    'a &lt; b'
    """
    return text if isinstance(text, Html) else Html(escape(str(visible(text))))


def scrolled(picture: str) -> Html:
    """Return a picture, the text of an SVG file, as HTML that scrolls where the page is too narrow for it."""
    return Html(f'<div style="overflow-x:auto">{picture}</div>')


def coloured(pieces: Iterable[tuple[str, float | None]]) -> Html:
    """Return pieces of a text as HTML, each coloured by its bits of surprisal; None leaves a piece as it is.

    >>> coloured([("the", 2.0), (" ", None)])
    '<span style="background:rgb(217 89 38 / 0.14);border-radius:2px" title="2.00 bits">the</span> '
    """
    found: list[str] = []
    for text, bits in pieces:
        if bits is None:
            found.append(to_text(text))
            continue
        depth = _DEEPEST * min(max(bits, 0.0) / MOST_BITS, 1.0)
        style = f"background:rgb({_HOT} / {depth:.2f});border-radius:2px"
        found.append(f'<span style="{style}" title="{number(bits)} bits">{to_text(text)}</span>')
    return Html("".join(found))


def visible(value: object) -> object:
    """Replace characters that cannot be seen, or encoded, by signs.

    >>> visible("a\\x00b\\tc\\x7f\\ud800")
    'a␀b\\tc␡?'
    """
    if type(value) is not str:  # HTML that was escaped
        return value
    return value.encode("utf-8", errors="replace").decode().translate(CONTROLS)


def number(value: float, digits: int = 3) -> str:
    """Write a number for people.

    >>> [number(value) for value in (1234.5, 0.00123, math.inf, 1.2e200, 3e-40)]
    ['1,234', '0.00123', '∞', '1.20e+200', '3.00e-40']
    """
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else "-∞"
    if value and not 1e-15 < abs(value) < 1e15:  # nobody counts so many digits, and tables have no room for them
        return f"{value:.{digits - 1}e}"
    if value == 0 or abs(value) >= 10**digits:
        return f"{value:,.0f}"
    return f"{value:,.{max(digits - 1 - math.floor(math.log10(abs(value))), 0)}f}"


def cell(value: object) -> str:
    """Write a value for a cell of a table.

    >>> [cell(value) for value in (1234, 0.00123, None, "cats")]
    ['1,234', '0.001230', '', 'cats']
    """
    if value is None:
        return ""
    if isinstance(value, float):
        return number(value, 4)
    return f"{value:,}" if isinstance(value, int) else str(value)
