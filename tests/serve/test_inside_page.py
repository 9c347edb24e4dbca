"""The views that look inside models and at trainings, in a real browser. Skipped where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import httpx2
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
    assert opened.page.locator("h4:text-is('Layer 1, head 2')").count() == 1
    opened.until("location.hash.includes('head=1.2')")
    # a token in focus says what it looks at, and the others are shaded by it
    strip = opened.page.locator("[aria-label^='Layer 1, head 2: tokens'] .tk")
    strip.nth(1).hover()
    said = opened.text("output.says")
    assert said.startswith("“the” looks at ")
    assert said.count("%") == 2  # </s> and itself
    levels = [float(strip.nth(i).evaluate("one => one.style.getPropertyValue('--a')")) for i in range(2)]
    assert sum(level**2 for level in levels) == pytest.approx(1, abs=1e-3)  # the weights sum to one
    opened.page.locator(".stage svg.heat").focus()
    opened.page.keyboard.press("ArrowDown")
    assert opened.text(".stage figure output").startswith("“")
    # the key ends in the colour of a full cell, also in the dark theme
    opened.page.click("#theme")
    for key in opened.page.locator(".legend i").all():
        assert "/ 0." not in key.evaluate("one => getComputedStyle(one).backgroundImage")
    opened.close()


def test_a_token_is_followed_from_its_embedding_to_the_next_token(
    browser: Any, server: Running, models: dict[str, cr.LanguageModel]
) -> None:
    text = "the cat sat"
    opened = at(browser, server, "inside", model="transformer", text=text)
    found = cr.diagnose(models["transformer"], text).followed
    assert found is not None
    page = opened.page
    assert page.locator(".way .column").count() == 2  # the embedding, and one block
    stages = page.locator(".stages button")
    assert stages.all_inner_texts() == ["Embedding", "Block 1", "Next token"]
    assert stages.nth(1).get_attribute("aria-pressed") == "true"
    # the lines into the last token: one for each token that it looks at
    assert 1 <= page.locator(".way path.look").count() <= len(models["transformer"].tokenizer.encode(text))
    # values on demand: one by one by the arrow keys, or all of them
    strip = page.locator(".vector:has-text('the vector after the block')")
    strip.locator("canvas").focus()
    page.keyboard.press("ArrowRight")
    said = strip.locator("output").inner_text()
    assert said.startswith("feature 2: ")
    assert float(said.split(": ")[1]) == pytest.approx(found.blocks[0].out_D[1], abs=1e-4)
    strip.locator("summary").click()
    values = [float(one) for one in strip.locator(".ids").inner_text().split()]
    assert values == pytest.approx(found.blocks[0].out_D.tolist(), abs=1e-4)
    page.locator("details:has-text('Scores and weights') summary").first.click()
    assert page.locator(".stage tbody tr").count() == len(models["transformer"].tokenizer.encode(text))
    stages.nth(1).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert opened.text(".stage h3") == "Next token"
    opened.until("location.hash.includes('stage=2')")
    page.locator(".way .column").nth(0).click(position={"x": 8, "y": 8})
    assert opened.text(".stage h3") == "Embedding"
    # what comes after the text is what /v1/next says
    page.click("text=what comes next?")
    opened.until("location.hash.includes('token=next')")
    opened.until("document.querySelector('.tk.extra').getAttribute('aria-pressed') === 'true'")
    body = {"model": "transformer", "prompt": text, "top": 10}
    tokens = httpx2.post(f"{server.address}/v1/next", json=body).json()["tokens"]
    best = page.locator(".side .next .figure").first.inner_text()
    assert float(best.rstrip("%")) == pytest.approx(100 * tokens[0]["p"], rel=0.05)
    assert page.locator(".side .next li").count() == 10
    opened.close()


def test_another_token_can_be_guessed(browser: Any, server: Running) -> None:
    opened = at(browser, server, "inside", model="lstm", text="the cat sat")
    assert "“… " in opened.text(".sentence")
    tokens = opened.page.locator("[aria-label^='Tokens of the text'] .tk:not(.extra)")
    assert tokens.count() == 11
    assert tokens.nth(10).get_attribute("aria-pressed") == "true"
    tokens.nth(2).click()
    opened.until("document.querySelector('.sentence b').textContent === 'e'")
    opened.until("location.hash.includes('token=3')")
    gates = opened.page.locator("section.look:has(h2:text-is('Gates'))")
    assert gates.locator("svg .empty").count() == 6 * 3  # four gates and two states, at <s>, t and h
    gates.locator("svg").focus()
    opened.page.keyboard.press("ArrowLeft")
    assert "input gate, mean of all units, at “t”: " in gates.locator("figure output").inner_text()
    # a unit shows its arithmetic, with the numbers in the map
    gates.locator("select").select_option(index=1)
    gates.locator("svg").focus()
    said = gates.locator("output.equation").inner_text()
    assert said.startswith("c = forget · c before + input · candidate = ")
    numbers = [
        float(one.strip("();"))
        for one in said.replace("·", " ").replace("+", " ").split()
        if one.strip("();-.0123456789") == ""
    ]
    forget, before, let_in, new, c, output, tanh, h = (one for one in numbers)
    assert forget * before + let_in * new == pytest.approx(c, abs=0.01)
    assert output * tanh == pytest.approx(h, abs=0.01)
    opened.page.fill("input[name=token]", "c")
    opened.page.click("text=Find neighbours")
    opened.page.wait_for_selector("text=Nearest to")
    assert opened.page.locator("[aria-live] ol li").count() == 12
    opened.page.fill("input[name=token]", "cat")
    opened.page.click("text=Find neighbours")
    opened.page.wait_for_selector("main .problem")
    assert "one token" in opened.text("main .problem")
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
    assert "tokens 1 to 3" in opened.text("main .problem[role=alert]")
    opened.wrong = [one for one in opened.wrong if "400" not in one]
    opened.close()


def test_a_training_is_listed_once(browser: Any, server: Running) -> None:
    opened = at(browser, server, "runs")
    code = """async (data) => (await import('/page/views/runs.js')).onceEach(data).map((one) => one.id)"""
    data = [
        {"id": name, "what": "run" if name.endswith(".run") else "model"} for name in ("a", "a.run", "b", "c.run")
    ]
    assert opened.page.evaluate(code, data) == ["a.run", "b", "c.run"]
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
