"""Tests are deterministic, and the fast run takes five minutes on two cores.

hypothesis draws the same examples every time, and takes as long as it takes. `fast_run.toml` says what
belongs to the fast run; the other tests are marked `slow` (choose_fast.py writes it).
"""

from __future__ import annotations

import os
import signal
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Several tests run at once, a process each: threads of threads would wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell starts what it runs in the background with SIGINT ignored; tests send it to the processes they start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

SHARING = ("tests/serve/", "tests/report/")
"""Folders of tests whose fixtures take seconds to make: one process runs all of them."""

FAST_RUN: dict[str, Any] = tomllib.loads((Path(__file__).parent / "fast_run.toml").read_text(encoding="utf-8"))

settings.register_profile("chainrule", derandomize=True, deadline=None, database=None, max_examples=40)
settings.load_profile("chainrule")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that do not belong to the fast run as slow; cases that do are spread evenly over all cases."""
    cases = defaultdict(list)
    slow_files = tuple(FAST_RUN["slow_files"])
    for item in items:
        name = item.nodeid.partition("[")[0]
        if name.startswith(slow_files):
            item.add_marker(pytest.mark.slow)
        elif name in FAST_RUN["cases"] and not item.get_closest_marker("slow"):
            cases[name].append(item)
    for name, every in cases.items():
        count = FAST_RUN["cases"][name]
        kept = {len(every) * place // count for place in range(count)} if count else set()
        for place, item in enumerate(every):
            if place not in kept:
                item.add_marker(pytest.mark.slow)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Run the tests of a file, and of some folders, in one process, where they share what they make."""
    from xdist.scheduler import LoadScopeScheduling

    class Sharing(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return next((folder for folder in SHARING if nodeid.startswith(folder)), nodeid.partition("::")[0])

    return Sharing(config, log)


@pytest.fixture(autouse=True, scope="session")
def compiled_steps() -> None:
    """Read single tokens by compiled loops from the first one: a model that was used and its copy do the same."""
    from chainrule.networks.transformer.step_on_cpu import PATIENCE

    PATIENCE.end()


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> None:
    """Write with each model of a comparison for an instant only: no test is about how fast they write."""
    from chainrule.comparison import measured_training

    measured_training._WRITING_SECONDS = 0.005
