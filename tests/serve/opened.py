"""The page of the server, opened in a browser."""

from __future__ import annotations

import time
from typing import Any
from urllib.parse import parse_qs, urlencode

from tests.browsing import PATIENCE, Watched
from tests.serve.serving import Running


class Opened(Watched):
    """A page at a view."""

    def __init__(self, browser: Any, server: Running, width: int = 1280, scheme: str = "light") -> None:
        super().__init__(browser, width, scheme, PATIENCE / 4)
        self.address = server.address

    def go(self, view: str, **state: object) -> Any:
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#/{view}?{urlencode(state)}")
        return self.settled(view)

    def settled(self, view: str) -> Any:
        self.page.wait_for_selector(f"main[data-shown={view}]")
        if self.params().get("go"):
            self.page.wait_for_selector(".view[data-writing=no]")
        return self.page

    def params(self) -> dict[str, str]:
        query = self.page.evaluate("location.hash").partition("?")[2]
        return {name: values[0] for name, values in parse_qs(query, keep_blank_values=True).items()}

    def kept(self) -> dict[str, str]:
        """The state in the address once it does not change any more: a view writes it a moment after a change."""
        before, now = None, self.params()
        while now != before:
            time.sleep(0.2)  # more than the page waits (main.js)
            before, now = now, self.params()
        return now

    def until(self, code: str) -> None:
        """Wait until something holds; Playwright's own way to wait is forbidden by the policy of the page."""
        until = time.monotonic() + PATIENCE / 4000
        while not self.page.evaluate(code):
            assert time.monotonic() < until, code
            time.sleep(0.02)

    def tokens(self) -> list[str]:
        return self.script("Array.from(document.querySelectorAll('.paper [data-stop]'), s => s.textContent)")

    def text(self, selector: str) -> str:
        found: str = self.page.locator(selector).first.inner_text()
        return found

    def close(self) -> None:
        """Nothing went wrong, nothing was asked of anyone else, and the view is no wider than the window."""
        assert self.script("document.documentElement.scrollWidth") <= self.page.viewport_size["width"]
        assert self.wrong == []
        assert {url for url in self.asked if not url.startswith((self.address, "about:", "data:"))} == set()
        self.context.close()
