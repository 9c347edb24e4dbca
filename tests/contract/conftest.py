"""Every kind there is, and one in torch that only the tests know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from chainrule import kinds

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def torch_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(kinds._BUILT_IN, "torch-bigram", "torch_bigram:KIND")
