"""A scaling law in pictures: losses against tokens for each size, and along budgets of compute."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from chainrule.comparison.scaling.grid import Scaling
from chainrule.comparison.scaling.law import FLOPS, Law
from chainrule.report.charts import COLOURS, altair
from chainrule.report.html import figure_of, legend_of, numbers_of, page, specs, text
from chainrule.report.write import write_pictures
from chainrule.system.disk import replaced_file

_POINTS = 60  # of a drawn line
_ROOM = 1.6  # by which lines go on beyond what was measured
_WIDTH, _HEIGHT = 600, 320


_COUNTS: dict[str, Any] = {"format": "~s", "labelOverlap": "greedy", "labelSeparation": 8}
"""An axis of counts, which are written short: 200k, 1M."""


def write_scaling(found: Scaling, out: Path) -> Path:
    """Write scale.html, and the charts as files in ray/; returns the path of the page."""
    assert found.law is not None
    charts = scaling_charts(found, found.law)
    (out / "scale").mkdir(exist_ok=True)
    for name, chart in charts.items():
        write_pictures(chart.to_dict(), out / "scale" / name)
    with replaced_file(out / "scale.html") as file:
        file.write(_page(found, found.law, charts).encode(errors="replace"))
    return out / "scale.html"


def scaling_charts(found: Scaling, law: Law) -> dict[str, Any]:
    """The charts by name."""
    return {"tokens": _against_tokens(found, law), "budgets": _along_budgets(found, law)}


def _against_tokens(found: Scaling, law: Law) -> Any:
    """Loss against tokens: a point for each network, a line of the law for each size."""
    alt = altair()
    points = [
        {"size": cell.size, "tokens": cell.tokens, "nats": cell.nats, "fitted": float(law.loss(*_place(cell)))}
        for cell in found.cells
    ]
    every = [cell.tokens for cell in found.cells]
    drawn = np.geomspace(min(every) / _ROOM, max(every) * _ROOM, _POINTS)
    parameters = {cell.size: cell.parameters for cell in found.cells}
    lines = [
        {"size": size, "tokens": float(D), "nats": float(law.loss(N, D))}
        for size, N in parameters.items()
        for D in drawn
    ]
    colour = alt.Color(
        "size:N", title="layers x width", sort=None, scale=alt.Scale(domain=list(parameters), range=list(COLOURS))
    )
    x = alt.X("tokens:Q", title="tokens of training text", scale=alt.Scale(type="log", nice=False), axis=_COUNTS)
    y = alt.Y("nats:Q", title="held-out loss (nats a token)", scale=alt.Scale(type="log", zero=False, nice=False))
    marks = alt.Chart(alt.InlineData(values=points)).mark_point(filled=True, size=60)
    return alt.layer(
        alt.Chart(alt.InlineData(values=lines)).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour),
        marks.encode(x=x, y=y, color=colour, tooltip=["size:N", "tokens:Q", "nats:Q", "fitted:Q"]),
    ).properties(width=_WIDTH, height=_HEIGHT, description="Losses against tokens, and the law fitted to them")


def _along_budgets(found: Scaling, law: Law) -> Any:
    """Loss against size for a few budgets of compute, and the best size of each."""
    alt = altair()
    budgets = sorted(
        {max(FLOPS * c.parameters * c.tokens for c in found.cells), *(a["flops"] for a in found.advice)}
    )
    lines, best = [], []
    for flops in budgets:
        size, tokens = law.best_size(flops)
        name = f"{flops:.1e}"
        best.append({"budget": name, "parameters": size, "nats": float(law.loss(size, tokens))})
        lines += [
            {"budget": name, "parameters": float(N), "nats": float(law.loss(N, flops / FLOPS / N))}
            for N in size * np.geomspace(1 / 12, 12, _POINTS)
        ]
    names = [one["budget"] for one in best]
    scale = alt.Scale(domain=names, range=list(COLOURS[: len(names)]))
    colour = alt.Color("budget:N", title="operations", sort=None, scale=scale)
    x = alt.X("parameters:Q", title="parameters", scale=alt.Scale(type="log", nice=False), axis=_COUNTS)
    y = alt.Y("nats:Q", title="loss by the law (nats a token)", scale=alt.Scale(type="log", zero=False, nice=False))
    return alt.layer(
        alt.Chart(alt.InlineData(values=lines)).mark_line(strokeWidth=1.5).encode(x=x, y=y, color=colour),
        alt.Chart(alt.InlineData(values=best)).mark_point(filled=True, size=90).encode(x=x, y=y, color=colour),
    ).properties(
        width=_WIDTH, height=_HEIGHT, description="Loss against size at equal compute; points: the best size"
    )


def _page(found: Scaling, law: Law, charts: dict[str, Any]) -> str:
    rows = [
        [c.size, f"{c.parameters:,}", f"{c.tokens:,}", f"{c.nats:.4f}", f"{float(law.loss(*_place(c))):.4f}"]
        for c in found.cells
    ]
    table = numbers_of("The networks", ["size", "parameters", "tokens", "loss", "by the law"], rows)
    advised = numbers_of(
        "Budgets",
        ["operations", "parameters", "tokens", "loss"],
        [
            [f"{a['flops']:.2e}", f"{a['parameters']:,.0f}", f"{a['tokens']:,.0f}", f"{a['nats']:.3f}"]
            for a in found.advice
        ],
    )
    sizes = list(dict.fromkeys(cell.size for cell in found.cells))
    colours = dict(zip(sizes, COLOURS, strict=False))
    caption = f"{text(equation(law))}; typical error {law.error:.2%}. Points: measured; lines: the law."
    sections = [
        ("tokens", "Loss, size and text", legend_of(colours) + figure_of("tokens", caption, table)),
        (
            "budgets",
            "The best size for a budget",
            figure_of("budgets", "At equal compute, C = 6 N D: too small a network on the left, too little text on "
                      "the right.", advised),
        ),
    ]  # fmt: skip
    return page("Scaling law", f"<p>{text(equation(law))}</p>", sections, {"charts": specs(charts)}, None)


def equation(law: Law) -> str:
    """The law with its numbers.

    >>> equation(Law(E=1.69, A=406.4, a=0.34, B=410.7, b=0.28, error=0.0))
    'L(N, D) = 1.69 + 406 / N^0.340 + 411 / D^0.280'
    """
    return f"L(N, D) = {law.E:.3g} + {law.A:.3g} / N^{law.a:.3f} + {law.B:.3g} / D^{law.b:.3f}"


def _place(cell: Any) -> tuple[float, float]:
    return float(cell.parameters), float(cell.tokens)
