"""A lesson as parts of a web page: its text as HTML, the exercises between, as fields or as code to write."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html import escape
from pprint import pformat
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from markdown_it.utils import OptionsDict

from chainrule.course.cards import Card
from chainrule.course.lesson import Lesson
from chainrule.course.markdown import Exercise, Prose

_LONGEST = 6000  # characters of the data of a student that are shown


def page_parts(lesson: Lesson) -> Iterator[dict[str, Any]]:
    """Yield the parts of a lesson, as JSON has them: {"html"}, {"card", "title", "sliders", ...} or {"id", ...}.

    An exercise has no answer in it, and no hint. What a card shows is asked for by its number.
    """
    for part in lesson.parts:
        if isinstance(part, Exercise):
            if lesson.data and part is lesson.exercises[0]:
                yield {"html": _code(_given(lesson), "data")}
            grader = lesson.graders[part.id]
            yield {
                "id": part.id,
                "heading": part.heading,
                "html": to_html(lesson.filled(part.question, live=True)),
                "is_typed": grader.is_typed,
                "code": "" if grader.is_typed else grader.blank,
            }
        elif isinstance(part, Card):
            yield {
                "card": lesson.cards.index(part) + 1,
                "title": part.title,
                "formula": part.formula.strip(),
                "symbols": [*part.symbols.items()],
                "sliders": [vars(one) for one in part.settings],
                "code": part.source.rstrip(),
            }
        elif isinstance(part, Prose):
            yield {"html": to_html(lesson.filled(part.text, live=True))}
        elif part.role != "exercises":
            output = _code(part.output, "output") if part.output else ""
            yield {"html": _code(part.source, part.language) + output}


def to_html(text: str) -> str:
    """Return Markdown as HTML that a page may contain: without HTML of its own, styles, scripts and pictures.

    >>> to_html("## Mix\\n\\n1 < 2 & <b>[see](view:tree?prompt=a)")
    '<h3>Mix</h3>\\n<p>1 &lt; 2 &amp; &lt;b&gt;<a href="#/tree?prompt=a" data-view="tree?prompt=a">see</a></p>\\n'
    """
    return str(_MARKDOWN.render(text))


def _given(lesson: Lesson) -> str:
    """Return the data of the student as code, a text as its lines."""
    shown = {f"{name} = ": pformat(value, width=80, sort_dicts=False) for name, value in lesson.data.items()}
    text = "\n".join(name + value.replace("\n", "\n" + " " * len(name)) for name, value in shown.items())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _code(text: str, kind: str) -> str:
    # a block may be wider than the window: keys scroll what has the focus
    return f'<pre class="code {escape(kind)}" tabindex="0"><code>{escape(text.rstrip())}</code></pre>\n'


def _fence(renderer: Any, tokens: Sequence[Token], place: int, options: OptionsDict, env: Any) -> str:
    return _code(tokens[place].content, tokens[place].info.partition(" ")[0] or "maths")


def _heading(renderer: Any, tokens: Sequence[Token], place: int, options: OptionsDict, env: Any) -> str:
    tokens[place].tag = f"h{min(6, int(tokens[place].tag[1]) + 1)}"  # the first heading of the page is the view's
    return str(renderer.renderToken(tokens, place, options, env))


def _link(renderer: Any, tokens: Sequence[Token], place: int, options: OptionsDict, env: Any) -> str:
    token = tokens[place]
    target = str(token.attrs["href"])
    if target.startswith("view:"):
        view = target.removeprefix("view:")
        token.attrs |= {"href": f"#/{view}", "data-view": view}
    elif found := re.fullmatch(r"(\d+)-[\w-]+\.md", target):
        token.attrs["href"] = f"#/learn?lesson={int(found[1])}"
    return str(renderer.renderToken(tokens, place, options, env))


def _cell(renderer: Any, tokens: Sequence[Token], place: int, options: OptionsDict, env: Any) -> str:
    tokens[place].attrs.pop("style", None)  # which the policy of the page forbids
    return str(renderer.renderToken(tokens, place, options, env))


def _markdown() -> MarkdownIt:
    found = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
    rules = {"fence": _fence, "code_block": _fence, "link_open": _link, "th_open": _cell, "td_open": _cell}
    rules |= {"heading_open": _heading, "heading_close": _heading}
    rules["table_open"] = lambda *_: (
        '<div class="scroll fits" tabindex="0" role="region" aria-label="Table"><table>\n'
    )
    rules["table_close"] = lambda *_: "</table></div>\n"
    for name, rule in rules.items():
        found.add_render_rule(name, rule)
    return found


_MARKDOWN = _markdown()
