"""The views that look inside models and at trainings, in a real browser. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.serve.opened import Opened
from tests.serve.serving import Running

import chainrule as cr


@pytest.fixture(scope="module")
def server(page_server: Running) -> Running:
    return page_server


def at(
    browser: Any, server: Running, view: str, width: int = 1100, scheme: str = "light", **state: object
) -> Opened:
    opened = Opened(browser, server, width, scheme)
    opened.go(view, **state)
    return opened


def test_attention_is_a_grid_of_heads(browser: Any, server: Running) -> None:
    opened = at(browser, server, "inside", model="transformer", text="the cat sat")
    heads = opened.page.locator(".heads button")
    assert heads.count() == 2
    assert heads.nth(0).get_attribute("aria-pressed") == "true"
    inked = "c => c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((x) => x > 0)"
    assert heads.nth(0).locator("canvas").evaluate(inked)
    # one stop of Tab for all heads, arrows between them
    assert [heads.nth(i).get_attribute("tabindex") for i in range(2)] == ["0", "-1"]
    heads.nth(0).focus()
    opened.page.keyboard.press("ArrowRight")
    opened.page.keyboard.press("Enter")
    assert heads.nth(1).get_attribute("aria-pressed") == "true"
    assert opened.text("h3") == "Layer 1, head 2"
    opened.until("location.hash.includes('head=1.2')")
    # a token in focus says what it looks at, and the others are shaded by it
    strip = opened.page.locator("[aria-label^='Layer 1, head 2: tokens'] .tk")
    strip.nth(1).hover()
    said = opened.page.locator("section section:has(.heads) > div > output.readout").inner_text()
    assert said.startswith("“the” looks at ")
    assert said.count("%") == 2  # </s> and itself
    levels = [float(strip.nth(i).evaluate("one => one.style.getPropertyValue('--level')")) for i in range(2)]
    assert sum(level**2 for level in levels) == pytest.approx(1, abs=1e-3)  # the weights sum to one
    opened.page.locator("section section:has(.heads) svg.heat").focus()
    opened.page.keyboard.press("ArrowDown")
    assert opened.page.locator("section section:has(.heads) figure output").inner_text().startswith("“")
    opened.close()


def test_another_token_can_be_guessed(browser: Any, server: Running) -> None:
    opened = at(browser, server, "inside", model="lstm", text="the cat sat")
    assert "“… " in opened.text(".sentence")
    tokens = opened.page.locator("[aria-label^='Tokens of the text'] .tk")
    assert tokens.count() == 11
    assert tokens.nth(10).get_attribute("aria-pressed") == "true"
    tokens.nth(2).click()
    opened.until("document.querySelector('.sentence b').textContent === 'e'")
    opened.until("location.hash.includes('token=3')")
    gates = opened.page.locator("section section:has(h2:text-is('Gates'))")
    rows = gates.locator("svg .empty").count()
    gates.locator("input[type=checkbox]").check()
    assert gates.locator("svg .empty").count() > rows
    gates.locator("svg").focus()
    opened.page.keyboard.press("ArrowRight")
    assert "gate, layer 1, mean of all units, at “t”: " in gates.locator("output").inner_text()
    opened.page.fill("input[name=token]", "c")
    opened.page.click("text=Find neighbours")
    opened.page.wait_for_selector("ol.list li")
    assert opened.page.locator("ol.list li").count() == 12
    opened.page.fill("input[name=token]", "cat")
    opened.page.click("text=Find neighbours")
    opened.page.wait_for_selector(".problem")
    assert "one token" in opened.text(".problem")
    opened.wrong = [one for one in opened.wrong if "400" not in one]
    opened.close()


def test_contexts_are_a_ladder(browser: Any, server: Running, models: dict[str, cr.LanguageModel]) -> None:
    opened = at(browser, server, "inside", width=360, scheme="dark", model="words", text="the dog saw a mat")
    found = cr.explain(models["words"], "the dog saw a mat")
    steps = opened.page.locator(".ladder > li:not(.down)")
    assert steps.count() == len(found.lines)  # type: ignore[attr-defined]
    assert opened.text(".equation") == found.equation  # type: ignore[attr-defined]
    assert "→ mat" in opened.text(".ladder > li.last")
    opened.page.select_option("select", "anygram")
    opened.until("document.querySelector('.ladder').textContent.includes('every token alike')")
    opened.page.select_option("select", "mixture")
    opened.page.wait_for_selector("text=The models of the mixture")
    assert opened.page.locator("tbody tr").count() == 2
    opened.page.select_option("select", "translator")
    opened.page.wait_for_selector("text=Where in the source it looks")
    assert opened.page.locator("svg.heat .empty").count() > 4
    opened.close()


def test_what_is_wrong_is_said(browser: Any, server: Running) -> None:
    opened = at(browser, server, "inside", model="lstm", text="the", token=9)
    assert "tokens 1 to 3" in opened.text(".problem[role=alert]")
    opened.wrong = [one for one in opened.wrong if "400" not in one]
    opened.close()


def test_runs_are_followed(browser: Any, server: Running, runs: Path) -> None:
    from chainrule.system.disk import holding

    with holding(runs / "b.run"):
        opened = at(browser, server, "runs", width=360)
        assert opened.page.locator(".runs button").count() == 2
        assert opened.text(".runs button[aria-current=true]").startswith("b.run")  # the one that goes on
        chart = opened.page.locator("img.chart")
        assert chart.evaluate("one => one.decode().then(() => one.naturalWidth)") > 300
        assert "by step. Training from" in (chart.get_attribute("alt") or "")
        first = chart.get_attribute("src")
        opened.page.locator("details[data-name=numbers] summary").click()
        with (runs / "b.run" / "metrics.jsonl").open("a") as file:
            file.write("\n" + json.dumps({"what": "steps", "step": 13, "loss": 1.0}) + "\n")
        opened.until("document.querySelector('dl.facts dd').textContent === '13'")
        assert chart.get_attribute("src") != first
        assert opened.page.locator("details[data-name=numbers]").get_attribute("open") is not None
    opened.until("!document.querySelector('.live')")
    opened.page.locator(".runs button").nth(0).focus()
    opened.page.keyboard.press("Enter")
    link = opened.page.locator("a:has-text('Open the report')")
    link.wait_for()
    opened.until("location.hash.includes('run=a.run')")
    with opened.context.expect_page() as opening:
        link.click()
    report = opening.value
    report.wait_for_selector("html[data-drawn=true]", timeout=30_000)
    assert report.evaluate("self.origin") == "null"  # it cannot call the server in the reader's name
    assert report.evaluate("fetch('/v1/models').then(() => 'reached', () => 'refused')") == "refused"
    opened.close()
