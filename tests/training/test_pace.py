"""How far a run has come, by its steps and by the clock."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chainrule.training.examples import sample_of
from chainrule.training.planning import Pace


def test_without_a_clock_steps_count() -> None:
    assert Pace.of(50, None).place(7, 1e9) == (7, 50)
    assert Pace.of(50, None).expected_steps(7, 1e9) == 50


def test_with_a_clock_time_counts() -> None:
    assert Pace.of(None, 0.5).place(7, 12.0) == (12_000, 30_000)
    assert Pace.of(None, 0.5).place(7, 31.0) == (30_000, 30_000)
    assert Pace.of(None, 0.5).expected_steps(10, 3.0) == 100


@given(st.integers(1, 1000), st.floats(0.01, 10), st.integers(0, 1000), st.floats(0, 600))
def test_with_both_the_nearer_limit_counts(steps: int, minutes: float, step: int, seconds: float) -> None:
    step = min(step, steps)
    done, whole = Pace.of(steps, minutes).place(step, seconds)
    nearer = min(1.0, max(step / steps, seconds / 60 / minutes))
    assert done / whole == pytest.approx(nearer, abs=0.002)


@given(st.lists(st.integers(0, 30), min_size=1, max_size=200), st.integers(1, 300))
def test_a_sample_of_lines_has_whole_lines(lengths: list[int], tokens: int) -> None:
    lines = [np.append(np.arange(1, length + 1), 0) for length in lengths]
    ids = np.concatenate(lines)
    sample = sample_of(ids, 0, "line", tokens)
    cut = np.split(sample, np.flatnonzero(sample == 0) + 1)[:-1]
    assert sample[-1] == 0 and {tuple(line) for line in cut} <= {tuple(line) for line in lines}
    if tokens >= len(ids):
        assert sample is ids


def test_a_sample_of_a_stream_is_spread_over_it() -> None:
    ids = np.arange(100_000)
    sample = sample_of(ids, 0, "stream", 1600)
    assert len(sample) == 1600 and (sample[0], sample[-1]) == (0, 99_999)
    assert np.count_nonzero(np.diff(sample) > 1) == 15
