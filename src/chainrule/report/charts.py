"""The charts of a record, by Altair.

A chart is a value that holds its own data; the page draws it with Vega, and `save` makes PNG and SVG files of it.
Every model keeps one colour through the whole report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from chainrule.comparison.learning_curve import fraction
from chainrule.errors import MissingExtraError
from chainrule.report.costs import Cost

if TYPE_CHECKING:
    from chainrule.report.record import ComparisonRecord
    from chainrule.report.run import RunRecord
    from chainrule.report.surprise import Bins

EXTRA = "report"
COLOURS = (
    "#3987e5",
    "#d95926",
    "#199e70",
    "#c98500",
    "#d55181",
    "#9085e9",
    "#008aa8",
    "#8a7a52",
    "#e66767",
    "#5f9c2e",
)
"""Of models, in the order of their loss: middle tones, which are seen on white and on black."""
OTHER = "#8a8f98"
"""Of models that are not among those drawn."""
WIDTH, HEIGHT = 600, 300


def altair() -> Any:
    """The library, or an error that names the extra."""
    try:
        import altair
        import vl_convert  # noqa: F401 (what makes files of charts)
    except ImportError as error:
        library = "vl-convert-python" if error.name == "vl_convert" else "altair"
        raise MissingExtraError(library, EXTRA, "a report") from None
    return altair


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each model."""
    return {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(names)}


def learning_colours(record: ComparisonRecord, palette: Mapping[str, str]) -> dict[str, str]:
    """Of the models with a learning curve: their own, or one that no other of them has."""
    names = dict.fromkeys(one["name"] for one in record.learning if one["bits_per_byte"] < math.inf)
    taken = {palette[name] for name in names if name in palette}
    free = [colour for colour in COLOURS if colour not in taken]
    return {name: palette.get(name) or (free.pop(0) if free else OTHER) for name in names}


def comparison_charts(record: ComparisonRecord) -> dict[str, Any]:
    """The charts of a comparison by their names, which are those of their files."""
    palette = colours([row.name for row in record.drawn])
    charts: dict[str, Any] = {}
    for cost in (Cost(**values) for values in record.costs):
        if chart := _cost_chart(record, cost, palette):
            charts[f"cost-{cost.key.replace('_', '-')}"] = chart
    if record.curves:
        charts["training"] = _training_chart(record, palette)
    for name, bins in (("position", record.position), ("frequency", record.frequency)):
        if bins is not None:
            charts[name] = _bins_chart(bins, palette)
    if any(one["bits_per_byte"] < math.inf for one in record.learning):
        charts["learning"] = _learning_chart(record, palette)
    return charts


def _colour(palette: Mapping[str, str], title: str = "model") -> Any:
    alt = altair()
    return alt.Color(
        "model:N", title=title, sort=None, scale=alt.Scale(domain=list(palette), range=list(palette.values()))
    )


def _chart(rows: Sequence[Mapping[str, Any]], description: str) -> Any:
    alt = altair()
    return alt.Chart(alt.InlineData(values=list(rows)), description=description, width=WIDTH, height=HEIGHT)


def _cost_chart(record: ComparisonRecord, cost: Cost, palette: Mapping[str, str]) -> Any:
    """Loss against one cost: a point for each model, and the line of those that none beats."""
    alt = altair()
    rows = [
        {
            "model": row.name,
            "cost": price,
            "loss": row.loss,
            "low": row.interval[0] if row.interval else row.loss,
            "high": row.interval[1] if row.interval else row.loss,
            "frontier": cost.key in row.frontier,
        }
        for row in record.models
        if (price := row.costs[cost.key]) is not None and price > 0 and row.loss is not None and row.loss < 1e9
    ]
    if not rows:
        return None
    title = f"{cost.name} ({cost.unit})" if cost.unit else cost.name
    names = {str(row["model"]) for row in rows}
    shown = {**{name: colour for name, colour in palette.items() if name in names}}
    shown |= dict.fromkeys(sorted(names - set(shown)), OTHER)
    cheap = "right" if cost.more_is_better else "left"
    base = _chart(rows, f"{record.loss} against {title}; the best models for their cost are at the lower {cheap}")
    x = alt.X(
        "cost:Q",
        title=title,
        scale=alt.Scale(type="log", nice=False, padding=24),
        axis=alt.Axis(
            tickCount=5,
            format="~s" if cost.is_large else "~g",
            labelBound=True,
            labelOverlap="greedy",
            labelSeparation=8,
        ),
    )
    y = alt.Y("loss:Q", title=record.loss, scale=alt.Scale(zero=False, padding=12))
    tooltip = [
        alt.Tooltip("model:N"),
        alt.Tooltip("loss:Q", title=record.loss, format=".4f"),
        alt.Tooltip("cost:Q", title=title, format=",.4~g"),
    ]
    line = (
        base.transform_filter("datum.frontier")
        .mark_line(
            interpolate="step-before" if cost.more_is_better else "step-after", strokeDash=[5, 4], color=OTHER
        )
        .encode(x=x, y=y)
    )
    bars = base.mark_rule(opacity=0.6).encode(x=x, y="low:Q", y2="high:Q", color=_colour(shown))
    size = alt.condition("datum.frontier", alt.value(110), alt.value(45))
    points = base.mark_point(filled=True, opacity=0.95).encode(
        x=x,
        y=y,
        size=size,
        color=_colour(shown),
        tooltip=tooltip,
        shape=alt.condition("datum.frontier", alt.value("diamond"), alt.value("circle")),
    )
    layers = [line, bars, points] if any(row.interval for row in record.models) else [line, points]
    return alt.layer(*layers)


def _training_chart(record: ComparisonRecord, palette: Mapping[str, str]) -> Any:
    """The curves of all networks; a short training may have a single point."""
    alt = altair()
    rows = [
        {"model": curve.name, "tokens": point["tokens"], "bits": point[key], "of": of}
        for curve in record.curves
        for point in curve.points
        for key, of in (("validation_loss", "validation"), ("loss", "training"))
        if key in point
    ]
    names = list(dict.fromkeys(str(row["model"]) for row in rows))
    of = {"domain": ["validation", "training"]}
    base = _chart(rows, "Loss in bits per token against the tokens seen in training, of every network").encode(
        x=alt.X("tokens:Q", title="tokens seen", axis=alt.Axis(format="~s", tickCount=6)),
        y=alt.Y("bits:Q", title="bits per token", scale=alt.Scale(zero=False)),
        color=_colour({name: palette.get(name, OTHER) for name in names}),
        tooltip=["model:N", "of:N", alt.Tooltip("tokens:Q", format=","), alt.Tooltip("bits:Q", format=".3f")],
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
    shown = {name: colour for name, colour in palette.items() if name in bins.means}
    return (
        _chart(rows, f"{bins.loss} by {bins.by}, a line for each model")
        .mark_line(point=alt.OverlayMarkDef(size=30))
        .encode(
            x=alt.X("bin:O", title=bins.by, sort=None, axis=alt.Axis(labelAngle=0, labelOverlap="parity")),
            y=alt.Y("bits:Q", title=bins.loss, scale=alt.Scale(zero=False)),
            color=_colour(shown),
            tooltip=[
                "model:N",
                alt.Tooltip("bin:O", title=bins.by),
                alt.Tooltip("bits:Q", title=bins.loss),
                "amount:Q",
            ],
        )
    )


def _learning_chart(record: ComparisonRecord, palette: Mapping[str, str]) -> Any:
    alt = altair()
    rows = [
        {
            "model": one["name"],
            "tokens": one["tokens"],
            "bits": one["bits_per_byte"],
            "part": fraction(one["share"]),
        }
        for one in record.learning
        if one["bits_per_byte"] < math.inf
    ]
    return (
        _chart(rows, "Bits per byte against the tokens of the training text, a line for each model")
        .mark_line(point=True)
        .encode(
            x=alt.X(
                "tokens:Q",
                title="training text, tokens",
                scale=alt.Scale(type="log", base=2, nice=False, padding=12),
                axis=alt.Axis(format=".3~s", values=sorted({row["tokens"] for row in rows})),
            ),
            y=alt.Y("bits:Q", title="bits per byte", scale=alt.Scale(zero=False)),
            color=_colour(learning_colours(record, palette)),
            tooltip=[
                "model:N",
                alt.Tooltip("part:N", title="of the training text"),
                alt.Tooltip("tokens:Q", format=","),
                alt.Tooltip("bits:Q", title="bits per byte", format=".3f"),
            ],
        )
    )


# -- one training -----------------------------------------------------------------------------------------

LOSSES = {"training": COLOURS[0], "validation": COLOURS[1]}


def run_charts(record: RunRecord) -> dict[str, Any]:
    """The charts of a training: the losses, the learning rate, the speed."""
    alt = altair()
    charts: dict[str, Any] = {}
    losses = [
        {"step": one["step"], "bits": one[key], "model": of}
        for one in record.points
        for key, of in (("loss", "training"), ("validation_loss", "validation"))
        if key in one
    ]
    if losses:
        charts["loss"] = (
            _chart(losses, "The loss in training and in validation, in bits per token, by step")
            .mark_line(point=len(losses) < 60)
            .encode(
                x=alt.X("step:Q", axis=alt.Axis(format="~s", tickCount=6)),
                y=alt.Y("bits:Q", title="bits per token", scale=alt.Scale(zero=False)),
                color=_colour(LOSSES, "loss of"),
                tooltip=["model:N", "step:Q", alt.Tooltip("bits:Q", format=".4f")],
            )
        )
    for key, title in (
        ("learning_rate", "learning rate"),
        ("tokens_per_second", "tokens/s"),
        ("grad_norm", "gradient norm"),
    ):
        rows = [{"step": one["step"], "value": one[key]} for one in record.points if key in one]
        if rows:
            charts[key.replace("_", "-")] = (
                _chart(rows, f"The {title} by step")
                .mark_line(point=len(rows) < 60, color=COLOURS[0])
                .encode(
                    x=alt.X("step:Q", axis=alt.Axis(format="~s", tickCount=6)),
                    y=alt.Y(
                        "value:Q", title=title, axis=alt.Axis(format="~s" if key == "tokens_per_second" else "~g")
                    ),
                    tooltip=["step:Q", alt.Tooltip("value:Q", title=title)],
                )
            )
    return charts
