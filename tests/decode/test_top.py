"""The largest few of each row."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from chainrule.decode.top import top_k

rows = st.lists(st.sampled_from([-np.inf, -3.0, -1.0, -0.5, 0.0]), min_size=1, max_size=20)


@settings(max_examples=100, deadline=None)
@given(rows, st.integers(1, 25))
def test_the_largest_come_first_and_ties_go_to_the_lowest_place(row: list[float], k: int) -> None:
    expected = sorted(range(len(row)), key=lambda place: (-row[place], place))[:k]
    for array in (np.asarray([row, row]), torch.tensor([row, row])):
        values, places = top_k(array, k)
        assert places.tolist() == [expected, expected]
        assert values.tolist() == [[row[place] for place in expected]] * 2
