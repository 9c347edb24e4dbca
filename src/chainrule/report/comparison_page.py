"""The page of a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chainrule.comparison.learning_curve import fraction
from chainrule.report.charts import OTHER, colours, learning_colours
from chainrule.report.costs import Cost, shown
from chainrule.report.html import chip, figure_of, legend_of, numbers_of, page, specs, text
from chainrule.report.record import ComparisonRecord, Row
from chainrule.report.surprise import LONGEST_SPAN, Bins

_LEAST_SHOWN = 0.0001  # bits per byte, of a difference
_LONG_SAMPLE = 500  # characters that may be more than a card shows at a time


def comparison_page(record: ComparisonRecord, charts: Mapping[str, Any]) -> str:
    """The page of a comparison."""
    palette = colours([row.name for row in record.drawn])
    sections = [("table", "Which model to use", _table_section(record, palette))]
    if any(row.behind for row in record.models) and any(row.is_best for row in record.models):
        sections.append(("best", "Against the best", _best_section(record, palette)))
    costs = [name for name in charts if name.startswith("cost-")]
    if costs:
        sections.append(("costs", "Quality against cost", _costs_section(record, costs, palette)))
    if "training" in charts:
        sections.append(("training", "Training", _training_section(record, palette)))
    inside = [name for name in ("position", "frequency") if name in charts]
    if inside:
        sections.append(("where", "Where models do well", _where_section(record, inside, palette)))
    if "learning" in charts:
        sections.append(("learning", "More text", _learning_section(record, palette)))
    sections.append(("samples", "What they write", _samples_section(record, palette)))
    if record.map is not None:
        sections.append(("map", "The held-out text, word by word", _map_section(record)))
    lead = _comparison_lead(record)
    map_data = None
    if record.map is not None:
        map_data = {"words": record.map.words, "tenths": record.map.tenths, "spans": record.map.spans}
    return page(record.title, lead, sections, {"charts": specs(charts), "map": map_data}, None)


def _comparison_lead(record: ComparisonRecord) -> str:
    train, test = record.parts.get("train", {}), record.parts.get("test", {})
    unit = "tokens" if record.task == "language" else "lines"
    found = (
        f"{len(record.models)} models on one text: trained on {train.get(unit, 0):,} {unit}, measured on "
        f"{test.get(unit, 0):,} that no model has seen; {text(record.tokenizer)} tokens, vocabulary "
        f"{record.vocab_size:,}."
    )
    return found if record.is_finished else f"{found} The comparison is not finished."


def _table_section(record: ComparisonRecord, palette: Mapping[str, str]) -> str:
    costs = [Cost(**values) for values in record.costs]
    figures = list(dict.fromkeys(name for row in record.models for name in row.figures))
    has_interval = any(row.interval for row in record.models)
    has_steps = any(row.steps is not None for row in record.models)
    headings = ["model", *figures, *(["95 % interval"] if has_interval else []), *(_titled(c) for c in costs)]
    headings += ["steps"] if has_steps else []
    head = "".join(f'<th scope="col"><button type="button">{text(name)}</button></th>' for name in headings)
    rows = "".join(_table_row(row, figures, has_interval, costs, has_steps, palette) for row in record.models)
    caption = f"{'Bits per byte' if record.task == 'language' else 'The loss'} and what each model costs"
    notes = [
        '<span class="mark">°</span> no other model is both as good and as cheap in this respect. '
        "A click on a heading sorts.",
        *map(text, record.missing),
    ]
    return (
        f'<p class="pick">{text(record.advice)}</p>'
        f'<div class="scroll" role="region" aria-label="{caption}" tabindex="0"><table><caption><span>{caption}; '
        f"the best is marked</span></caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
        + "".join(f'<p class="small">{note}</p>' for note in notes)
    )


def _best_section(record: ComparisonRecord, palette: Mapping[str, str]) -> str:
    """How much worse than the best each model is, with an interval, and whether the test text shows it."""
    best = next(row.name for row in record.models if row.is_best)
    behind = sorted((row for row in record.models if row.behind is not None), key=lambda row: row.behind or ())
    equal = [row.name for row in behind if not row.is_told_from_best]
    found = f"The test text shows that <b>{text(best)}</b> is the best of them."
    if equal:
        found = f"The test text cannot tell <b>{text(best)}</b> from {_listed(equal)}."
    left_out = len(record.models) - len(behind) - 1
    note = f" Not listed: {left_out} without a probability for every token." if left_out else ""
    rows = "".join(_behind_row(row, palette) for row in behind)
    caption = f"{record.loss.capitalize()} above {text(best)}'s on the same documents"
    return (
        f'<p>{found}</p><div class="scroll narrow" role="region" aria-label="{caption}" tabindex="0"><table>'
        f"<caption><span>{caption}, with the 95 % interval</span></caption><thead><tr>"
        '<th scope="col">model</th><th scope="col">worse by</th><th scope="col">told apart</th></tr></thead>'
        f'<tbody>{rows}</tbody></table></div><p class="small">The documents of the test text are drawn again and '
        "again, the same for both models; two are told apart where the one is worse on nearly all draws."
        f"{note}</p>"
    )


def _listed(names: Sequence[str]) -> str:
    """Names in bold; a name may have a comma in it."""
    *others, last = (f"<b>{text(name)}</b>" for name in names)
    return f"{', '.join(others)} and {last}" if others else last


def _behind_row(row: Row, palette: Mapping[str, str]) -> str:
    assert row.behind is not None
    if max(map(abs, row.behind)) < _LEAST_SHOWN:
        worse = f"under {_LEAST_SHOWN}"
    else:
        digits = 3 if min(map(abs, row.behind)) >= 0.001 else 4
        mean, low, high = (f"{value:.{digits}f}".replace("-", "−") for value in row.behind)
        worse = f'{mean}<span class="small">{low} to {high}</span>'
    return (
        f'<tr><th scope="row">{chip(palette.get(row.name))}{text(row.name)}</th><td>{worse}</td>'
        f"<td>{'yes' if row.is_told_from_best else 'no'}</td></tr>"
    )


def _titled(cost: Cost) -> str:
    return f"{cost.name}, {cost.unit}" if cost.unit else cost.name


def _table_row(
    row: Row,
    figures: Sequence[str],
    has_interval: bool,
    costs: Sequence[Cost],
    has_steps: bool,
    palette: Mapping[str, str],
) -> str:
    cells = []
    for name in figures:
        value = row.figures.get(name)
        figure = shown(value, 4)
        figure = f"({figure})" if row.loss is None and figure else figure
        cells.append(_cell(value if row.loss is not None else None, figure))
    if has_interval:
        interval = "" if row.interval is None else f"{shown(row.interval[0], 4)} to {shown(row.interval[1], 4)}"
        cells.append(_cell(None if row.interval is None else row.interval[0], interval))
    for cost in costs:
        mark = ""
        if cost.key in row.frontier:
            mark = '<span class="mark" aria-hidden="true">°</span><span class="hidden"> (on the frontier)</span>'
        cells.append(_cell(row.costs[cost.key], shown(row.costs[cost.key]), mark))
    if has_steps:
        cells.append(_cell(row.steps, "" if row.steps is None else f"{row.steps:,}"))
    note = f'<span class="small">{text(row.note)}</span>' if row.note else ""
    best = ' <span class="mark">best</span>' if row.is_best else ""
    return (
        f'<tr{" class=best" if row.is_best else ""}><th scope="row">{chip(palette.get(row.name))}'
        f"{text(row.name)}{best}{note}</th>{''.join(cells)}</tr>"
    )


def _cell(value: float | None, figure: str, mark: str = "") -> str:
    # infinity has a number that sorts behind all others; a cell without a value sorts last both ways
    sorted_by = "" if value is None else "1e308" if value == float("inf") else repr(value)
    return f'<td data-value="{sorted_by}">{text(figure)}{mark}</td>'


def _costs_section(record: ComparisonRecord, names: Sequence[str], palette: Mapping[str, str]) -> str:
    costs = {f"cost-{values['key'].replace('_', '-')}": Cost(**values) for values in record.costs}
    more = []
    if len(record.models) > len(palette):
        more.append(f"{chip(OTHER)}other models")
    more.append(f"{chip('currentColor', ' frontier')}no other is both as good and as cheap")
    figures = []
    for name in names:
        better = "right" if costs[name].more_is_better else "left"
        figures.append(
            figure_of(name, f"{text(costs[name].name.capitalize())}: better is lower, cheaper is {better}.")
        )
    return f'{legend_of(palette, *more)}<div class="charts">{"".join(figures)}</div>'


def _training_section(record: ComparisonRecord, palette: Mapping[str, str]) -> str:
    shown_here = {curve.name: palette.get(curve.name, OTHER) for curve in record.curves}
    rows = [
        (
            curve.name,
            f"{point['step']:,}",
            f"{point['tokens']:,}",
            *(shown(point.get(key), 4) for key in ("loss", "validation_loss")),
        )
        for curve in record.curves
        for point in curve.points
    ]
    headings = ("network", "step", "tokens", "training, bits", "validation, bits")
    numbers = numbers_of("The curves of the networks", headings, rows)
    caption = "Bits per token: a solid line and circles in validation, dashes and crosses in training."
    return legend_of(shown_here) + figure_of("training", caption, numbers)


def _where_section(record: ComparisonRecord, names: Sequence[str], palette: Mapping[str, str]) -> str:
    figures, legend = [], ""
    for name in names:
        bins: Bins | None = record.position if name == "position" else record.frequency
        assert bins is not None
        legend = legend or legend_of({model: palette[model] for model in palette if model in bins.means})
        headings = ("model", *bins.labels)
        rows = [
            (model, *(shown(value, 4) for value in bins.means[model])) for model in palette if model in bins.means
        ]
        caption = f"{bins.loss.capitalize()} by {bins.by}"
        figures.append(figure_of(name, f"{text(caption)}.", numbers_of(caption, headings, rows)))
    return f'{legend}<div class="charts">{"".join(figures)}</div>'


def _learning_section(record: ComparisonRecord, palette: Mapping[str, str]) -> str:
    """The learning curves: a chart, and a row of numbers for each model."""
    shares = sorted({one["share"] for one in record.learning})
    points: dict[str, dict[float, float]] = {}
    for one in record.learning:
        points.setdefault(one["name"], {})[one["share"]] = one["bits_per_byte"]
    rows = [(name, *(shown(found.get(share), 4) for share in shares)) for name, found in points.items()]
    caption = "Bits per byte against the training text"
    numbers = numbers_of(f"{caption}, by its share", ("model", *map(fraction, shares)), rows)
    explained = (
        "Each model was also trained on parts of the training text, of whole documents, and measured on the same "
        "test text; a network had the same time on each. A line that still falls at its right end says that more "
        "text would help; one that is flat, that it would not, or that the time is too short to read it."
    )
    legend = legend_of(learning_colours(record, palette))
    return f"<p>{explained}</p>{legend}" + figure_of("learning", f"{caption}.", numbers)


def _samples_section(record: ComparisonRecord, palette: Mapping[str, str]) -> str:
    parts = [f'<p class="small">{text(record.samples.how)}.</p>']
    for number, prompt in enumerate(record.samples.prompts):
        cards = []
        for name, texts in record.samples.texts.items():
            sample = texts[number] if number < len(texts) else ""
            begun = sample.startswith(prompt) and prompt
            body = f"<b>{text(prompt)}</b>{text(sample[len(prompt) :])}" if begun else text(sample)
            scrolls = ' tabindex="0"' if len(sample) > _LONG_SAMPLE else ""  # so that the keys can scroll it
            cards.append(
                f"<article><h4>{chip(palette.get(name))}{text(name)}</h4>"
                f'<pre dir="auto"{scrolls}>{body or "(nothing)"}</pre></article>'
            )
        heading = f"After “{text(prompt)}”" if prompt else "Without a prompt"
        parts.append(f'<h3>{heading}</h3><div class="cards">{"".join(cards)}</div>')
    return "".join(parts)


def _map_section(record: ComparisonRecord) -> str:
    assert record.map is not None
    names = list(record.map.tenths)
    first, *others = sorted(
        (row for row in record.drawn if row.name in names), key=lambda row: names.index(row.name)
    )
    # the best of the other sort, counted or trained in steps, or else of another kind
    unlike = [row.name for row in others if (row.steps is None) != (first.steps is None)]
    unlike += [row.name for row in others if row.kind != first.kind]
    second = unlike[0] if unlike else names[-1]

    def options(chosen: str) -> str:
        return "".join(
            f'<option value="{text(name)}"{" selected" if name == chosen else ""}>{text(name)}</option>'
            for name in names
        )

    views = (("a", "surprise of A"), ("b", "surprise of B"), ("difference", "difference"))
    radios = "".join(
        f'<label><input type="radio" name="view" value="{value}"{" checked" * (value == "a")}> {label}</label>'
        for value, label in views
    )
    shown_words = len(record.map.words)
    part = (
        f"The first {shown_words:,} of {record.map.analysed_words:,} words are shown. "
        if shown_words < record.map.analysed_words
        else ""
    )
    return (
        "<p>The colour of a word is what it takes to write it down under a model, in bits. What tokens take is "
        "spread over their bytes, so models with different tokens compare. Point at a word, or move through the "
        "text by the arrow keys, for its numbers.</p>"
        f'<div class="controls"><label>A <select id="map-a">{options(names[0])}</select></label>'
        f'<label>B <select id="map-b">{options(second)}</select></label>'
        f'<fieldset><legend class="hidden">What the colours show</legend>{radios}</fieldset></div>'
        '<div class="scale" id="map-scale"><span id="map-low"></span><i></i><span id="map-high"></span></div>'
        '<p id="map-readout" role="status"></p>'
        '<div id="map-text" role="group" tabindex="0" dir="auto"></div>'
        '<div class="charts"><div><h3 id="spans-a-title"></h3><ol class="spans" id="spans-a"></ol></div>'
        '<div class="reverse"><h3 id="spans-b-title"></h3><ol class="spans" id="spans-b"></ol></div></div>'
        f'<p class="small">{part}A span has at most {LONGEST_SPAN} words of one line.</p>'
    )
