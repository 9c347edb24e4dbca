from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from chainrule.networks.layers import rms_norm
from chainrule.networks.transformer.attention import fused_attention, single_query_attention, textbook_attention
from chainrule.networks.transformer.positions import alibi_bias, alibi_slopes


def random_qkv(kv_heads: int, T: int = 7, S: int = 7) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(2, heads, n, 8, requires_grad=True) for heads, n in ((4, T), (kv_heads, S), (kv_heads, S))]


def with_gradients(result: Tensor, inputs: list[Tensor]) -> list[Tensor]:
    weights = torch.linspace(-1, 1, result.numel()).view(result.shape)
    return [result, *torch.autograd.grad((result * weights).sum(), inputs)]


def test_attention_by_hand() -> None:
    q = torch.tensor([[[[2.0, 0, 0, 0]]]])
    k = torch.tensor([[[[math.log(3), 0, 0, 0], [0.0, 9, 9, 9]]]])
    v = torch.tensor([[[[4.0, 0, 0, 0], [0.0, 8, 0, 0]]]])
    # scores 2 ln 3 / sqrt(4) = ln 3 and 0, so the weights are 3/4 and 1/4
    torch.testing.assert_close(textbook_attention(q, k, v), torch.tensor([[[[3.0, 2, 0, 0]]]]))


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("case", ["causal", "rows", "alibi", "all"])
def test_fused_attention_is_the_textbook(kv_heads: int, case: str) -> None:
    inputs = random_qkv(kv_heads)
    distance_TS = torch.arange(7)[:, None] - torch.arange(7)
    mask = {
        "causal": distance_TS >= 0,
        "rows": (torch.arange(7) <= torch.tensor([[2], [6]]))[:, None, None],
        "alibi": alibi_bias(alibi_slopes(4), distance_TS),
        "all": None,
    }[case]
    expected = with_gradients(textbook_attention(*inputs, mask), inputs)
    torch.testing.assert_close(with_gradients(fused_attention(*inputs, mask), inputs), expected)
    if case == "causal":
        torch.testing.assert_close(with_gradients(fused_attention(*inputs, is_causal=True), inputs), expected)


@pytest.mark.parametrize("kv_heads", [4, 2, 1])
@pytest.mark.parametrize("case", ["rows", "alibi", "all"])
def test_attention_of_one_query_is_the_textbook(kv_heads: int, case: str) -> None:
    q, k, v = random_qkv(kv_heads, T=1)
    places_B1 = torch.tensor([[2], [6]])
    mask = {
        "rows": (torch.arange(7) <= places_B1)[:, None, None],
        "alibi": alibi_bias(alibi_slopes(4), places_B1[..., None] - torch.arange(7)),
        "all": None,
    }[case]
    torch.testing.assert_close(single_query_attention(q, k, v, mask), textbook_attention(q, k, v, mask))


def test_rms_norm_by_hand() -> None:
    # mean(x²) = (9 + 16) / 2 = 12.5
    torch.testing.assert_close(rms_norm(torch.tensor([3.0, 4.0]), 0.0), torch.tensor([3.0, 4.0]) / math.sqrt(12.5))


def test_gradient_of_rms_norm() -> None:
    torch.manual_seed(2)
    x = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: rms_norm(x, 1e-3), (x,))
    torch.testing.assert_close(rms_norm(x, 1e-3), torch.nn.functional.rms_norm(x, (5,), eps=1e-3))
