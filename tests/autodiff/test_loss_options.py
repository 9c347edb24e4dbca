"""What a loss counts: means, sums, padding and weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from chainrule.arrays import PAD
from chainrule.autodiff import CrossEntropy, Parameter, SoftmaxCrossEntropy, Tape


class TestLossOptions:
    z = np.log(np.array([[0.5, 0.25, 0.25], [0.2, 0.2, 0.6]]))

    def loss(self, y: list[int], **options: Any) -> float:
        with Tape():
            return float(SoftmaxCrossEntropy(**options).apply_fwd(self.z, np.array(y)).out_tensor)

    def test_mean_sum_and_a_count(self) -> None:
        nats = [-math.log(0.25), -math.log(0.6)]
        assert self.loss([1, 2]) == pytest.approx(sum(nats) / 2)
        assert self.loss([1, 2], count=1) == pytest.approx(sum(nats))
        assert self.loss([1, 2], count=10) == pytest.approx(sum(nats) / 10)

    def test_padding_and_weights(self) -> None:
        nats = [-math.log(0.25), -math.log(0.6)]
        assert self.loss([PAD, 2]) == pytest.approx(nats[1])
        assert self.loss([1, 2], weights=np.array([1, 0])) == pytest.approx(nats[0])
        assert self.loss([1, 2], weights=np.array([1, 3])) == pytest.approx((nats[0] + 3 * nats[1]) / 4)
        assert self.loss([PAD, PAD]) == 0

    def test_what_is_impossible_costs_nothing_where_it_is_padding(self) -> None:
        p = np.array([[0.0, 1.0], [0.5, 0.5]])
        with Tape():
            loss = CrossEntropy(weights=np.array([0, 1])).apply_fwd(Parameter("p", p), np.array([0, 1]))
            assert loss.out_tensor == pytest.approx(math.log(2))
