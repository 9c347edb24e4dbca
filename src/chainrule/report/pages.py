"""The pages of reports: templates of Jinja, filled with the figures of a comparison or a training.

Every text is escaped: names and samples may hold anything. The data of the script is JSON without a "<".
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from chainrule._version import __version__
from chainrule.comparison.advice import joined
from chainrule.comparison.learning_curve import fraction
from chainrule.comparison.results import Result
from chainrule.comparison.tables import seeds_in_words, training_table
from chainrule.evaluation.intervals import FEWEST
from chainrule.folder import to_json
from chainrule.report.charts import LOSSES, OTHER, altair, colours, cost_chart_name, learning_colours
from chainrule.report.pair import PairDetails, difference, ratio
from chainrule.report.record import ComparisonDetails
from chainrule.report.run import RunDetails
from chainrule.report.surprise import KINDS, LONGEST_SPAN
from chainrule.system.display import ResultTable, number, visible

if TYPE_CHECKING:
    import jinja2

_LEAST_SHOWN = 0.0001  # bits per byte, of a difference
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


def shown(value: float | None, digits: int = 3) -> str:
    """Format a number for people: 1,234 or 0.00123 or ∞, and nothing for None.

    >>> shown(1234567), shown(2.0917), shown(0.00123), shown(math.inf), shown(None)
    ('1,234,567', '2.09', '0.00123', '∞', '')
    """
    if value is None or math.isnan(value):
        return ""
    return f"{value:,}" if isinstance(value, int) else number(value, digits)


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    found = jinja2.Environment(
        loader=jinja2.PackageLoader("chainrule.report", "template"),
        autoescape=True,
        finalize=visible,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters |= {"shown": shown, "difference": _difference, "sort_key": _sort_key}
    found.globals |= {"version": __version__, "OTHER": OTHER, "static": _static, "vega": _vega}
    return found


@cache
def _vega() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one script, of the version for which Altair writes."""
    import vl_convert

    version = altair().SCHEMA_VERSION.removeprefix("v").rpartition(".")[0]
    known = vl_convert.get_vegalite_versions()
    bundle: str = vl_convert.javascript_bundle(
        "window.vegaEmbed = vegaEmbed;", vl_version=version if version in known else None
    )
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


@cache
def _static(name: str) -> str:
    return files("chainrule.report").joinpath("template", name).read_text(encoding="utf-8")


def page(
    template: str,
    title: str,
    sections: Mapping[str, tuple[str | None, str]],
    charts: Mapping[str, Any],
    *,
    surprisals: Mapping[str, Any] | None = None,
    refresh: int | None = None,
    **values: Any,
) -> str:
    """Fill a template; `sections` are by their ids: the title, None for a section to leave out, and a summary.

    A section with a summary is closed at first, and shows the summary beside its title.
    """
    data = {"charts": {name: chart.to_dict() for name, chart in charts.items()}, "map": surprisals}
    tight = json.dumps(json.loads(to_json(data)), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":  # so that it can stand in a script element
        tight = tight.replace(character, f"\\u{ord(character):04x}")
    values["sections"] = {name: heading for name, (heading, _) in sections.items() if heading is not None}
    values["folds"] = {name: summary for name, (_, summary) in sections.items() if summary}
    return (
        _environment()
        .get_template(template)
        .render(title=title, charts=charts, data=tight, refresh=refresh, **values)
    )


def comparison_page(details: ComparisonDetails, charts: Mapping[str, Any]) -> str:
    """Return the page of a comparison."""
    comparison, best, drawn = details.comparison, details.comparison.best, details.drawn
    behind = sorted((one for one in comparison.results if one.behind is not None), key=lambda one: one.behind or ())
    palette = colours([one.name for one in drawn])
    costs = {name: cost for cost in comparison.costs if (name := cost_chart_name(cost)) in charts}
    bins = [one for one in (details.position, details.frequency) if one is not None]
    found, against = details.map, "Against the best" if behind and best else None
    trained = "Training" if "training" in charts else None
    sections = {
        "answer": ("Which model to use", ""),
        "table": ("All models", "every figure and every cost"),
        "best": (against, "differences, and whether the test text shows them"),
        "where": ("Where models differ" if bins else None, "by kind of word, position and frequency"),
        "samples": ("What they write", "samples, and how much they repeat"),
        "map": ("The held-out text, word by word" if found else None, "the surprise of each word under two models"),
        "training": (trained, "what each model read, and the losses of networks"),
        "learning": ("More text" if "learning" in charts else None, "what more training text would bring"),
    }
    values: dict[str, Any] = {"details": details, "comparison": comparison, "best": best, "behind": behind}
    values |= {"palette": palette, "learning_colours": learning_colours(comparison, palette), "costs": costs}
    values |= {"kinds": _kinds(details), "best_at": _best_at(details), "meanings": KINDS}
    values |= {"equal_at": _equal_at(details), "fewest": FEWEST}
    values |= {"trainings": training_table(comparison), "seeds": seeds_in_words(comparison)}
    return page(
        "comparison.html",
        details.title,
        sections,
        charts,
        surprisals=None if found is None else {"words": found.words, "tenths": found.tenths, "spans": found.spans},
        # the table of trainings has the others, and all of them do not fit on a usual screen
        costs_of_table=[cost for cost in comparison.costs if cost.key not in ("parameters", "flops_per_token")],
        first_bins=bins[0] if bins else None,
        figures=list(dict.fromkeys(name for one in comparison.results for name in one.figures)),
        numbers=_numbers(details, palette),
        second=_second([one for one in drawn if found and one.name in found.tenths]),
        longest_span=LONGEST_SPAN,
        **values,
    )


def _numbers(details: ComparisonDetails, palette: Mapping[str, str]) -> dict[str, ResultTable]:
    """Return the numbers of charts by the name of the chart."""
    curves = [
        (name, f"{one['step']:,}", f"{one['tokens']:,}", *_losses(one))
        for name, points in details.curves.items()
        for one in points
    ]
    headings = ("network", "step", "tokens", "training, bits", "validation, bits")
    found = {"training": ResultTable(headings, curves, "The curves of the networks")}
    for name, bins in (("position", details.position), ("frequency", details.frequency)):
        if bins is not None:
            rows = [(m, *(shown(value, 4) for value in bins.means[m])) for m in palette if m in bins.means]
            found[name] = ResultTable(("model", *bins.labels), rows, f"{bins.loss.capitalize()} by {bins.by}")
    bits, shares = details.comparison.curves, sorted({point.share for point in details.comparison.curve})
    rows = [(name, *(shown(found_at.get(share), 4) for share in shares)) for name, found_at in bits.items()]
    title = "Bits per byte against the training text, by its share"
    found["learning"] = ResultTable(("model", *map(fraction, shares)), rows, title)
    return found


def _kinds(details: ComparisonDetails) -> list[tuple[Result, list[dict[str, Any]]]]:
    """Return each model with its cells by kind of word; `above` is the share of bits above the fewest."""
    kinds = details.kinds
    if kinds is None:
        return []
    least = [min(column) for column in zip(*kinds.means.values(), strict=True)]
    found: dict[str, list[dict[str, Any]]] = {}
    for name, means in kinds.means.items():
        columns = zip(means, least, kinds.intervals[name], kinds.equal, strict=True)
        found[name] = [
            {
                "bits": bits,
                "half": None if interval is None else (interval[1] - interval[0]) / 2,
                "above": bits / low - 1 if low else 0.0,
                "is_equal": name in equal,
            }
            for bits, low, interval, equal in columns
        ]
    return [(one, found[one.name]) for one in details.comparison.ranked if one.name in found]


def _equal_at(details: ComparisonDetails) -> dict[str, list[str]]:
    """Return the kinds of words by the models that the text cannot tell from the best at them."""
    found: dict[str, list[str]] = {}
    if details.kinds is not None:
        for kind, names in zip(details.kinds.labels, details.kinds.equal, strict=True):
            if names:
                found.setdefault(joined(names), []).append(kind)
    return found


def _best_at(details: ComparisonDetails) -> list[dict[str, list[str]]]:
    """Return the kinds of words by the model that is best at them; if one is best at all, also by the second."""
    found: list[dict[str, list[str]]] = []
    for place in range(min(2, len(details.kinds.means) if details.kinds else 0)):
        kinds_of: dict[str, list[str]] = {}
        for kind, names in details.best_at.items():
            kinds_of.setdefault(names[place], []).append(kind)
        found.append(kinds_of)
        if len(kinds_of) > 1:
            break
    return found


def _losses(point: Mapping[str, float]) -> tuple[str, str]:
    return shown(point.get("loss"), 4), shown(point.get("validation_loss"), 4)


def _second(drawn: Sequence[Result]) -> str:
    """Return the model to compare with the first: a network if that is counted or the reverse, or another kind."""
    if not drawn:
        return ""
    first, *others = drawn
    unlike = [one.name for one in others if (one.steps is None) != (first.steps is None)]
    unlike += [one.name for one in others if one.kind != first.kind]
    return unlike[0] if unlike else drawn[-1].name


def _sort_key(value: float | None) -> str:
    """Return the value by which a script sorts a cell; a cell without a value sorts last both ways."""
    return "" if value is None else "1e308" if value == math.inf else repr(value)


def _difference(behind: tuple[float, float, float]) -> list[str]:
    """Format a difference and its interval; a small one as one text."""
    if max(map(abs, behind)) < _LEAST_SHOWN:
        return [f"under {_LEAST_SHOWN}"]
    digits = 3 if min(map(abs, behind)) >= 0.001 else 4
    return [f"{value:.{digits}f}".replace("-", "−") for value in behind]


def pair_page(details: PairDetails, charts: Mapping[str, Any]) -> str:
    """Return the page of two comparisons side by side."""
    sections = {
        "answer": ("What the two say", ""),
        "models": ("Models", ""),
        "conditions": ("What they share", "texts, tokenizer, context, minutes"),
    }
    values: Any = {"details": details, "palette": colours(details.names), "difference": difference, "ratio": ratio}
    return page("pair.html", details.title, sections, charts, **values)


def run_page(details: RunDetails, charts: Mapping[str, Any], refresh: int | None = None) -> str:
    """Return the page of one training; with `refresh`, a browser reads it again after so many seconds."""
    summary = {title: shown(details.summary[key], 4) for key, title in _SUMMARY.items() if key in details.summary}
    was_chosen = "What was chosen, and why" if details.chosen or details.decisions else None
    sections = {
        "now": ("Progress" if details.is_going_on else "Result", ""),
        "curves": ("Curves" if charts else None, ""),
        "chosen": (was_chosen, "the settings that were left open, and decisions before the first step"),
        "samples": ("What it wrote" if details.samples else None, "a sample after each of some validations"),
        "settings": ("Settings" if details.settings else None, "all of them"),
    }
    rows = [(f"{one['step']:,}", *_losses(one)) for one in details.points]
    numbers = ResultTable(("step", "training", "validation"), rows, "Losses by step, bits per token")
    values: Any = {"details": details, "summary": summary, "losses": LOSSES, "numbers": numbers}
    return page("run.html", details.title, sections, charts, refresh=refresh, **values)
