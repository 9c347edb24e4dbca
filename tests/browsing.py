"""A real browser for tests (reliability/browser.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from reliability.browser import PATIENCE, missing
from reliability.browser import launched as started

__all__ = ["PATIENCE", "Watched", "launched"]


class Watched:
    """A page in a window of its own, what goes wrong on it, and what it asks the network for."""

    def __init__(self, browser: Any, width: int, scheme: str, patience: float) -> None:
        self.context = browser.new_context(viewport={"width": width, "height": 844}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.wrong: list[str] = []
        self.asked: list[str] = []
        # what the policy of the page forbids is an error on the console
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.set_default_timeout(patience)

    def script(self, code: str) -> Any:
        return self.page.evaluate(code)

    def violations(self) -> list[str]:
        """The rules of accessibility that the page breaks, by axe-core."""
        found = find_spec("axe_playwright_python")
        assert found is not None and found.origin is not None, "axe-playwright-python is not installed"
        self.script((Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
        broken = self.script("axe.run({resultTypes: ['violations']}).then(found => found.violations)")
        return [f"{one['id']}: {node['target']}" for one in broken for node in one["nodes"]]


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A browser, until the block ends; the test is skipped where none is installed."""
    if reason := missing():
        pytest.skip(reason)
    with started() as running:
        yield running
