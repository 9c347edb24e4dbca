"""Tests of the documentation site: it builds without a warning, links lead somewhere, it needs no other host."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.browsing import PATIENCE, launched

import chainrule as cr
from chainrule.course.lesson import lesson_paths

ROOT = Path(__file__).parents[1]
LOADED = {"link": "href", "script": "src", "img": "src", "iframe": "src", "source": "src", "object": "data"}
"""The attribute by which each element loads a file; `a` loads nothing."""

LESSON = "src/chainrule/course/lessons/03-counting"

pytestmark = pytest.mark.slow


class Page(HTMLParser):
    """The anchors of a page, the addresses that it links to, and those that it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if "href" in values:
            self.links.append(values["href"])
        if LOADED.get(tag) in values:
            self.loads.append(values[LOADED[tag]])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built with warnings as errors."""
    for name in ("sphinx", "myst_parser", "furo"):
        pytest.importorskip(name, reason=f"{name} of the extra docs is not installed")
    folder = tmp_path_factory.mktemp("site")
    command = ["-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-c", ROOT / "docs" / "site"]
    done = subprocess.run(
        [sys.executable, *command, "-d", folder / "cache", ROOT, folder / "site"],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONWARNINGS": ""},
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in site.rglob("*.html")}


def test_links_and_anchors_exist(site: Path, pages: dict[Path, Page]) -> None:
    missing = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.is_file():
                missing.append(f"{path.relative_to(site)}: {link}")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                missing.append(f"{path.relative_to(site)}: {link} (anchor)")
    assert not missing, missing[:20]


def test_nothing_is_loaded_from_another_host(site: Path, pages: dict[Path, Page]) -> None:
    loaded = {f"{path.relative_to(site)}: {address}" for path, page in pages.items() for address in page.loads}
    for path in site.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        loaded |= {
            f"{path.name}: {address}" for address in re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')]+)", text)
        }
    assert not [one for one in loaded if re.match(r"(https?:)?//", one.partition(": ")[2])]


def test_the_reference_has_every_public_name(site: Path, pages: dict[Path, Page]) -> None:
    reference = [page.anchors for path, page in pages.items() if path.parent == site / "docs" / "reference"]
    described = set().union(*reference)
    public = {f"chainrule.{name}" for name in cr.__all__ if name != "__version__"}
    modules = {name for name in public if f"module-{name}" in described}
    assert public - modules <= described, sorted(public - modules - described)
    for module in modules:
        names = set(getattr(cr, module.rpartition(".")[2]).__all__) - set(cr.__all__)
        missing = sorted(name for name in names if f"{module}.{name}" not in described)
        assert not missing, (module, missing)


def test_lessons_have_outputs_and_questions_but_no_answers(site: Path, pages: dict[Path, Page]) -> None:
    names = {path.stem for path in lesson_paths().values()}
    assert names == {path.stem for path in (site / LESSON).parent.glob("*.html")}
    text = (site / f"{LESSON}.html").read_text(encoding="utf-8")
    assert "possible 448, seen 10" in text and "After the first word" in text
    assert "_ngram_counts" not in text and "this is the count" not in text and "view:" not in text
    course = (site / "docs" / "course.html").resolve()
    assert f"../{LESSON}.html" in pages[course].links


def test_equations_need_no_script(site: Path, pages: dict[Path, Page]) -> None:
    start = site / "docs" / "README.html"
    assert "<math" in start.read_text(encoding="utf-8")
    assert not [address for address in pages[start].loads if "mathjax" in address.lower()]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with launched() as running:
        yield running


def test_search_works_on_files_and_asks_no_host(site: Path, browser: Any) -> None:
    page = browser.new_page()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "search.html").as_uri() + "?q=kneser", timeout=PATIENCE)
    # results are added to the page one after another
    page.wait_for_selector("#search-results li a:text-is('N-gram models')", timeout=PATIENCE)
    assert all(address.startswith("file:") for address in asked), asked


@pytest.mark.parametrize(
    "name", ["docs/README", "docs/architecture", "docs/lectures", "docs/tutorials/student", LESSON]
)
def test_pages_fit_a_phone(site: Path, browser: Any, name: str) -> None:
    page = browser.new_page(viewport={"width": 390, "height": 844})
    page.goto((site / f"{name}.html").as_uri(), timeout=PATIENCE)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


CODE = """Array.from(document.querySelectorAll(SELECTOR)).filter(one => one.scrollWidth > one.clientWidth)
    .map(one => one.textContent.slice(0, 60))"""


@pytest.mark.parametrize("name", ["docs/cli/predict", "docs/tasks", "docs/tutorials/student", "docs/diagnostics"])
def test_code_is_not_cut(site: Path, browser: Any, name: str) -> None:
    """Every block is as wide as its text in a wide window, and commands are on a phone."""
    page = browser.new_page(viewport={"width": 1280, "height": 844})
    page.goto((site / f"{name}.html").as_uri(), timeout=PATIENCE)
    assert page.evaluate(CODE.replace("SELECTOR", "'pre'")) == []
    page.set_viewport_size({"width": 390, "height": 844})
    assert page.evaluate(CODE.replace("SELECTOR", "'.highlight-sh pre, .highlight-bash pre'")) == []
    sun, contents = (page.locator(f".header-right {icon}").bounding_box() for icon in (".theme-toggle", ".icon"))
    assert contents is None or contents["x"] - (sun["x"] + sun["width"]) >= 8  # a short page has no contents


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "name", ["docs/README", "docs/tutorials/student", "docs/reference/models", "source/Makefile", LESSON]
)
def test_pages_are_accessible(site: Path, browser: Any, name: str, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    page = browser.new_page(color_scheme=scheme)
    page.goto((site / f"{name}.html").as_uri(), timeout=PATIENCE)
    page.evaluate((Path(axe.__file__).parent / "axe.min.js").read_text(encoding="utf-8"))
    found = page.evaluate("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
    assert not found, [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in found]
