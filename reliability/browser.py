"""A real browser without a window: Chromium, driven by Playwright."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
from collections.abc import Iterator
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
PATIENCE = 120_000  # milliseconds; a busy machine takes long to start a browser
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def missing() -> str | None:
    """Why no browser can be started; None if one can."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright is not installed"
    if not any(map(shutil.which, BROWSERS)):
        return f"no browser is installed (looked for {', '.join(BROWSERS)})"
    return None


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A browser, until the block ends."""
    from playwright.sync_api import sync_playwright

    path = next(found for name in BROWSERS if (found := shutil.which(name)))
    with sync_playwright() as playwright:
        running = playwright.chromium.launch(executable_path=path, args=FLAGS, timeout=PATIENCE)
        yield running
        running.close()
