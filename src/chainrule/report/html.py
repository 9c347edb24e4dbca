"""The parts that all pages of reports have: the page itself, legends, charts, and tables of numbers.

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
from chainrule.folder import to_json
from chainrule.report.charts import altair

_SLOT = re.compile(r"\{\{(\w+)\}\}")
_CONTROLS = {code: 0x2400 + code for code in range(32) if chr(code) not in "\n\t"} | {0x7F: 0x2421}
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


def page(
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


def specs(charts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: chart.to_dict() for name, chart in charts.items()}


def chip(colour: str | None, shape: str = "") -> str:
    if colour is None:
        return ""
    return f'<span class="chip{shape}" style="background:{colour}" aria-hidden="true"></span>'


def legend_of(palette: Mapping[str, str], *more: str) -> str:
    items = [f"{chip(colour)}{text(name)}" for name, colour in palette.items()]
    return '<ul class="legend">' + "".join(f"<li>{item}</li>" for item in [*items, *more]) + "</ul>"


def figure_of(name: str, caption: str, numbers: str = "") -> str:
    return (
        f'<figure><div class="chart" data-chart="{name}"></div><figcaption>{caption}</figcaption>{numbers}</figure>'
    )


def numbers_of(caption: str, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
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
