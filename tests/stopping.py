"""A training that a signal stops."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from chainrule.errors import Interrupted
from chainrule.training import loop


def stopping(monkeypatch: pytest.MonkeyPatch, *steps: int, number: int = signal.SIGINT) -> None:
    """Raise a signal in the middle of each of these steps."""
    step = loop.Loop._step

    def stopped(self: Any) -> None:
        if self.state.step + 1 in steps:
            signal.raise_signal(number)
        step(self)

    monkeypatch.setattr(loop.Loop, "_step", stopped)


@contextmanager
def interrupted(
    step: int, *, number: int = signal.SIGINT, match: str | None = None
) -> Iterator[pytest.ExceptionInfo[Interrupted]]:
    """Stop the training of a block by a signal in the middle of a step."""
    with pytest.MonkeyPatch.context() as patched, pytest.raises(Interrupted, match=match) as raised:
        stopping(patched, step, number=number)
        yield raised
