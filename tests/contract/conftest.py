"""Fixtures with all built-in kinds and those of the example plug-in."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

from plugin import install


@pytest.fixture(autouse=True, scope="module")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    before = list(sys.path)
    install(tmp_path_factory.mktemp("plugin"))
    yield
    sys.path[:] = before
