"""A lesson as HTML: everything is shown, nothing is given away, and nothing can harm the page."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import urlsplit

import pytest

import chainrule as cr
from chainrule.course.lesson import lesson_paths
from chainrule.course.markdown import VIEW_LINK, Code
from chainrule.course.notebook import notebook
from chainrule.course.page import page_parts, to_html

VIEWS = {path.stem for path in (Path(cr.__file__).parent / "serve" / "page" / "views").glob("*.js")}
TAGS = {"p", "h2", "h3", "h4", "ul", "ol", "li", "a", "em", "strong", "code", "pre", "table", "thead", "tbody"}
TAGS |= {"tr", "th", "td", "div", "br", "blockquote"}


class Seen(HTMLParser):
    """The tags of a page and the addresses of its links; every tag is closed."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self._open: list[str] = []
        self.feed(html)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in ("br", "hr"):
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


@pytest.mark.parametrize("number", lesson_paths())
def test_a_lesson_is_shown_without_answers(number: int) -> None:
    one = cr.lesson(number)
    parts = list(page_parts(one))
    assert [part["id"] for part in parts if "id" in part] == [exercise.id for exercise in one.exercises]
    seen = Seen("".join(part.get("html", "") for part in parts))
    assert {tag for tag, _ in seen.tags} <= TAGS
    assert not [
        values
        for _, values in seen.tags
        if set(values) - {"class", "href", "tabindex", "role", "aria-label", "data-view"}
    ]
    for part in one.parts:
        if isinstance(part, Code):
            assert (part.source.rstrip() in seen.words) == (part.role != "exercises")
            assert part.output.rstrip() in seen.words
    hints = [wrong["hint"] for grader in one.graders.values() for wrong in grader.wrong]
    assert hints and not [hint for hint in hints if hint in seen.words]


@pytest.mark.parametrize("number", lesson_paths())
def test_links_to_views_lead_to_views_and_stay_out_of_other_readers_text(number: int) -> None:
    one = cr.lesson(number)
    for _, view in VIEW_LINK.findall(one.path.read_text(encoding="utf-8")):
        assert urlsplit(view).path in VIEWS - {"learn"}, view
    assert "view:" not in one.markdown() + str(notebook(one))


def test_a_link_to_a_view_is_words_elsewhere() -> None:
    assert any(VIEW_LINK.search(path.read_text(encoding="utf-8")) for path in lesson_paths().values())
    one = cr.lesson(3)
    assert one.filled("see [Tokens](view:tokens?text=a+b).") == "see Tokens."
    shown = to_html(one.filled("see [Tokens](view:tokens?text=a+b).", live=True))
    assert 'href="#/tokens?text=a+b"' in shown and 'data-view="tokens?text=a+b"' in shown


def test_what_a_text_says_is_never_markup_of_its_own() -> None:
    odd = (
        '<script>alert(1)</script> <b onclick="x">\n\n[a](javascript:x) [b](data:text/html,x) ![c](http://x/y.png)'
    )
    shown = to_html(odd + "\n\n```<s>\n</code><s>\n```\n\n| a |\n| --: |\n| <i> |\n")
    assert not re.search(r"<(script|b|img|i|s)\b|javascript:x\"|data:text[^<]*\"|style=", shown), shown
    assert "&lt;script&gt;" in shown


def test_lessons_link_to_lessons() -> None:
    assert 'href="#/learn?lesson=4"' in to_html("[next](04-never-seen.md)")
