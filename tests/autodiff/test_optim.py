"""Steps by hand, clipping, and rows of a table beside the whole table. Torch's steps are in test_curves.py."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chainrule.autodiff import Parameter, SparseRows
from chainrule.autodiff import optim as optim_module
from chainrule.autodiff.optim import Optimiser
from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse

OPTIMISERS = ("sgd", "momentum", "rmsprop", "adam", "adamw", "muon")


def optimiser(parameters: list[Parameter], **settings: Any) -> Optimiser:
    return Optimiser(parameters, parse(TrainingSettings, {"clip": 0, "learning_rate": 0.1, **settings}))


def weight(*values: float, name: str = "w") -> Parameter:
    return Parameter(name, np.array(values))


def stepped(steps: list[float], **settings: Any) -> list[float]:
    """A single weight, 1 at first, after each of these gradients."""
    w = weight(1.0)
    taker, after = optimiser([w], **settings), []
    for gradient in steps:
        w.receive(np.array([gradient]))
        taker.step(1.0)
        after.append(float(w.out_tensor[0]))
    return after


def test_sgd_by_hand() -> None:
    # 1 - 0.1 · 2, then - 0.1 · (-1)
    assert stepped([2.0, -1.0], optimiser="sgd") == pytest.approx([0.8, 0.9])


def test_momentum_by_hand() -> None:
    # v = 2: 1 - 0.1 (2 + 0.9 · 2) = 0.62; v = 0.9 · 2 - 1 = 0.8: 0.62 - 0.1 (-1 + 0.9 · 0.8) = 0.648
    assert stepped([2.0, -1.0], optimiser="momentum") == pytest.approx([0.62, 0.648])


def test_rmsprop_by_hand() -> None:
    # v = 0.01 · 4 = 0.04: 1 - 0.1 · 2 / 0.2 = 0; v = 0.99 · 0.04 + 0.01 · 1 = 0.0496: 0 + 0.1 / √0.0496
    expected = [0.0, 0.1 / np.sqrt(0.0496)]
    assert stepped([2.0, -1.0], optimiser="rmsprop") == pytest.approx(expected, abs=1e-6)


def test_adam_by_hand() -> None:
    # m̂ = 2, v̂ = 4: 1 - 0.1 · 2 / 2 = 0.9; m = 0.9 · 0.2 - 0.1 = 0.08, m̂ = 0.08 / 0.19;
    # v = 0.95 · 0.2 + 0.05 = 0.24, v̂ = 0.24 / 0.0975
    expected = [0.9, 0.9 - 0.1 * (0.08 / 0.19) / np.sqrt(0.24 / 0.0975)]
    assert stepped([2.0, -1.0], optimiser="adam") == pytest.approx(expected, abs=1e-6)


def test_decay_is_in_the_gradient_or_beside_it() -> None:
    """Only of matrices, and not of embeddings."""
    for name, expected in (("sgd", 1 - 0.1 * 0.5), ("adamw", 1 - 0.1 * 0.5)):
        parameters = [Parameter("head.weight", np.ones((1, 1))), Parameter("bias", np.ones(1))]
        parameters.append(Parameter("embedding.weight", np.ones((1, 1))))
        for one in parameters:
            one.receive(np.zeros(one.out_tensor.shape))
        optimiser(parameters, optimiser=name, weight_decay=0.5).step(1.0)
        assert [float(one.out_tensor.sum()) for one in parameters] == pytest.approx([expected, 1, 1])


def test_a_gradient_is_clipped_by_the_norm_of_all() -> None:
    a, b = weight(0.0, 0.0, name="a"), Parameter("b", np.zeros((4, 1)))
    a.receive(np.array([3.0, 0.0]))
    # the rows of id 2 add up to 4: the norm is √(3² + 4²) = 5, and clip=1 leaves a fifth
    b.receive(SparseRows(np.array([2, 2]), np.array([[1.0], [3.0]])))
    norm = optimiser([a, b], optimiser="sgd", clip=1, learning_rate=1).step(1.0)
    assert norm == 5
    np.testing.assert_allclose(a.out_tensor, [-3 / 5, 0], atol=1e-6)
    np.testing.assert_allclose(b.out_tensor[:, 0], [0, 0, -4 / 5, 0], atol=1e-6)


def test_a_small_gradient_is_not_clipped() -> None:
    a = weight(0.0)
    a.receive(np.array([0.5]))
    assert optimiser([a], optimiser="sgd", clip=1, learning_rate=1).step(0.5) == 0.5
    assert a.out_tensor[0] == -0.25


@pytest.mark.parametrize("name", OPTIMISERS)
def test_rows_of_a_table_are_the_whole_table_with_zeros(name: str) -> None:
    rng = np.random.default_rng(0)
    sparse, dense = (Parameter("embedding.weight", np.ones((7, 3), np.float32)) for _ in range(2))
    takers = [optimiser([one], optimiser=name, clip=1.0) for one in (sparse, dense)]
    for _ in range(4):
        gradient = SparseRows(rng.integers(0, 7, 5), rng.normal(size=(5, 3)).astype(np.float32))
        sparse.receive(gradient)
        dense.receive(gradient.dense((7, 3)))
        norms = [taker.step(1.0) for taker in takers]
        assert norms[0] == pytest.approx(norms[1], rel=1e-6)
        np.testing.assert_allclose(sparse.out_tensor, dense.out_tensor, rtol=1e-6)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_blocks_are_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def after() -> np.ndarray:
        w, rng = Parameter("w", np.ones((5, 7))), np.random.default_rng(0)
        taker = optimiser([w], optimiser=name, weight_decay=0.1)
        for _ in range(3):
            w.receive(rng.normal(size=(5, 7)))
            taker.step(1.0)
        return w.out_tensor

    whole = after()
    monkeypatch.setattr(optim_module, "_BLOCK", 4)
    np.testing.assert_array_equal(after(), whole)


@pytest.mark.parametrize("name", OPTIMISERS)
def test_rows_that_lie_anywhere_in_memory(name: str) -> None:
    """A transposed array, and one row that stands for two: steps change what they hold."""
    gradient = np.arange(1.0, 7).reshape(2, 3)
    for tensor in (np.ones((3, 2)).T, np.broadcast_to(np.ones(3), (2, 3))):
        found, expected = Parameter("w", tensor), Parameter("w", np.ones((2, 3)))
        for one in (found, expected):
            one.receive(gradient)
            optimiser([one], optimiser=name, weight_decay=0.1).step(1.0)
        np.testing.assert_array_equal(found.out_tensor, expected.out_tensor)
        assert not (found.out_tensor == 1).any()


def test_parameters_of_one_name_are_all_trained() -> None:
    a, b = weight(1.0), weight(1.0)
    taker = optimiser([a, b], optimiser="sgd")
    for one in (a, b):
        one.receive(np.array([2.0]))
    taker.step(1.0)
    assert [a.out_tensor[0], b.out_tensor[0]] == pytest.approx([0.8, 0.8])


def test_a_parameter_without_gradient_stays_as_it_is() -> None:
    """Nothing is remembered of the step either: its first gradient is its first step."""
    a, b = weight(1.0), weight(1.0)
    taker = optimiser([a, b], optimiser="adam")
    for step in range(2):
        a.receive(np.array([2.0]))
        if step:
            b.receive(np.array([2.0]))
        taker.step(1.0)
    assert b.out_tensor[0] == pytest.approx(0.9)


def test_a_norm_that_is_no_number_changes_nothing() -> None:
    a = weight(1.0)
    a.receive(np.array([np.inf]))
    assert optimiser([a]).step(1.0) == np.inf
    assert a.out_tensor[0] == 1
    assert a.out_gradient is None
