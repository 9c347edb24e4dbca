"""The page in a real browser: Chromium without a window, driven by Playwright. Skipped where there is none."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.browsing import PATIENCE, Watched

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


class Opened(Watched):
    """The page of a report, once its charts are drawn."""

    def __init__(self, browser: Any, address: str, width: int = 1280, scheme: str = "light") -> None:
        super().__init__(browser, width, scheme, PATIENCE)
        self.page.goto(address)
        self.page.wait_for_selector("html[data-drawn=true]")


@pytest.fixture(scope="module")
def opened(browser: Any, address: str) -> Iterator[Opened]:
    found = Opened(browser, address)
    yield found
    assert found.wrong == []
    assert found.asked == [address]  # one file, and nothing from a network
    found.page.context.close()


def drawn(opened: Opened) -> list[str]:
    return opened.script("Array.from(document.querySelectorAll('[data-chart]:has(svg)'), c => c.dataset.chart)")


def unfold(opened: Opened) -> None:
    """Open every section, and wait for the charts that were folded away."""
    opened.script("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    opened.page.wait_for_function("!document.querySelector('.fold [data-chart]:not(:has(svg))')")


@pytest.mark.parametrize(("width", "height"), [(1280, 800), (390, 844)])
def test_the_first_screen_has_the_answer_a_chart_and_the_frontier(
    browser: Any, address: str, width: int, height: int
) -> None:
    opened = Opened(browser, address, width)
    opened.page.set_viewport_size({"width": width, "height": height})
    assert opened.page.inner_text(".pick").startswith("Take ")
    for part in (".pick", "#cost", ".first:not([hidden]) svg", ".first:not([hidden]) tbody tr"):
        box = opened.page.locator(part).first.bounding_box()
        assert box["y"] + box["height"] <= height, part
    assert opened.script("document.querySelectorAll('.fold[open]').length") == 0
    assert drawn(opened) == ["cost-training-seconds"]
    shown_panel = "document.querySelector('.first:not([hidden])').id"
    by_time = opened.script(shown_panel)
    opened.page.select_option("#cost", "cost-tokens-per-second")
    opened.page.wait_for_selector("[data-chart=cost-tokens-per-second] svg")
    assert opened.script(shown_panel) != by_time
    places = "svg .mark-text:not(.role-axis-label) text"
    numbers = opened.page.locator(f"[data-chart=cost-tokens-per-second] {places}").all_text_contents()
    shown = opened.page.locator(".first:not([hidden]) .place").all_text_contents()
    assert sorted(number for number in numbers if number.isdigit()) == sorted(shown)
    assert opened.wrong == []


def test_charts_are_drawn_when_they_are_unfolded(opened: Opened) -> None:
    assert "position" not in drawn(opened)
    unfold(opened)
    assert {"training", "position", "frequency", "learning"} <= {*drawn(opened)}
    for chart in opened.page.query_selector_all("[data-chart]:has(svg)"):
        marks = chart.query_selector_all("svg .mark-symbol path, svg .mark-line path")
        assert marks, chart.get_attribute("data-chart")
        assert chart.query_selector("svg").bounding_box()["width"] > 200
    opened.page.locator("svg .mark-symbol path").first.hover()
    opened.page.wait_for_selector("#vg-tooltip-element.visible")


def test_links_open_what_is_folded(browser: Any, address: str) -> None:
    opened = Opened(browser, address + "#map")
    is_open = "Array.from(document.querySelectorAll('.fold[open]'), d => d.parentElement.id)"
    assert opened.script(is_open) == ["map"]
    opened.page.click("#answer a[href='#table']")
    assert opened.script(is_open) == ["table", "map"]


def test_paper_has_everything(browser: Any, address: str) -> None:
    opened = Opened(browser, address)
    opened.script("""window.addEventListener("beforeprint", () => {
        window.seen = Array.from(document.querySelectorAll(".fold"), one => one.open);
    })""")
    assert len(opened.page.pdf()) > 50_000
    assert all(opened.script("window.seen"))
    assert opened.script("document.querySelectorAll('.fold[open]').length") == 0
    assert len(drawn(opened)) == len(opened.page.query_selector_all("[data-chart]"))
    unfold(opened)
    opened.page.set_viewport_size({"width": 720, "height": 1000})  # about the width of a sheet between its margins
    opened.page.emulate_media(media="print")
    tables = "Array.from(document.querySelectorAll('table'), one => one.getBoundingClientRect().right)"
    assert max(opened.script(tables)) <= 720


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_axe_finds_nothing(browser: Any, address: str, width: int, scheme: str) -> None:
    opened = Opened(browser, address, width, scheme)
    assert opened.violations() == []
    unfold(opened)
    assert opened.violations() == []


def test_a_table_that_is_cut_says_so(browser: Any, address: str) -> None:
    opened = Opened(browser, address, 390)
    opened.page.click("#table summary")
    opened.page.wait_for_selector("#table .scroll.more")
    opened.script("document.querySelector('#table .scroll').scrollLeft = 1e6")
    opened.page.wait_for_selector("#table .scroll:not(.more)")
    opened.page.set_viewport_size({"width": 1280, "height": 800})
    table = "document.querySelector('#table .scroll')"
    assert opened.script(f"{table}.scrollWidth <= {table}.clientWidth")  # a usual screen has all columns


def test_the_map_switches_models(opened: Opened) -> None:
    unfold(opened)
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
    names = opened.script("['a', 'b'].map(id => document.getElementById(`map-${id}`).value)")
    tenths = [opened.script(f"data.map.tenths[{json.dumps(name)}]") for name in names]
    differences = sorted(abs(one - other) / 10 for one, other in zip(*tenths, strict=True))
    deepest = round(differences[int(0.97 * (len(differences) - 1))])  # few words of this text exceed it
    assert deepest > 1
    assert opened.page.inner_text("#map-low").endswith(f"better by {deepest} bits")
    names = opened.script("Array.from(document.getElementById('map-a').options, o => o.value)")
    title = opened.page.inner_text("#spans-a-title")
    opened.page.select_option("#map-a", names[2])
    assert opened.script(colours) != difference
    assert names[2] in opened.page.inner_text("#spans-a-title") != title
    opened.page.locator("#spans-a button").first.click()
    marked = opened.script("Array.from(document.querySelectorAll('#map-text .found'), s => s.textContent).join('')")
    assert marked.replace("\n", " ↵") == opened.page.locator("#spans-a mark").first.text_content()


def test_the_map_is_read_by_keyboard(opened: Opened) -> None:
    unfold(opened)
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
    unfold(opened)
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
    unfold(opened)
    losses = "Array.from(document.querySelectorAll('#table tbody tr'), r => r.cells[1].dataset.value)"
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
    assert opened.page.inner_text("#theme") == "Dark"
    opened.page.click("#theme")
    dark = opened.script(background)
    assert dark != light
    assert opened.script(ink) != light_ink  # the words of the charts too
    assert opened.page.inner_text("#theme") == "Light"
    at_night = Opened(browser, address, scheme="dark")
    assert at_night.script(background) == dark
    opened.page.emulate_media(media="print")
    assert opened.script("getComputedStyle(document.querySelector('#theme')).display") == "none"
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
    unfold(phone)
    table = "document.querySelector('#best .scroll')"
    assert phone.script(f"{table}.scrollWidth <= {table}.clientWidth")  # it is read without scrolling
    assert phone.script("document.documentElement.scrollWidth") <= 390
    assert phone.wrong == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_of_a_pair_is_drawn(browser: Any, made: Path, tmp_path: Path, scheme: str) -> None:
    shutil.copytree(made, tmp_path / "one")
    opened = Opened(browser, cr.report.write_report(tmp_path / "one", made, pictures=False).as_uri(), 390, scheme)
    assert len(opened.page.query_selector_all("[data-chart=pair] svg .mark-symbol path")) >= 4
    assert opened.script("document.documentElement.scrollWidth") <= 390
    unfold(opened)
    assert opened.violations() == []
    assert opened.wrong == []


def test_the_page_of_a_run_is_drawn(browser: Any, tmp_path: Path) -> None:
    from tests.report.test_run_report import run_folder

    page = cr.report.write_report(run_folder(tmp_path / "model.run"), pictures=False)
    opened = Opened(browser, page.resolve().as_uri(), 390)
    assert len(opened.page.query_selector_all("[data-chart] svg .mark-line path")) >= 4
    assert opened.script("document.documentElement.scrollWidth") <= 390
    assert opened.wrong == []


def test_reasons_are_not_broken_inside_words(browser: Any, tmp_path: Path) -> None:
    run = tmp_path / "model.run"
    cr.train("transformer", ["a b c d e f g h"] * 20, tokenizer="word", run=run, steps=2, batch=16, window=8)
    opened = Opened(browser, cr.report.write_report(run, pictures=False).resolve().as_uri(), 390)
    unfold(opened)
    of_all = "(which, what) => Array.from(document.querySelectorAll(which), what)"
    assert min(opened.script(f"({of_all})('td.text', one => one.clientWidth)")) > 140
    values = opened.script(f"({of_all})('tr:has(td.text) td:not(.text)', one => one.textContent)")
    settings = opened.script(f"({of_all})('dd', one => one.textContent)")
    assert values and settings and max(map(len, values + settings)) < 16  # no number has all of its digits
