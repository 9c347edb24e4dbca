"""Tests of the peak memory of a piece of work."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chainrule.system.devices import peak_memory_inside


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="the system does not tell as Linux does")
def test_a_peak_in_the_past_is_measured() -> None:
    with peak_memory_inside("cpu") as small:
        pass
    with peak_memory_inside("cpu") as large:
        for _ in range(40):  # longer than the pause between two looks
            np.ones(25_000_000)  # 200 MB
    assert small.megabytes is not None and large.megabytes is not None
    assert 150 < large.megabytes - small.megabytes < 1000
