"""A real browser for tests (reliability/browser.py)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
from reliability.browser import PATIENCE, missing
from reliability.browser import launched as started

__all__ = ["PATIENCE", "launched"]


@contextlib.contextmanager
def launched() -> Iterator[Any]:
    """A browser, until the block ends; the test is skipped where none is installed."""
    if reason := missing():
        pytest.skip(reason)
    with started() as running:
        yield running
