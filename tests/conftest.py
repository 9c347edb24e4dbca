"""Tests are deterministic: hypothesis draws the same examples every time, and takes as long as it takes."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import settings

# Several tests run at once, a process each: threads of threads would wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

SHARING = ("tests/serve/", "tests/report/")
"""Folders of tests whose fixtures take seconds to make."""

COMPILING = ("tests/contract/test_laws.py", "tests/ngram/", "tests/contract/", "tests/decode/")
"""Tests that between them call every kernel, those that call most of them first."""

COMPILED = (
    "tests/serve/",
    "tests/report/",
    "tests/networks/",
    "tests/seq2seq/",
    "tests/autodiff/",
    "tests/training/",
)
"""Tests that call few kernels, and last those that call none."""

settings.register_profile("chainrule", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("chainrule")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Where several processes share the tests: those that compile come first, and those that never do come last."""

    def rank(item: pytest.Item) -> int:
        for place, start in enumerate(COMPILING):
            if item.nodeid.startswith(start):
                return place - len(COMPILING)
        return next((place for place, start in enumerate(COMPILED, 1) if item.nodeid.startswith(start)), 0)

    if hasattr(config, "workerinput"):
        items.sort(key=rank)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One process takes tests from the front and compiles kernels; the others begin at the back, and find them.

    The tests of a file, and of some folders, run in one process, where what they share is made once.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in SHARING if nodeid.startswith(folder)), nodeid.partition("::")[0])

        def _assign_work_unit(self, node: Any) -> None:
            if node.gateway.id != "gw0":
                self.workqueue.move_to_end(next(reversed(self.workqueue)), last=False)
            super()._assign_work_unit(node)

    config.option.loadscopereorder = False
    return Sharing(config, log)


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> None:
    """A comparison writes with each model only for an instant: no test is about how fast they write."""
    from chainrule.comparison import measured_training

    measured_training._SAMPLING_SECONDS = 0.005
