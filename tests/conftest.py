"""Tests are deterministic: hypothesis draws the same examples every time, and takes as long as it takes."""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

# Several tests run at once, a process each: threads of threads would wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("chainrule", derandomize=True, deadline=None, database=None)
settings.load_profile("chainrule")


@pytest.fixture(autouse=True, scope="session")
def short_measurements() -> None:
    """A comparison writes with each model only for an instant: no test is about how fast they write."""
    from chainrule.evaluation import climb

    climb._WRITING_SECONDS = 0.005
