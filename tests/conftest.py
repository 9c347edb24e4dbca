"""Tests are deterministic: hypothesis draws the same examples every time, and takes as long as it takes."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("chainrule", derandomize=True, deadline=None, database=None)
settings.load_profile("chainrule")
