"""The equations of a block, written out."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from chainrule.networks.transformer.attention import textbook_attention
from chainrule.networks.transformer.blocks import Block, FeedForward
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

X_BTD = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
CAUSAL = torch.ones(5, 5, dtype=torch.bool).tril()


def config(**settings: Any) -> TransformerConfig:
    sizes = {
        "width": 8,
        "heads": 2,
        "layers": 1,
        "window": 16,
        "hidden": 12,
        "zero_init": False,
        "initial_std": 0.4,
    }
    return TransformerConfig(**{**sizes, "positions": "none", **settings})


@pytest.mark.parametrize(
    ("activation", "bent"),
    [
        # z Φ(z), where tanh stands in for Φ
        ("gelu", lambda z: z * (1 + torch.tanh(math.sqrt(2 / math.pi) * (z + 0.044715 * z**3))) / 2),
        ("relu", lambda z: z * (z > 0)),
        ("relu2", lambda z: z**2 * (z > 0)),
        # g σ(g) z
        ("swiglu", lambda z: z[..., :12] / (1 + torch.exp(-z[..., :12])) * z[..., 12:]),
    ],
)
def test_the_feed_forward_part(activation: str, bent: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(1)
    part = FeedForward(config(preset="gpt2", activation=activation)).double()
    z = X_BTD @ part.up.weight.T + part.up.bias
    torch.testing.assert_close(part(X_BTD), bent(z) @ part.out.weight.T + part.out.bias)


@pytest.mark.parametrize("placement", ["pre", "post"])
@pytest.mark.parametrize("preset", ["lecture", "llama"])
def test_where_norms_stand(placement: str, preset: str) -> None:
    torch.manual_seed(1)
    block = Block(config(preset=preset, placement=placement)).double()
    with torch.no_grad():
        for norm in (block.attention_norm, block.feedforward_norm):
            norm.weight.uniform_(0.5, 2)
    attend = partial(textbook_attention, mask=CAUSAL)
    x = X_BTD
    if placement == "pre":
        x = x + block.attention(block.attention_norm(x), None, attend)
        x = x + block.feedforward(block.feedforward_norm(x))
    else:
        x = block.attention_norm(x + block.attention(x, None, attend))
        x = block.feedforward_norm(x + block.feedforward(x))
    torch.testing.assert_close(block(X_BTD, None, attend), x)
    other = "post" if placement == "pre" else "pre"
    elsewhere = Block(config(preset=preset, placement=other)).double()
    elsewhere.load_state_dict(block.state_dict())
    assert not torch.allclose(elsewhere(X_BTD, None, attend), x)


@pytest.mark.parametrize("qk_norm", [True, False])
def test_normalised_queries_and_keys_have_no_size(qk_norm: bool) -> None:
    torch.manual_seed(1)
    attention = Block(config(qk_norm=qk_norm)).double().attention
    attend = partial(textbook_attention, mask=CAUSAL)
    before = attention(X_BTD, None, attend)
    with torch.no_grad():
        attention.qkv.weight[:16] *= 3  # queries and keys, not values
    assert torch.allclose(attention(X_BTD, None, attend), before, rtol=1e-4, atol=1e-5) == qk_norm


def test_scaled_embedding_multiplies_by_the_root_of_the_width() -> None:
    ids_BT = torch.tensor([[3, 1, 4]])
    for scaled, factor in ((False, 1.0), (True, math.sqrt(8))):
        network = Transformer(config(scaled_embedding=scaled), 11)
        torch.testing.assert_close(network.embed(ids_BT, slice(0, 3)), factor * network.embedding[ids_BT])
        assert network.table().scale == factor
