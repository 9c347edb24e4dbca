"""The charts of a report, by Altair.

A chart is a value that holds its own data; the page draws it with Vega, and `write_pictures` makes PNG and SVG
files of it. Every model keeps one colour through the whole report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chainrule.comparison.learning_curve import fraction
from chainrule.comparison.results import Comparison, Cost
from chainrule.errors import ChainruleError, MissingExtraError

if TYPE_CHECKING:
    from chainrule.report.pair import PairDetails
    from chainrule.report.record import ComparisonDetails
    from chainrule.report.surprise import Bins

EXTRA = "report"
COLOURS = (
    "#3987e5", "#d95926", "#199e70", "#c98500", "#d55181", "#9085e9", "#008aa8", "#8a7a52", "#e66767", "#5f9c2e",
)  # fmt: skip
"""The colours of models, in the order of their loss: middle tones, which show on white and on black."""
OTHER = "#8a8f98"
"""The colour of models that have no colour of their own."""
LOSSES = {"training": COLOURS[0], "validation": COLOURS[1]}
_RUN_CHARTS = {
    "learning_rate": ("learning rate", "~g"),
    "tokens_per_second": ("tokens/s", "~s"),
    "grad_norm": ("gradient norm", "~g"),
}
"""The charts of a run beside its losses: the title and the format of the numbers, by figure."""
WIDTH, HEIGHT = 600, 300


def altair() -> Any:
    """Import the library; if it is missing, the error names the extra."""
    try:
        import altair
        import vl_convert  # noqa: F401 (what makes files of charts)
    except ImportError as error:
        library = "vl-convert-python" if error.name == "vl_convert" else "altair"
        raise MissingExtraError(library, EXTRA, "a report") from None
    except AttributeError as error:  # of the docstrings that it reads, and that python -OO leaves out
        raise ChainruleError(f"altair, which draws reports, does not work here: {error}") from error
    return altair


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def learning_colours(comparison: Comparison, palette: Mapping[str, str]) -> dict[str, str]:
    """Return the colours of the models with a learning curve: their own, or one that no other of them has."""
    names = dict.fromkeys(one.name for one in comparison.curve if one.bits_per_byte < math.inf)
    taken = {palette[name] for name in names if name in palette}
    free = [colour for colour in COLOURS if colour not in taken]
    return {name: palette.get(name) or (free.pop(0) if free else OTHER) for name in names}


def cost_chart_name(cost: Cost) -> str:
    """Return the name of the chart of a cost."""
    return f"cost-{cost.key.replace('_', '-')}"


def comparison_charts(details: ComparisonDetails) -> dict[str, Any]:
    """Return the charts of a comparison by their names, which are those of their files."""
    palette = colours([one.name for one in details.drawn])
    charts = {cost_chart_name(cost): _cost_chart(details, cost, palette) for cost in details.comparison.costs}
    charts["kinds"] = None if details.kinds is None else _kinds_chart(details.kinds, palette)
    for name, bins in (("position", details.position), ("frequency", details.frequency)):
        charts[name] = None if bins is None else _bins_chart(bins, palette)
    charts["training"] = _training_chart(details, palette) if details.curves else None
    charts["learning"] = _learning_chart(details.comparison, palette)
    return {name: chart for name, chart in charts.items() if chart is not None}


def _chart(rows: Sequence[Mapping[str, Any]], description: str) -> Any:
    """Return a chart of the rows, still without marks."""
    alt = altair()
    return alt.Chart(alt.InlineData(values=list(rows)), description=description, width=WIDTH, height=HEIGHT)


def colour_of(palette: Mapping[str, str], field: str = "model", title: str = "model") -> Any:
    """Return the encoding that gives each value of a field its colour."""
    alt = altair()
    scale = alt.Scale(domain=list(palette), range=list(palette.values()))
    return alt.Color(f"{field}:N", title=title, sort=None, scale=scale)


def _from_lowest(field: str, title: str, **scale: Any) -> Any:
    """Return a y axis that begins near the lowest value instead of at 0."""
    alt = altair()
    return alt.Y(f"{field}:Q", title=title, scale=alt.Scale(zero=False, **scale))


def _tip(field: str, title: str, numbers: str = "") -> Any:
    """Return the entry of a field, with its title and the format of its numbers, in what the pointer shows."""
    return altair().Tooltip(field, title=title, **({"format": numbers} if numbers else {}))


def _cost_chart(details: ComparisonDetails, cost: Cost, palette: Mapping[str, str]) -> Any:
    """Draw loss against one cost, and the line of the models that no other beats, with their places by quality."""
    alt = altair()
    loss_name, frontier = details.comparison.loss_name, details.frontiers[cost.key]
    rows, shown = [], {}
    for place, one in enumerate(details.comparison.ranked, start=1):
        price, loss = cost.of(one), None if one in details.comparison.apart else one.loss
        if price is not None and price > 0 and loss is not None and loss < 1e9:
            low, high = one.interval or (loss, loss)
            point = {"model": f"{place} {one.name}", "place": place, "frontier": one.name in frontier}
            rows.append({**point, "cost": price, "loss": loss, "low": low, "high": high})
            shown[f"{place} {one.name}"] = palette.get(one.name, OTHER)
    if not rows:
        return None
    title = f"{cost.name} ({cost.unit})" if cost.unit else cost.name
    cheap, step = ("right", "step-before") if cost.more_is_better else ("left", "step-after")
    numbers = "~s" if cost.is_large else "~g"
    axis = alt.Axis(tickCount=5, format=numbers, labelBound=True, labelOverlap="greedy", labelSeparation=8)
    x = alt.X("cost:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=24), axis=axis)
    about = f"{loss_name} against {title}; the best models for their cost are at the lower {cheap}"
    base = _chart(rows, about).encode(x=x, y=_from_lowest("loss", loss_name, padding=12))
    line = base.transform_filter("datum.frontier").mark_line(interpolate=step, strokeDash=[5, 4], color=OTHER)
    bars = base.mark_rule(opacity=0.6).encode(y="low:Q", y2="high:Q", color=colour_of(shown))
    points = base.mark_point(filled=True, opacity=0.95).encode(
        size=alt.condition("datum.frontier", alt.value(110), alt.value(45)),
        color=colour_of(shown),
        tooltip=["model:N", _tip("loss:Q", loss_name, ".4f"), _tip("cost:Q", title, ",.4~g")],
        shape=alt.condition("datum.frontier", alt.value("diamond"), alt.value("circle")),
    )
    places = base.transform_filter("datum.frontier").mark_text(dx=9, dy=-9, fontSize=12, fontWeight=600)
    return alt.layer(line, bars, points, places.encode(text="place:N"))


def _training_chart(details: ComparisonDetails, palette: Mapping[str, str]) -> Any:
    """Draw the curves of all networks; a short training may have a single point."""
    alt = altair()
    rows = [
        {"model": name, "tokens": point["tokens"], "bits": point[key], "of": of}
        for name, points in details.curves.items()
        for point in points
        for key, of in (("validation_loss", "validation"), ("loss", "training"))
        if key in point
    ]
    of = {"domain": ["validation", "training"]}
    base = _chart(rows, "Loss in bits per token against the tokens seen in training, of every network").encode(
        x=alt.X("tokens:Q", title="tokens seen", axis=alt.Axis(format="~s", tickCount=6)),
        y=_from_lowest("bits", "bits per token"),
        color=colour_of({str(row["model"]): palette.get(str(row["model"]), OTHER) for row in rows}),
        tooltip=["model:N", "of:N", _tip("tokens:Q", "tokens", ","), _tip("bits:Q", "bits", ".3f")],
    )
    dashes = alt.StrokeDash("of:N", title="loss of", scale=alt.Scale(**of, range=[[1, 0], [4, 3]]))
    shapes = alt.Shape("of:N", title="loss of", scale=alt.Scale(**of, range=["circle", "cross"]))
    return alt.layer(
        base.mark_line().encode(strokeDash=dashes),
        base.mark_point(filled=True, size=45, opacity=1).encode(shape=shapes),
    )


def _bins_chart(bins: Bins, palette: Mapping[str, str]) -> Any:
    alt = altair()
    rows = [
        {"model": name, "bin": label, "bits": round(mean, 4), "amount": amount}
        for name, means in bins.means.items()
        for label, mean, amount in zip(bins.labels, means, bins.amounts, strict=True)
    ]
    chart = _chart(rows, f"{bins.loss} by {bins.by}, a line for each model")
    return chart.mark_line(point=alt.OverlayMarkDef(size=30)).encode(
        x=alt.X(
            "bin:O", title=bins.by, sort=None, axis=alt.Axis(labelAngle=0, labelOverlap="parity", labelSeparation=6)
        ),
        y=_from_lowest("bits", bins.loss),
        color=colour_of({name: colour for name, colour in palette.items() if name in bins.means}),
        tooltip=["model:N", _tip("bin:O", bins.by), _tip("bits:Q", bins.loss), "amount:Q"],
    )


def _kinds_chart(kinds: Bins, palette: Mapping[str, str]) -> Any:
    """Draw bits per word by kind of word: a point with its interval for each model, the best first."""
    alt = altair()
    shown = {name: colour for name, colour in palette.items() if name in kinds.means}
    rows = []
    for number, (label, equal) in enumerate(zip(kinds.labels, kinds.equal, strict=True)):
        for name in shown:
            bits = kinds.means[name][number]
            low, high = kinds.intervals[name][number] or (bits, bits)
            point = {"model": name, "kind": label, "told": name not in equal}
            rows.append({**point, "bits": bits, "low": low, "high": high})
    if not rows:
        return None
    base = _chart(rows, "Bits per word by kind of word, a point with its 95 % interval for each model").encode(
        x=alt.X("bits:Q", title=kinds.loss, axis=alt.Axis(tickCount=6)),
        y=alt.Y("kind:N", title=None, sort=None, axis=alt.Axis(grid=False, domain=False, ticks=False)),
        yOffset=alt.YOffset("model:N", sort=None),
        color=colour_of(shown),
        tooltip=["model:N", "kind:N", *(_tip(f"{one}:Q", one, ".3f") for one in ("bits", "low", "high"))],
    )
    filled = alt.condition("datum.told", alt.value(1.0), alt.value(0.0))
    points = base.mark_point(filled=False, size=28, opacity=1, strokeWidth=1.5)
    fills = base.mark_point(filled=True, size=28).encode(opacity=filled)
    bars = base.mark_rule(opacity=0.7).encode(x="low:Q", x2="high:Q")
    return alt.layer(bars, points, fills).properties(height=alt.Step(7 if len(shown) > 4 else 12))


def _learning_chart(comparison: Comparison, palette: Mapping[str, str]) -> Any:
    alt = altair()
    rows: list[dict[str, Any]] = [
        {"model": one.name, "tokens": one.tokens, "bits": one.bits_per_byte, "part": fraction(one.share)}
        for one in comparison.curve
        if one.bits_per_byte < math.inf
    ]
    if not rows:
        return None
    chart = _chart(rows, "Bits per byte against the tokens of the training text, a line for each model")
    axis = alt.Axis(format=".3~s", values=sorted({row["tokens"] for row in rows}))
    scale = alt.Scale(type="log", base=2, nice=False, padding=12)
    tips = [_tip("part:N", "of the training text"), _tip("tokens:Q", "tokens", ",")]
    return chart.mark_line(point=True).encode(
        x=alt.X("tokens:Q", title="training text, tokens", scale=scale, axis=axis),
        y=_from_lowest("bits", "bits per byte"),
        color=colour_of(learning_colours(comparison, palette)),
        tooltip=["model:N", *tips, _tip("bits:Q", "bits per byte", ".3f")],
    )


def pair_charts(details: PairDetails) -> dict[str, Any]:
    """Return the chart of two comparisons: a row for each model that both have, with its two losses."""
    alt = altair()
    rows = [
        {"model": name, "of": of, "loss": one.rank}
        for name, *both in details.models
        for of, one in zip(details.names, both, strict=True)
        if all(found is not None and found.has_finite_loss for found in both) and one is not None
    ]
    if not rows or not details.is_comparable:
        return {}
    loss = details.comparisons[0].loss_name
    base = _chart(rows, f"{loss} of each model in both comparisons").encode(
        x=alt.X("loss:Q", title=loss, scale=alt.Scale(zero=False, padding=12)),
        y=alt.Y("model:N", title=None, sort=None, axis=alt.Axis(labelLimit=150, grid=True)),
    )
    points = base.mark_point(filled=True, size=70, opacity=1).encode(
        color=colour_of(colours(details.names), "of", "comparison"),
        tooltip=["model:N", _tip("of:N", "comparison"), _tip("loss:Q", loss, ".4f")],
    )
    lines = base.mark_line(color=OTHER, strokeWidth=2).encode(detail="model:N")
    return {"pair": alt.layer(lines, points).properties(height=alt.Step(26))}


def run_charts(points: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Return the charts of a training by name; `points` are its measurements, with losses in bits per token."""
    alt = altair()
    charts: dict[str, Any] = {}
    x = alt.X("step:Q", axis=alt.Axis(format="~s", tickCount=6))
    losses = [
        {"step": one["step"], "bits": one[key], "model": of}
        for one in points
        for key, of in (("loss", "training"), ("validation_loss", "validation"))
        if key in one
    ]
    if losses:
        chart = _chart(losses, "The loss in training and in validation, in bits per token, by step")
        charts["loss"] = chart.mark_line(point=len(losses) < 60).encode(
            x=x,
            y=_from_lowest("bits", "bits per token"),
            color=colour_of(LOSSES, title="loss of"),
            tooltip=["model:N", "step:Q", _tip("bits:Q", "bits", ".4f")],
        )
    for key, (title, numbers) in _RUN_CHARTS.items():
        rows = [{"step": one["step"], "value": one[key]} for one in points if key in one]
        if rows:
            chart = _chart(rows, f"The {title} by step")
            charts[key.replace("_", "-")] = chart.mark_line(point=len(rows) < 60, color=COLOURS[0]).encode(
                x=x,
                y=alt.Y("value:Q", title=title, axis=alt.Axis(format=numbers)),
                tooltip=["step:Q", _tip("value:Q", title)],
            )
    return charts
