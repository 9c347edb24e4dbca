"""The HTML of a report: a record and its charts in one file that needs nothing else.

Every text is escaped: names and samples may hold anything. What the script reads is JSON without a "<".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from chainrule._version import __version__
from chainrule.evaluation.curve import fraction
from chainrule.folder import to_json
from chainrule.report.charts import LOSSES, OTHER, altair, colours, learning_colours
from chainrule.report.costs import Cost, shown
from chainrule.report.record import ComparisonRecord, Row
from chainrule.report.run import RunRecord
from chainrule.report.surprise import LONGEST_SPAN, Bins

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
_LEAST_SHOWN = 0.0001  # bits per byte, of a difference
_LONG_SAMPLE = 500  # characters that may be more than a card shows at a time
_WHOLE_TABLE = 400  # rows of a table of numbers under a chart; report.json has them all


@cache
def _vega() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, of the version for which Altair writes."""
    import vl_convert

    version = altair().SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    known = vl_convert.get_vegalite_versions()
    bundle: str = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=version if version in known else None
    )
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _template(name: str) -> str:
    return files("chainrule.report").joinpath("template", name).read_text(encoding="utf-8")


def text(value: object) -> str:
    """A text in HTML: escaped, and what cannot be seen is shown by a sign.

    >>> text("<b> & \\x00")
    '&lt;b&gt; &amp; ␀'
    """
    clean = str(value).encode("utf-8", errors="replace").decode()
    return escape(clean.translate(_CONTROLS))


def _json(value: object) -> str:
    """JSON that can stand in a script element, whatever text is in it."""
    tight = json.dumps(json.loads(to_json(value)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        tight = tight.replace(character, f"\\u{ord(character):04x}")
    return tight


def _page(
    title: str,
    lead: str,
    sections: Sequence[tuple[str, str, str]],
    data: Mapping[str, Any],
    refresh: int | None,
) -> str:
    """The whole page; a section is an id, a title, and its HTML."""
    slots = {
        "title": text(title),
        "lead": lead,
        "contents": "".join(f'<li><a href="#{name}">{heading}</a></li>' for name, heading, _ in sections),
        "body": "\n".join(
            f'<section id="{name}" aria-labelledby="{name}-title">'
            f'<h2 id="{name}-title">{heading}</h2>{body}</section>'
            for name, heading, body in sections
        ),
        "footer": f"Made by chainrule {text(__version__)}. The JSON file beside this page has every number of it.",
        "refresh": "" if refresh is None else f'<meta http-equiv="refresh" content="{refresh}">\n',
        "style": _template("style.css"),
        "script": _template("script.js"),
        "vega": _vega(),
        "data": _json(data),
    }
    return _SLOT.sub(lambda slot: slots[slot[1]], _template("page.html"))


# -- a comparison -----------------------------------------------------------------------------------------


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
    return _page(record.title, lead, sections, {"charts": _specs(charts), "map": map_data}, None)


def _specs(charts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: chart.to_dict() for name, chart in charts.items()}


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
        f'<tr><th scope="row">{_chip(palette.get(row.name))}{text(row.name)}</th><td>{worse}</td>'
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
        f'<tr{" class=best" if row.is_best else ""}><th scope="row">{_chip(palette.get(row.name))}'
        f"{text(row.name)}{best}{note}</th>{''.join(cells)}</tr>"
    )


def _cell(value: float | None, figure: str, mark: str = "") -> str:
    # infinity has a number that sorts behind all others; a cell without a value sorts last both ways
    sorted_by = "" if value is None else "1e308" if value == float("inf") else repr(value)
    return f'<td data-value="{sorted_by}">{text(figure)}{mark}</td>'


def _chip(colour: str | None, shape: str = "") -> str:
    if colour is None:
        return ""
    return f'<span class="chip{shape}" style="background:{colour}" aria-hidden="true"></span>'


def _legend(palette: Mapping[str, str], *more: str) -> str:
    items = [f"{_chip(colour)}{text(name)}" for name, colour in palette.items()]
    return '<ul class="legend">' + "".join(f"<li>{item}</li>" for item in [*items, *more]) + "</ul>"


def _figure(name: str, caption: str, numbers: str = "") -> str:
    return (
        f'<figure><div class="chart" data-chart="{name}"></div><figcaption>{caption}</figcaption>{numbers}</figure>'
    )


def _numbers(caption: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """The numbers of a chart, for who cannot see it or wants to copy them."""
    head = "".join(f'<th scope="col">{text(name)}</th>' for name in headings)
    body = "".join(
        f'<tr><th scope="row">{text(row[0])}</th>{"".join(f"<td>{text(cell)}</td>" for cell in row[1:])}</tr>'
        for row in rows[:_WHOLE_TABLE]
    )
    return (
        f'<details><summary>Numbers</summary><div class="scroll" role="region" aria-label="{text(caption)}" '
        f'tabindex="0"><table><caption><span>{text(caption)}</span></caption><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div></details>"
    )


def _costs_section(record: ComparisonRecord, names: Sequence[str], palette: Mapping[str, str]) -> str:
    costs = {f"cost-{values['key'].replace('_', '-')}": Cost(**values) for values in record.costs}
    more = []
    if len(record.models) > len(palette):
        more.append(f"{_chip(OTHER)}other models")
    more.append(f"{_chip('currentColor', ' frontier')}no other is both as good and as cheap")
    figures = []
    for name in names:
        better = "right" if costs[name].more_is_better else "left"
        figures.append(
            _figure(name, f"{text(costs[name].name.capitalize())}: better is lower, cheaper is {better}.")
        )
    return f'{_legend(palette, *more)}<div class="charts">{"".join(figures)}</div>'


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
    numbers = _numbers("The curves of the networks", headings, rows)
    caption = "Bits per token: a solid line and circles in validation, dashes and crosses in training."
    return _legend(shown_here) + _figure("training", caption, numbers)


def _where_section(record: ComparisonRecord, names: Sequence[str], palette: Mapping[str, str]) -> str:
    figures, legend = [], ""
    for name in names:
        bins: Bins | None = record.position if name == "position" else record.frequency
        assert bins is not None
        legend = legend or _legend({model: palette[model] for model in palette if model in bins.means})
        headings = ("model", *bins.labels)
        rows = [
            (model, *(shown(value, 4) for value in bins.means[model])) for model in palette if model in bins.means
        ]
        caption = f"{bins.loss.capitalize()} by {bins.by}"
        figures.append(_figure(name, f"{text(caption)}.", _numbers(caption, headings, rows)))
    return f'{legend}<div class="charts">{"".join(figures)}</div>'


def _learning_section(record: ComparisonRecord, palette: Mapping[str, str]) -> str:
    """The learning curves: a chart, and a row of numbers for each model."""
    shares = sorted({one["share"] for one in record.learning})
    points: dict[str, dict[float, float]] = {}
    for one in record.learning:
        points.setdefault(one["name"], {})[one["share"]] = one["bits_per_byte"]
    rows = [(name, *(shown(found.get(share), 4) for share in shares)) for name, found in points.items()]
    caption = "Bits per byte against the training text"
    numbers = _numbers(f"{caption}, by its share", ("model", *map(fraction, shares)), rows)
    explained = (
        "Each model was also trained on parts of the training text, of whole documents, and measured on the same "
        "test text; a network had the same time on each. A line that still falls at its right end says that more "
        "text would help; one that is flat, that it would not, or that the time is too short to read it."
    )
    legend = _legend(learning_colours(record, palette))
    return f"<p>{explained}</p>{legend}" + _figure("learning", f"{caption}.", numbers)


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
                f"<article><h4>{_chip(palette.get(name))}{text(name)}</h4>"
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


# -- one training -----------------------------------------------------------------------------------------

_RUN_CAPTIONS = {
    "loss": "The loss in bits per token.",
    "learning-rate": "The learning rate.",
    "tokens-per-second": "The speed of training, tokens/s.",
    "grad-norm": "The norm of the gradient.",
}
_SUMMARY = {
    "step": "step",
    "tokens": "tokens seen",
    "seconds": "seconds",
    "loss": "loss in training, bits per token",
    "validation_loss": "loss in validation, bits per token",
    "best_validation_loss": "best loss in validation, bits per token",
    "learning_rate": "learning rate",
    "tokens_per_second": "tokens/s",
}


def run_page(record: RunRecord, charts: Mapping[str, Any], refresh: int | None = None) -> str:
    """The page of one training; with `refresh`, a browser reads it again after so many seconds."""
    summary = [(title, shown(record.summary[key], 4)) for key, title in _SUMMARY.items() if key in record.summary]
    facts = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in summary)
    now = f"<dl>{facts}</dl>" if facts else "<p>Nothing was measured yet.</p>"
    sections = [("now", "Where it is" if record.is_going_on else "What came of it", now)]
    if charts:
        points = [
            (f"{one['step']:,}", *(shown(one.get(key), 4) for key in ("loss", "validation_loss")))
            for one in record.points
        ]
        numbers = _numbers("Losses by step, bits per token", ("step", "training", "validation"), points)
        figures = "".join(_figure(name, _RUN_CAPTIONS[name], numbers if name == "loss" else "") for name in charts)
        sections.append(("curves", "Curves", f'{_legend(LOSSES)}<div class="charts">{figures}</div>'))
    if record.settings:
        listed = "".join(f"<dt>{text(name)}</dt><dd>{text(value)}</dd>" for name, value in record.settings.items())
        sections.append(("settings", "Settings", f"<dl>{listed}</dl>"))
    going = "It is going on; the page follows it." if refresh is not None else ""
    lead = f"{text(record.kind)}, {record.measurements:,} measurements. {going}".strip(", ")
    return _page(record.title, lead, sections, {"charts": _specs(charts), "map": None}, refresh)
