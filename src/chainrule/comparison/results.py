"""The results of a comparison: what each model gives and costs, and how they are kept in a file."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from html import escape
from pathlib import Path
from types import MappingProxyType
from typing import Any

from chainrule.contract.kinds import Figures, Task
from chainrule.contract.lm import Context
from chainrule.evaluation.measure import Measured
from chainrule.folder import to_json
from chainrule.system.disk import replaced_file

RESULTS = "compare.json"
FORMAT = "chainrule-comparison"


@dataclass(frozen=True)
class Result:
    """The result of one rung: how good the model is and what it costs."""

    name: str
    kind: str
    settings: dict[str, Any]
    folder: str
    test: Measured | Figures
    training_seconds: float
    megabytes: float
    sample: str
    steps: int | None = None
    """The steps of a network's training; None for models that are counted."""
    tokens_seen: int | None = None
    """The tokens that a network learned from; a token counts each time."""
    seconds: float = 0.0
    """Training and measuring together."""
    training_tokens_per_second: float | None = None
    writing_tokens_per_second: float | None = None
    """Tokens that it writes per second, one text at a time; None for models that write none."""
    peak_megabytes: float | None = None
    """The most memory in use while it was trained: that of the GPU, or of the whole process."""
    parameters: int | None = None
    flops_per_token: float | None = None
    """Floating-point operations to predict a token; None: it is looked up."""
    interval: tuple[float, float] | None = None
    """Bits per byte: 95 % of draws of the test documents lie between these."""
    behind: tuple[float, float, float] | None = None
    """By how many bits per byte it is worse than the best on the same documents, and the interval of that."""

    @property
    def is_told_from_best(self) -> bool:
        """Whether it is worse than the best model on nearly all draws of the documents."""
        return self.behind is None or self.behind[1] > 0


@dataclass(frozen=True)
class Failure:
    """A rung that could not be trained or measured."""

    name: str
    kind: str
    error: str
    share: float = 1.0
    """Of the training text: less than 1 for a point of a learning curve."""


@dataclass(frozen=True)
class Point:
    """A point of a learning curve: a rung trained on a part of the training text, and not kept."""

    name: str
    """Of the rung."""
    kind: str
    settings: dict[str, Any]
    share: float
    """Of the training text; 1 for all of it."""
    tokens: int
    """Of the part."""
    bytes: int
    bits_per_byte: float
    """On the test text."""
    perplexity: float
    training_seconds: float
    seconds: float
    """Training and measuring together."""


COSTS: Mapping[str, Callable[[Result], float]] = MappingProxyType(
    {
        "speed": lambda result: -result.test.tokens_per_second,
        "writing": lambda result: -(result.writing_tokens_per_second or 0.0),
        "training": lambda result: result.training_seconds,
        "size": lambda result: result.megabytes,
    }
)
"""What a model costs: each function is lower for a cheaper one."""


@dataclass(frozen=True)
class Comparison:
    """The results of all rungs, and the text and tokenizer they share."""

    format: str
    tokenizer: str
    vocab_size: int
    context: Context
    parts: dict[str, dict[str, int]]
    """Lines, tokens and bytes of train, valid and test."""
    results: list[Result]
    identity: dict[str, Any]
    """The texts, the tokenizer, the seed and the ladder: what must be the same for a comparison to go on."""
    task: Task = "language"
    failures: list[Failure] = field(default_factory=list)
    advice: str | None = None
    """Which model to take for what."""
    curve: list[Point] = field(default_factory=list)
    """The learning curves, if they were asked for: rung by rung, from little text to all of it."""

    @property
    def is_finished(self) -> bool:
        """Whether every rung of the ladder, and every point of its curves, is there, or failed."""
        ladder = self.identity.get("ladder")  # comparisons of earlier versions do not have it
        if ladder is None:
            return True
        done = {(one.name, 1.0) for one in self.results} | {(one.name, one.share) for one in self.curve}
        done |= {(one.name, one.share) for one in self.failures}
        drawn = {one.name for one in self.curve}  # a rung that failed, or has no finite figure, has none
        points = [(name, share) for name, share in self.identity.get("curve", ()) if name in drawn]
        return all(one in done for one in [*((rung["name"], 1.0) for rung in ladder), *points])

    @property
    def best(self) -> Result | None:
        """The model with the lowest loss; None if there is no model that has one."""
        fitting = [(loss, number) for number, one in enumerate(self.results) if (loss := loss_of(one)) is not None]
        return self.results[min(fitting)[1]] if fitting else None

    def frontier(self, cost: str) -> set[str]:
        """The names of the models to which no other is better without costing more; none has an infinite loss."""
        of = COSTS[cost]
        points = [
            (one.name, loss, of(one))
            for one in self.results
            if (loss := loss_of(one)) is not None and math.isfinite(loss)
        ]
        return {
            name
            for name, loss, price in points
            if not any(other <= loss and p <= price and (other, p) != (loss, price) for _, other, p in points)
        }

    def to_json(self) -> dict[str, Any]:
        """The comparison as plain values."""
        return asdict(self)

    def _repr_html_(self) -> str:
        """The table, for a notebook: how good each model is and what it costs; the best in bold."""
        rows = []
        for result in self.results:
            loss = loss_of(result)
            cells = [
                escape(result.name),
                "" if loss is None else f"{loss:.4g}",
                f"{result.training_seconds:.3g}",
                f"{result.megabytes:.3g}",
                f"{result.test.tokens_per_second:,.0f}",
            ]
            strong = ("<b>", "</b>") if result is self.best else ("", "")
            rows.append("<tr>" + "".join(f"<td>{strong[0]}{cell}{strong[1]}</td>" for cell in cells) + "</tr>")
        loss_name = "bits/byte" if self.task == "language" else "loss"
        head = "".join(f"<th>{name}</th>" for name in ("model", loss_name, "train s", "MB", "tokens/s"))
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"

    def write(self, out: Path) -> None:
        """Write the comparison into its folder."""
        with replaced_file(out / RESULTS) as file:
            file.write(to_json(self.to_json(), indent=2).encode() + b"\n")


def loss_of(result: Result) -> float | None:
    """What models are ranked by, the lowest first: of language models bits per byte; None for one without."""
    if isinstance(result.test, Figures):
        return result.test.loss
    return result.test.bits_per_byte if result.test.normalised else None


def _read_result(values: dict[str, Any]) -> Result:
    ranges = {name: tuple(values[name]) for name in ("interval", "behind") if values.get(name) is not None}
    known = {one.name for one in fields(Result)}  # a later version may say more
    found = {name: value for name, value in values.items() if name in known}
    return Result(**{**found, **ranges, "test": _read_figures(values["test"])})


def _read_point(values: dict[str, Any]) -> Point:
    known = {one.name for one in fields(Point)}
    return Point(**{name: value for name, value in values.items() if name in known})


def _read_figures(values: dict[str, Any]) -> Measured | Figures:
    of = Figures if "values" in values else Measured
    known = {one.name for one in fields(of)}
    return of(**{name: value for name, value in values.items() if name in known})


def read_comparison(out: Path) -> Comparison | None:
    """The comparison of a folder; None if there is none, or none that can be read."""
    try:
        values = json.loads((out / RESULTS).read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            return None
        known = {one.name for one in fields(Comparison)} - {"results", "failures", "curve"}
        found = {name: values[name] for name in known if name in values}
        return Comparison(
            **{"identity": {}, **found},
            results=[_read_result(one) for one in values["results"]],
            failures=[Failure(**one) for one in values.get("failures", [])],
            curve=[_read_point(one) for one in values.get("curve", [])],
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None
