"""Textbook cards: a formula with its symbols, and what chainrule computes for the places of some sliders."""

from __future__ import annotations

import ast
import base64
import io
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from html import escape
from typing import Any

from chainrule.errors import CourseError


@dataclass(frozen=True)
class Slider:
    """A setting of a card: a number from `low` to `high`; a whole number if `step` is one."""

    name: str
    low: float
    high: float
    step: float
    value: float


@dataclass(frozen=True, kw_only=True)
class Card:
    """A card: the keys of its table in a lesson are its fields."""

    line: int
    title: str
    code: str
    """Python whose last line is what the card shows: a dict of numbers, or a picture."""
    setup: str = ""
    """Code that runs once, before `code`."""
    formula: str = ""
    symbols: Mapping[str, str] = field(default_factory=dict)
    sliders: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """The lowest and the highest value, the step, and the value at first, by the name in the code."""

    def check(self) -> None:
        """Raise an error if the card cannot be shown."""
        for name, numbers in self.sliders.items():
            if len(numbers) != 4:
                raise CourseError(f"the slider {name} should be [lowest, highest, step, at first], not {numbers}")
        try:
            parsed = [ast.parse(code).body for code in (self.setup, self.code)]
        except SyntaxError as error:
            raise CourseError(f"code is not Python: {error.msg}") from error
        if not parsed[-1] or not isinstance(parsed[-1][-1], ast.Expr):
            raise CourseError("the last line of code should be what the card shows")
        self.chosen({})

    @property
    def settings(self) -> list[Slider]:
        """The sliders, in order."""
        return [Slider(name, *numbers) for name, numbers in self.sliders.items()]

    @property
    def source(self) -> str:
        """The card as a function of its sliders, and a call of it; so it leaves no names behind in a notebook."""
        lines = self.code.strip().splitlines()
        last = ast.parse(self.code.strip()).body[-1].lineno - 1
        lines[last] = f"return {lines[last]}"
        body = textwrap.indent("\n".join([*self.setup.strip().splitlines(), *lines]), "    ")
        return f"def card({', '.join(f'{one.name}={one.value}' for one in self.settings)}):\n{body}\n\n\ncard()\n"

    @property
    def introduction(self) -> str:
        """The title, the formula and its symbols, in Markdown."""
        formula = "\n".join(f"    {line}" for line in self.formula.strip().splitlines())
        symbols = "\n".join(f"- `{symbol}`: {meaning}" for symbol, meaning in self.symbols.items())
        return "\n\n".join(filter(None, [f"**{self.title}**", formula, symbols]))

    def chosen(self, values: Mapping[str, float]) -> dict[str, float]:
        """Return a value for every slider: the given one, or that at first."""
        if unknown := values.keys() - self.sliders.keys():
            raise CourseError(f"the card {self.title!r} has no slider {min(unknown)!r}")
        found = {one.name: values.get(one.name, one.value) for one in self.settings}
        for one in self.settings:
            if not one.low <= found[one.name] <= one.high:
                raise CourseError(f"{one.name} should be from {one.low:g} to {one.high:g}")
            if isinstance(one.step, int):
                found[one.name] = round(found[one.name])
        return found

    def show(self, names: dict[str, Any], values: Mapping[str, float]) -> dict[str, float] | str:
        """Run the code with these names and values; return the numbers by their labels, or the text of an SVG."""
        names |= self.chosen(values)
        *lines, last = ast.parse(self.code).body
        with redirect_stdout(io.StringIO()):
            exec(compile(ast.Module(lines, []), self.title, "exec"), names)
            found = eval(compile(ast.Expression(last.value), self.title, "eval"), names)  # type: ignore[attr-defined]
        if isinstance(found, dict):
            return {str(label): float(number) for label, number in found.items()}
        return str(found._repr_svg_())


def to_markdown(card: Card, shown: dict[str, float] | str | None) -> str:
    """Return a card for a reader who cannot move its sliders; with what it shows, if that is given."""
    parts = [card.introduction, f"```python\n{card.source}```"]
    if isinstance(shown, str):
        data = base64.b64encode(shown.encode()).decode()
        # as HTML, since markdown-it takes no address of such data for that of a picture
        parts += [f'<p><img alt="{escape(card.title)}" src="data:image/svg+xml;base64,{data}"></p>']
    elif shown:
        rows = [f"| {label} | {number:.4g} |" for label, number in shown.items()]
        parts += ["\n".join(["| shown | value |", "| --- | --: |", *rows])]
    names = ", ".join(f"`{name}`" for name in card.sliders)
    parts += [f"On the page of `chainrule serve --learn`, sliders move {names}."] if names else []
    return "\n\n".join(parts)
