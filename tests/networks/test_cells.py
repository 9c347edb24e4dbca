from __future__ import annotations

import math
from functools import partial

import pytest
import torch
from torch import nn

from chainrule.networks.recurrent import cells
from chainrule.networks.recurrent.cells import CellState, CellWeights, Step


@pytest.mark.parametrize(
    ("step", "peer"),
    [
        (cells.elman, nn.RNNCell(3, 4)),
        (partial(cells.elman, f=torch.relu), nn.RNNCell(3, 4, nonlinearity="relu")),
        (cells.lstm, nn.LSTMCell(3, 4)),
        (cells.gru, nn.GRUCell(3, 4)),
    ],
    ids=["elman", "elman_relu", "lstm", "gru"],
)
def test_a_step_is_torchs(step: Step, peer: nn.RNNCellBase) -> None:
    torch.manual_seed(2)
    weights = CellWeights(*(p.detach().normal_().double() for p in peer.parameters()))
    peer.double().load_state_dict(dict(zip(peer.state_dict(), weights, strict=True)))
    x_BD = torch.randn(5, 3, dtype=torch.float64)
    state: CellState = tuple(torch.randn(2 if step is cells.lstm else 1, 5, 4, dtype=torch.float64))
    expected = peer(x_BD, state if len(state) > 1 else state[0])
    got = step(x_BD, state, weights)
    for one, other in zip(got, expected if len(state) > 1 else (expected,), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_an_lstm_by_hand() -> None:
    """One unit: gates from sums of 0, 1, 2 and 3."""

    def sigmoid(x: float) -> float:
        return 1 / (1 + math.exp(-x))

    zeros = torch.zeros(4, 1, dtype=torch.float64)
    b = torch.tensor([0.0, 1.0, 2.0, 3.0], dtype=torch.float64)
    weights = CellWeights(zeros, zeros, b, torch.zeros_like(b))
    one = torch.ones(1, 1, dtype=torch.float64)
    h, c = cells.lstm(one, (one, 5 * one), weights)
    # c = f c + i g, h = o tanh(c)
    expected = sigmoid(1) * 5 + sigmoid(0) * math.tanh(2)
    assert math.isclose(c.item(), expected)
    assert math.isclose(h.item(), sigmoid(3) * math.tanh(expected))


def test_a_qrnn_by_hand() -> None:
    """One unit that sees two inputs, 1 and 3: the sums are 0 · 1 + 1 · 3, 1 · 1 + 0 · 3 and 0 + 2."""
    W = torch.tensor([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    b = torch.tensor([0.0, 0.0, 2.0], dtype=torch.float64)
    inputs, five = torch.tensor([[1.0, 3.0]], dtype=torch.float64), torch.full((1, 1), 5.0, dtype=torch.float64)
    h, c = cells.qrnn(inputs, five, W, b)
    f, o = 1 / (1 + math.exp(-1)), 1 / (1 + math.exp(-2))
    # c = f c + (1 - f) z, h = o c
    assert math.isclose(c.item(), f * 5 + (1 - f) * math.tanh(3))
    assert math.isclose(h.item(), o * c.item())


def test_rows_that_end_keep_their_state() -> None:
    torch.manual_seed(4)
    weights = CellWeights(torch.randn(2, 3), torch.randn(2, 2), torch.randn(2), torch.randn(2))
    x_BTD, start = torch.randn(3, 4, 3), (torch.randn(3, 2),)
    _, (after,) = cells.read_by_steps(cells.elman, x_BTD, start, weights, torch.tensor([4, 0, 2]))
    out_BTH, (every,) = cells.read_by_steps(cells.elman, x_BTD, start, weights)
    assert torch.equal(every, out_BTH[:, -1])
    assert torch.equal(after, torch.stack([out_BTH[0, 3], start[0][1], out_BTH[2, 1]]))
