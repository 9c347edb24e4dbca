"""Numbers, amounts and texts in the words and widths that people read."""

from __future__ import annotations

import math
from typing import Literal


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
