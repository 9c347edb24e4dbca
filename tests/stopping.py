"""A training that a signal stops."""

from __future__ import annotations

import signal
from typing import Any

import pytest

from chainrule.training import loop


def stopping(monkeypatch: pytest.MonkeyPatch, *at: int, number: int = signal.SIGINT) -> None:
    """Raise a signal after each of these steps."""
    step = loop.Loop._step

    def stopped(self: Any) -> None:
        step(self)
        if self.state.step in at:
            signal.raise_signal(number)

    monkeypatch.setattr(loop.Loop, "_step", stopped)
