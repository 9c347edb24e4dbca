"""A product of a few rows is that of torch, whichever way round it is computed."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from chainrule.networks import layers as module
from chainrule.networks.layers import Linear, linear


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("shape", [(1,), (4,), (32,), (33,), (4, 1), (2, 3)], ids=str)
def test_it_is_the_product_of_torch(shape: tuple[int, ...], bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HAS_MKL", True)  # the way that other machines do not go is right, too
    torch.manual_seed(1)
    x, weight_NK, bias_N = torch.randn(*shape, 320), torch.randn(330, 320), torch.randn(330) if bias else None
    with torch.no_grad():
        found = linear(x, weight_NK, bias_N)
    torch.testing.assert_close(found, functional.linear(x, weight_NK, bias_N), rtol=0, atol=1e-4)
    assert found.is_contiguous()


def test_only_a_few_rows_without_gradients_are_turned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HAS_MKL", True)
    large, small = torch.zeros(400, 300), torch.zeros(40, 30)
    assert not module._turns(torch.zeros(8, 300), large)  # which keeps its gradients
    with torch.no_grad():
        assert module._turns(torch.zeros(8, 300), large)
        assert not module._turns(torch.zeros(2, 300), large)
        assert not module._turns(torch.zeros(8, 30), small)
        assert not module._turns(torch.zeros(8, 300).bfloat16(), large.bfloat16())


def test_the_layer_has_gradients() -> None:
    layer, x_BK = Linear(320, 330), torch.randn(8, 320)
    layer(x_BK).sum().backward()
    assert layer.weight.grad is not None
    torch.testing.assert_close(layer.weight.grad, x_BK.sum(0).expand(330, 320))
