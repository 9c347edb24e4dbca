"""Tests are deterministic: hypothesis draws the same examples every time, and takes as long as it takes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import settings
from tests.browsing import launched

# Several tests run at once, a process each: threads of threads would wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARING = ("tests/serve/", "tests/report/")
"""Folders of tests whose fixtures take seconds to make."""

settings.register_profile("chainrule", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("chainrule")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The tests of a file, and of some folders, run in one process, where what they share is made once."""
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in SHARING if nodeid.startswith(folder)), nodeid.partition("::")[0])

    return Sharing(config, log)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """A browser for all pages; two of them in one process get in each other's way."""
    with launched() as found:
        yield found


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> None:
    """A comparison writes with each model only for an instant: no test is about how fast they write."""
    from chainrule.evaluation import climb

    climb._WRITING_SECONDS = 0.005
