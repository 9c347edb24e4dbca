"""The page of a scaling law, with charts of losses against tokens for each size, and along budgets of compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from chainrule.comparison.scaling.grid import Cell, Scaling
from chainrule.comparison.scaling.law import FLOPS, Law
from chainrule.report.charts import WIDTH, altair, colour_of, colours
from chainrule.report.pages import Numbers, page
from chainrule.report.write import write_pictures
from chainrule.system.disk import replaced_file

_POINTS = 60  # of a drawn line
_ROOM = 1.6  # by which lines go on beyond what was measured
_HEIGHT = 320


def write_scaling(found: Scaling, out: Path) -> Path:
    """Write scale.html, and the charts as files in scale/; return the path of the page."""
    assert found.law is not None
    charts = {"tokens": _against_tokens(found, found.law), "budgets": _along_budgets(found, found.law)}
    write_pictures(charts, out / "scale")
    with replaced_file(out / "scale.html") as file:
        file.write(_page(found, found.law, charts).encode(errors="replace"))
    return out / "scale.html"


def _against_tokens(found: Scaling, law: Law) -> Any:
    """Draw loss against tokens: a point for each network, a line of the law for each size."""
    points = [
        {"size": cell.size, "tokens": cell.tokens, "nats": cell.nats, "fitted": _fitted(law, cell)}
        for cell in found.cells
    ]
    every = [cell.tokens for cell in found.cells]
    drawn = np.geomspace(min(every) / _ROOM, max(every) * _ROOM, _POINTS)
    lines = [
        {"size": size, "tokens": float(D), "nats": float(law.loss(N, D))}
        for size, N in {cell.size: cell.parameters for cell in found.cells}.items()
        for D in drawn
    ]
    return _lines_and_points(
        lines,
        points,
        ("tokens", "tokens of training text"),
        "held-out loss (nats a token)",
        ("size", "layers x width"),
        "Losses against tokens, and the law fitted to them",
        size=60,
        tooltip=["size:N", "tokens:Q", "nats:Q", "fitted:Q"],
    )


def _along_budgets(found: Scaling, law: Law) -> Any:
    """Draw loss against size for a few budgets of compute, and the best size of each."""
    largest = max(FLOPS * cell.parameters * cell.tokens for cell in found.cells)
    lines, best = [], []
    for flops in sorted({largest, *(one["flops"] for one in found.advice)}):
        size, tokens = law.best_size(flops)
        name = f"{flops:.1e}"
        best.append({"budget": name, "parameters": size, "nats": float(law.loss(size, tokens))})
        lines += [
            {"budget": name, "parameters": float(N), "nats": float(law.loss(N, flops / FLOPS / N))}
            for N in size * np.geomspace(1 / 12, 12, _POINTS)
        ]
    return _lines_and_points(
        lines,
        best,
        ("parameters", "parameters"),
        "loss by the law (nats a token)",
        ("budget", "operations"),
        "Loss against size at equal compute; points: the best size",
        size=90,
    )


def _lines_and_points(
    lines: list[dict[str, Any]],
    points: list[dict[str, Any]],
    x: tuple[str, str],
    y: str,
    by: tuple[str, str],
    description: str,
    size: int,
    **encoding: Any,
) -> Any:
    """Draw lines and points; `x` and `by` (the colour) are fields with their titles, `y` is the title of nats."""
    alt = altair()
    counts = {"format": "~s", "labelOverlap": "greedy", "labelSeparation": 8}  # written short: 200k, 1M
    axes = {
        "x": alt.X(f"{x[0]}:Q", title=x[1], scale=alt.Scale(type="log", nice=False), axis=counts),
        "y": alt.Y("nats:Q", title=y, scale=alt.Scale(type="log", zero=False, nice=False)),
        "color": colour_of(colours(list(dict.fromkeys(one[by[0]] for one in points))), *by),
    }
    return alt.layer(
        alt.Chart(alt.InlineData(values=lines)).mark_line(strokeWidth=1.5).encode(**axes),
        alt.Chart(alt.InlineData(values=points)).mark_point(filled=True, size=size).encode(**axes, **encoding),
    ).properties(width=WIDTH, height=_HEIGHT, description=description)


def _page(found: Scaling, law: Law, charts: dict[str, Any]) -> str:
    networks = [
        (c.size, f"{c.parameters:,}", f"{c.tokens:,}", f"{c.nats:.4f}", f"{_fitted(law, c):.4f}")
        for c in found.cells
    ]
    budgets = [
        (f"{a['flops']:.2e}", f"{a['parameters']:,.0f}", f"{a['tokens']:,.0f}", f"{a['nats']:.3f}")
        for a in found.advice
    ]
    return page(
        "scaling.html",
        "Scaling law",
        {"tokens": "Loss, size and text", "budgets": "The best size for a budget"},
        charts,
        equation=equation(law),
        error=f"{law.error:.2%}",
        palette=colours(list(dict.fromkeys(cell.size for cell in found.cells))),
        networks=Numbers("The networks", ("size", "parameters", "tokens", "loss", "by the law"), networks),
        budgets=Numbers("Budgets", ("operations", "parameters", "tokens", "loss"), budgets),
    )


def equation(law: Law) -> str:
    """Return the law with its numbers.

    >>> equation(Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28, error=0.0))
    'L(N, D) = 1.69 + 406 / N^0.340 + 411 / D^0.280'
    """
    return f"L(N, D) = {law.E:.3g} + {law.A:.3g} / N^{law.a:.3f} + {law.B:.3g} / D^{law.b:.3f}"


def _fitted(law: Law, cell: Cell) -> float:
    return float(law.loss(float(cell.parameters), float(cell.tokens)))
