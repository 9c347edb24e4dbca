"""The page in a real browser: Chromium without a window, driven by Playwright. Skipped where there is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import PATIENCE

import chainrule as cr

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")


def add_differences_and_curves(folder: Path) -> None:
    """What a comparison of a longer text has: differences to the best, and points of a learning curve."""
    values = json.loads((folder / "compare.json").read_text(encoding="utf-8"))
    best = min(values["results"], key=lambda one: one["test"]["bits_per_byte"])
    point = {
        "kind": "ngram",
        "settings": {},
        "bytes": 1,
        "perplexity": 8.0,
        "training_seconds": 1.0,
        "seconds": 1.0,
    }
    curve = []
    for number, result in enumerate(values["results"]):
        if result is not best:
            result["behind"] = [0.01 * number, 0.01 * number - 0.005, 0.01 * number + 0.005]
        for share in (0.0625, 0.25, 1.0):
            here = {"name": result["name"], "share": share, "tokens": int(10_000 * share)}
            curve.append(point | here | {"bits_per_byte": 3 - share - 0.1 * number})
    (folder / "compare.json").write_text(json.dumps(values | {"curve": curve}), encoding="utf-8")


@pytest.fixture(scope="module")
def address(made: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("page") / "ladder"
    shutil.copytree(made, folder)
    add_differences_and_curves(folder)
    return cr.report.write_report(folder, pictures=False).resolve().as_uri()


class Opened:
    """A page, what went wrong on it, and what it asked the network for."""

    def __init__(self, browser: Any, address: str, width: int = 1280, scheme: str = "light") -> None:
        context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        self.page = context.new_page()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(PATIENCE)
        self.page.goto(address)
        self.page.wait_for_selector("html[data-drawn=true]")

    def script(self, code: str) -> Any:
        return self.page.evaluate(code)


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Opened]:
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    assert found.asked == [address]  # one file, and nothing from a network
    found.page.context.close()


def test_charts_are_drawn(opened: Opened) -> None:
    charts = opened.page.query_selector_all("[data-chart]")
    assert len(charts) >= 7
    assert opened.page.query_selector("[data-chart=learning]") is not None
    for chart in charts:
        marks = chart.query_selector_all("svg .mark-symbol path, svg .mark-line path")
        assert marks, chart.get_attribute("data-chart")
        assert chart.query_selector("svg").bounding_box()["width"] > 200
    opened.page.locator("svg .mark-symbol path").first.hover()
    opened.page.wait_for_selector("#vg-tooltip-element.visible")


def test_the_map_switches_models(opened: Opened) -> None:
    of_word = "s => s.className + s.style.getPropertyValue('--a')"
    colours = f"Array.from(document.querySelectorAll('#map-text span'), {of_word})"
    first = opened.script(colours)
    assert len(first) > 50
    opened.page.check("input[name=view][value=b]")
    second = opened.script(colours)
    assert second != first
    opened.page.check("input[name=view][value=difference]")
    difference = opened.script(colours)
    assert any(colour.startswith("cold") for colour in difference)
    assert opened.page.inner_text("#map-low").endswith("better by 6 bits")
    names = opened.script("Array.from(document.getElementById('map-a').options, o => o.value)")
    title = opened.page.inner_text("#spans-a-title")
    opened.page.select_option("#map-a", names[2])
    assert opened.script(colours) != difference
    assert names[2] in opened.page.inner_text("#spans-a-title") != title
    opened.page.locator("#spans-a button").first.click()
    marked = opened.script("Array.from(document.querySelectorAll('#map-text .found'), s => s.textContent).join('')")
    assert marked.replace("\n", " ↵") == opened.page.locator("#spans-a mark").first.text_content()


def test_the_map_is_read_by_keyboard(opened: Opened) -> None:
    opened.page.focus("#map-text")
    opened.page.keyboard.press("Home")
    before = opened.page.inner_text("#map-readout")
    opened.page.keyboard.press("ArrowRight")
    after = opened.page.inner_text("#map-readout")
    assert before.startswith("“The”: ")
    assert after.startswith("“value”: ")
    assert " bits by " in after
    opened.page.keyboard.press("End")
    assert opened.page.inner_text("#map-readout").startswith("“↵”: ")


def test_everything_that_acts_is_reached_by_tab(opened: Opened) -> None:
    reached = set()
    opened.script("document.activeElement.blur(), scrollTo(0, 0)")
    opened.page.focus(".skip")
    for _ in range(200):
        opened.page.keyboard.press("Tab")
        reached.add(opened.script("document.activeElement.id || document.activeElement.tagName"))
        if "map-b" in reached:
            break
    assert {"theme", "map-a", "map-b", "BUTTON", "A", "SUMMARY"} <= reached


def test_a_click_on_a_heading_sorts(opened: Opened) -> None:
    losses = "Array.from(document.querySelectorAll('#table tbody tr'), r => r.cells[1].dataset.value)"
    opened.page.click("#table thead th:nth-child(2) button")
    values = [float(value) for value in opened.script(losses) if value]
    assert values == sorted(values)
    opened.page.click("#table thead th:nth-child(2) button")
    values = [float(value) for value in opened.script(losses) if value]
    assert values == sorted(values, reverse=True)
    assert opened.page.get_attribute("#table thead th:nth-child(2)", "aria-sort") == "descending"


def test_dark_and_light(browser: Any, address: str, opened: Opened) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    ink = "getComputedStyle(document.querySelector('.chart svg text')).fill"
    light, light_ink = opened.script(background), opened.script(ink)
    opened.page.click("#theme")
    dark = opened.script(background)
    assert dark != light
    assert opened.script(ink) != light_ink  # the words of the charts too
    assert opened.page.get_attribute("#theme", "aria-pressed") == "true"
    at_night = Opened(browser, address, scheme="dark")
    assert at_night.script(background) == dark
    opened.page.emulate_media(media="print")
    assert opened.script("getComputedStyle(document.querySelector('nav')).display") == "none"
    assert opened.script(ink) == light_ink
    opened.page.emulate_media(media="screen")
    opened.page.click("#theme")
    assert opened.script(background) == light


def test_nothing_is_wider_than_a_phone(browser: Any, address: str) -> None:
    phone = Opened(browser, address, 390)
    for width in (390, 320, 768):
        phone.page.set_viewport_size({"width": width, "height": 844})
        phone.page.wait_for_timeout(100)
        assert phone.script("document.documentElement.scrollWidth") <= width
    phone.page.set_viewport_size({"width": 390, "height": 844})
    table = "document.querySelector('#best .scroll')"
    assert phone.script(f"{table}.scrollWidth <= {table}.clientWidth")  # it is read without scrolling
    phone.script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert phone.script("document.documentElement.scrollWidth") <= 390
    assert phone.wrong == []


def test_the_page_of_a_run_is_drawn(browser: Any, tmp_path: Path) -> None:
    from tests.report.test_run_report import run_folder

    page = cr.report.write_report(run_folder(tmp_path / "model.run"), pictures=False)
    opened = Opened(browser, page.resolve().as_uri(), 390)
    assert len(opened.page.query_selector_all("[data-chart] svg .mark-line path")) >= 4
    assert opened.script("document.documentElement.scrollWidth") <= 390
    assert opened.wrong == []
