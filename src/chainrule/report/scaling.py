"""The page of a scaling law, with charts of losses against tokens for each size, and along budgets of compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.comparison.scaling.grid import Cell, Scaling
from chainrule.comparison.scaling.large_models import LARGE_MODELS, TOKENS_PER_PARAMETER
from chainrule.comparison.scaling.law import FLOPS, Law
from chainrule.report.charts import COLOURS, OTHER, WIDTH, altair, colour_of, colours
from chainrule.report.pages import page
from chainrule.report.write import write_pictures
from chainrule.system.disk import replaced_file
from chainrule.system.display import ResultTable

_POINTS = 60  # of a drawn line
_ROOM = 1.6  # by which lines go on beyond what was measured
_HEIGHT = 320
_SECTIONS = {"tokens": "Loss, size and text", "words": "How sure it is", "budgets": "The best size for a budget"}


def write_scaling(found: Scaling, out: Path) -> Path:
    """Write scale.html, and the charts as files in scale/; return the path of the page."""
    assert found.law is not None
    charts = {"tokens": _against_tokens(found, found.law), "budgets": _along_budgets(found, found.law)}
    write_pictures(charts, out / "scale")
    with replaced_file(out / "scale.html") as file:
        file.write(_page(found, found.law, charts).encode(errors="replace"))
    return out / "scale.html"


def draw_large_models() -> str:
    """Draw published large models as the text of an SVG file: sizes over the years, and tokens against sizes."""
    alt = altair()
    rows = [{**one.to_json(), "size": "published" if one.is_published else "reported"} for one in LARGE_MODELS]
    rule = [{"parameters": N, "tokens": TOKENS_PER_PARAMETER * N} for N in (1e9, 2e12)]
    counts = {"format": ".2~s", "tickCount": 5}
    places = {(7, 9): ["Chinchilla", "Gemini Ultra"], (-7, -6): ["LLaMA"]}  # names that would cover others
    places[7, -6] = [one.name for one in LARGE_MODELS if not any(one.name in names for names in places.values())]

    def labelled(data: list[dict[str, Any]], **axes: Any) -> Any:
        base = alt.Chart(alt.InlineData(values=data)).encode(**axes)
        filled = alt.Fill("size:N", scale=alt.Scale(domain=["published", "reported"], range=[COLOURS[0], "white"]))
        points = base.mark_point(size=60, stroke=COLOURS[0]).encode(fill=filled)
        names = [
            base.transform_filter(alt.FieldOneOfPredicate("name", at))
            .mark_text(align="right" if dx < 0 else "left", dx=dx, dy=dy, fontSize=11)
            .encode(text="name:N")
            for (dx, dy), at in places.items()
        ]
        return alt.layer(points, *names)

    parameters: Any = {"type": "log", "domain": [1e9, 4e12]}
    over_years = labelled(
        rows,
        x=alt.X("year:Q", title="year", scale=alt.Scale(domain=[2018.5, 2025]), axis={"format": "d"}),
        y=alt.Y("parameters:Q", title="parameters", scale=alt.Scale(**parameters), axis=counts),
    )
    against_sizes = labelled(
        [row for row in rows if row["tokens"] is not None],
        x=alt.X("parameters:Q", title="parameters", scale=alt.Scale(**parameters), axis=counts),
        y=alt.Y("tokens:Q", title="tokens of training text", scale=alt.Scale(type="log"), axis=counts),
    )
    line = alt.Chart(alt.InlineData(values=rule)).mark_line(strokeDash=[5, 4], color=OTHER)
    drawn = alt.vconcat(
        over_years.properties(width=WIDTH, height=_HEIGHT, title="Size over the years"),
        (against_sizes + line.encode(x="parameters:Q", y="tokens:Q")).properties(
            width=WIDTH, height=_HEIGHT, title="Training text against size; dashed: 20 tokens for each parameter"
        ),
    )
    import vl_convert

    picture: str = vl_convert.vegalite_to_svg({**drawn.to_dict(), "background": "white"})
    return picture


def in_words(found: Scaling) -> list[str]:
    """Return what a law says, how sure it is, and how well it predicts, in sentences."""
    lines = []
    if found.prediction is not None:
        test = found.prediction
        lines.append(
            f"Test: a law of the {test.fitted} smaller networks predicts the {test.predicted} larger ones with a "
            f"mean error of {test.error:.1%}."
        )
    spread = ", ".join(f"{name} {low:.3g} to {high:.3g}" for name, (low, high) in found.intervals.items())
    lines += [f"95 % intervals: {spread}.", f"The grid took {found.flops:.2e} operations."]
    for one in found.advice:
        lines.append(
            f"For {one['flops']:.2e} operations: {one['parameters']:,.0f} parameters "
            f"({one['least_parameters']:,.0f} to {one['most_parameters']:,.0f}) on {one['tokens']:,.0f} tokens, "
            f"loss {one['nats']:.3f} ({one['least_nats']:.3f} to {one['most_nats']:.3f}) nats a token."
        )
        if one["warning"]:
            lines.append(f"Warning: this is {one['warning']}.")
    return [*lines, *(f"Warning: {warning}" for warning in found.warnings)]


def _against_tokens(found: Scaling, law: Law) -> Any:
    """Draw loss against tokens: a point for each model, a line of the law for each size, and lines of n-grams."""
    every = [cell.tokens for cell in found.cells]
    drawn = np.geomspace(min(every) / _ROOM, max(every) * _ROOM, _POINTS)
    lines = [
        {"model": size, "tokens": float(D), "nats": float(law.loss(N, D)), "line": "solid"}
        for size, N in {cell.size: cell.parameters for cell in found.cells}.items()
        for D in drawn
    ]
    counted = [
        {"model": one.size, "tokens": one.tokens, "nats": one.nats, "line": "dashed"} for one in found.ngrams
    ]
    points = [
        {"model": cell.size, "tokens": cell.tokens, "nats": cell.nats, "by the law": _fitted(law, cell)}
        for cell in found.cells
    ]
    return _lines_and_points(
        [*lines, *counted],
        [*points, *counted],
        ("tokens", "tokens of training text"),
        "held-out loss (nats a token)",
        ("model", _palette(found)),
        "Losses against tokens, the law fitted to them, and n-gram models of the same text",
        size=60,
        tooltip=["model:N", "tokens:Q", "nats:Q", "by the law:Q"],
    )


def _along_budgets(found: Scaling, law: Law) -> Any:
    """Draw loss against size for a few budgets of compute, and the best size of each."""
    lines: list[dict[str, Any]] = []
    best = []
    for flops, name in _budgets(found).items():
        size, tokens = law.best_size(flops)
        best.append({"budget": name, "parameters": size, "nats": float(law.loss(size, tokens))})
        for N in size * np.geomspace(1 / 12, 12, _POINTS):
            D = flops / FLOPS / N
            row = {"budget": name, "parameters": float(N), "nats": float(law.loss(N, D))}
            line = "dashed" if law.warning(N, D) else "solid"
            if lines and lines[-1]["budget"] == name and lines[-1]["line"] != line:
                lines.append({**row, "line": lines[-1]["line"]})  # so that both parts of the line meet
            lines.append({**row, "line": line})
    return _lines_and_points(
        lines,
        best,
        ("parameters", "parameters"),
        "loss by the law (nats a token)",
        ("budget", colours(list(_budgets(found).values()))),
        "Loss against size at equal compute; points: the best size",
        size=90,
        tooltip=["budget:N", "parameters:Q", "nats:Q"],
    )


def _palette(found: Scaling) -> dict[str, str]:
    return colours(list(dict.fromkeys(cell.size for cell in (*found.cells, *found.ngrams))))


def _budgets(found: Scaling) -> dict[float, str]:
    """Return the names of the budgets."""
    return {flops: f"{flops:.1e} operations" for flops in sorted(one["flops"] for one in found.advice)}


def _lines_and_points(
    lines: list[dict[str, Any]],
    points: list[dict[str, Any]],
    x: tuple[str, str],
    y: str,
    by: tuple[str, Mapping[str, str]],
    description: str,
    size: int,
    **encoding: Any,
) -> Any:
    """Draw lines and points; `x` is a field and its title, `y` the title of nats, `by` a field and its colours."""
    alt = altair()
    counts = {"format": "~s", "labelOverlap": "greedy", "labelSeparation": 8}  # written short: 200k, 1M
    axes = {
        "x": alt.X(f"{x[0]}:Q", title=x[1], scale=alt.Scale(type="log", nice=False), axis=counts),
        "y": alt.Y("nats:Q", title=y, scale=alt.Scale(type="log", nice=False, padding=10)),
        "color": colour_of(by[1], by[0], by[0]),
    }
    dashes = alt.StrokeDash(
        "line:N", legend=None, scale=alt.Scale(domain=["solid", "dashed"], range=[[1, 0], [5, 4]])
    )
    return alt.layer(
        alt.Chart(alt.InlineData(values=lines)).mark_line(strokeWidth=1.5).encode(**axes, strokeDash=dashes),
        alt.Chart(alt.InlineData(values=points)).mark_point(filled=True, size=size).encode(**axes, **encoding),
    ).properties(width=WIDTH, height=_HEIGHT, description=description)


def _page(found: Scaling, law: Law, charts: dict[str, Any]) -> str:
    figures = [
        (f"{c.parameters:,}", f"{c.tokens:,}", f"{c.nats:.4f}", f"{_fitted(law, c):.4f}") for c in found.cells
    ]
    models = [(cell.size, *row) for cell, row in zip(found.cells, figures, strict=True)]
    models += [(cell.size, "", f"{cell.tokens:,}", f"{cell.nats:.4f}", "") for cell in found.ngrams]
    budgets = [
        (
            f"{one['flops']:.2e}",
            f"{one['parameters']:,.0f}",
            f"{one['least_parameters']:,.0f} to {one['most_parameters']:,.0f}",
            f"{one['tokens']:,.0f}",
            f"{one['nats']:.3f}",
            f"{one['least_nats']:.3f} to {one['most_nats']:.3f}",
        )
        for one in found.advice
    ]
    headings = ("operations", "parameters", "95 % interval", "tokens", "loss", "95 % interval")
    values: Any = {"equation": equation(law), "error": f"{law.error:.2%}", "lines": in_words(found)}
    values |= {"palette": _palette(found), "budget_palette": colours(list(_budgets(found).values()))}
    return page(
        "scaling.html",
        "Scaling law",
        {name: (heading, "") for name, heading in _SECTIONS.items()},
        charts,
        **values,
        models=ResultTable(("model", "parameters", "tokens", "loss", "by the law"), models, "The models"),
        budgets=ResultTable(headings, budgets, "Budgets"),
    )


def equation(law: Law) -> str:
    """Return the law with its numbers.

    >>> equation(Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28, error=0, largest_N=1, largest_D=1, largest_flops=6))
    'L(N, D) = 1.69 + 406 / N^0.340 + 411 / D^0.280'
    """
    return f"L(N, D) = {law.E:.3g} + {law.A:.3g} / N^{law.a:.3f} + {law.B:.3g} / D^{law.b:.3f}"


def _fitted(law: Law, cell: Cell) -> float:
    return float(law.loss(float(cell.parameters), float(cell.tokens)))
