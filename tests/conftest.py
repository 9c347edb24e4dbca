"""Tests are deterministic: hypothesis draws the same examples every time, and takes as long as it takes."""

from __future__ import annotations

import os

from hypothesis import settings

# Several tests run at once, a process each: threads of threads would wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("chainrule", derandomize=True, deadline=None, database=None)
settings.load_profile("chainrule")
