from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from chainrule.arrays import PAD
from chainrule.networks.config import count_parameters
from chainrule.networks.transformer.config import PRESETS, TransformerConfig
from chainrule.networks.transformer.decoder import Transformer


def network(vocab_size: int = 11, **settings: Any) -> Transformer:
    torch.manual_seed(5)
    small = {"layers": 2, "width": 8, "heads": 2, "window": 6, "hidden": 8}
    return Transformer(TransformerConfig(**{**small, **settings}), vocab_size)


VARIANTS: dict[str, dict[str, Any]] = {
    **{preset: {"preset": preset} for preset in PRESETS},
    **{f"{positions} positions": {"positions": positions} for positions in ("learned", "alibi", "none")},
    **{activation: {"activation": activation} for activation in ("gelu", "relu", "swiglu")},
    "grouped-query": {"heads": 4, "kv_heads": 2},
    "multi-query": {"kv_heads": 1, "positions": "alibi"},
    "post rmsnorm": {"preset": "llama", "placement": "post"},
    "tied and scaled": {"tied": True, "scaled_embedding": True},
}


class MeanLoss(nn.Module):
    """-ln p of the targets in double precision, as a function of the weights."""

    def __init__(self, transformer: Transformer) -> None:
        super().__init__()
        self.transformer = transformer.double()

    def forward(self, inputs_BT: Tensor, targets_BT: Tensor) -> Tensor:
        logits_BTV = self.transformer.head(self.transformer(inputs_BT).features_BTD)
        return F.cross_entropy(logits_BTV.flatten(0, 1), targets_BT.flatten(), ignore_index=PAD)


@pytest.mark.parametrize("variant", VARIANTS)
def test_gradients_of_the_loss(variant: str) -> None:
    """dL/dw, for every weight at once, is the slope of the loss by finite differences."""
    settings = {"window": 3, "zero_init": False, "initial_std": 0.5, **VARIANTS[variant]}
    loss = MeanLoss(network(vocab_size=8, **settings))
    texts = torch.tensor([[4, 1, 2], [0, 7, 7]]), torch.tensor([[1, 2, PAD], [7, 6, 0]])
    names, weights = zip(*loss.named_parameters(), strict=True)

    def of_weights(*weights: Tensor) -> Tensor:
        value: Tensor = torch.func.functional_call(loss, dict(zip(names, weights, strict=True)), texts)
        return value

    assert torch.autograd.gradcheck(of_weights, weights, fast_mode=True)
    for name, gradient in zip(names, torch.autograd.grad(of_weights(*weights), weights), strict=True):
        assert gradient.abs().max() > 0, name
    # 5 targets are tokens, and 8 rows need no filling up
    torch.testing.assert_close(loss.transformer.loss(*texts).nats.double() / 5, loss(*texts), rtol=1e-5, atol=0)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_future_does_not_leak(variant: str) -> None:
    transformer = network(**{"zero_init": False, **VARIANTS[variant]})
    ids_BT = torch.tensor([[1, 2, 3, 4, 5, 6]])
    features_BTD = transformer(ids_BT).features_BTD
    for t in range(5):
        other_BT = ids_BT.clone()
        other_BT[:, t + 1 :] = 9
        others_BTD = transformer(other_BT).features_BTD
        torch.testing.assert_close(others_BTD[:, : t + 1], features_BTD[:, : t + 1])
        assert not torch.allclose(others_BTD[:, t + 1], features_BTD[:, t + 1])


def test_order_matters_only_with_positions() -> None:
    there, back = torch.tensor([[1, 2, 3, 4]]), torch.tensor([[3, 1, 2, 4]])
    for positions in ("learned", "sinusoidal", "rotary", "alibi", "none"):
        transformer = network(positions=positions, layers=1, zero_init=False, initial_std=0.5)
        last_there, last_back = (transformer(ids_BT).features_BTD[:, -1] for ids_BT in (there, back))
        # the last token sees the others as a set
        assert torch.allclose(last_there, last_back, atol=1e-5) == (positions == "none"), positions


def test_a_gpt2_has_124_million_weights() -> None:
    with torch.device("meta"):
        transformer = Transformer(
            TransformerConfig(preset="gpt2", layers=12, width=768, heads=12, window=1024), 50257
        )
    D, V, T, L = 768, 50257, 1024, 12
    norm = D + D
    attention = (D * 3 * D + 3 * D) + (D * D + D)
    feedforward = (D * 4 * D + 4 * D) + (4 * D * D + D)
    expected = V * D + T * D + L * (2 * norm + attention + feedforward) + norm
    assert expected == 124_439_808
    # 50304 is the next multiple of 64
    assert sum(p.numel() for p in transformer.parameters()) == expected + (50304 - 50257) * D
    assert count_parameters({name: p.shape for name, p in transformer.named_parameters()}, V) == expected
    assert transformer.flops_per_token() == 6 * (50304 * D + L * 12 * D * D) + 12 * L * T * D


def test_blocks_of_a_fast_one_add_nothing_at_first() -> None:
    transformer = network(preset="fast")
    ids_BT = torch.tensor([[1, 2, 3]])
    expected_BTD = transformer.norm(transformer.embedding[ids_BT])
    torch.testing.assert_close(transformer(ids_BT).features_BTD, expected_BTD)
    transformer.loss(ids_BT, ids_BT).nats.backward()
    assert transformer.blocks[0].feedforward.out.weight.grad.abs().max() > 0, "and yet they learn"


def test_first_weights() -> None:
    transformer = network(preset="gpt2", layers=8, width=128, heads=2, hidden=512)
    block = transformer.blocks[0]
    assert block.attention.qkv.weight.std().item() == pytest.approx(0.02, rel=0.05)
    # 0.02 / sqrt(2 · 8) = 0.005
    assert block.feedforward.out.weight.std().item() == pytest.approx(0.005, rel=0.05)
    assert block.attention.out.weight.std().item() == pytest.approx(0.005, rel=0.05)
    assert block.feedforward.up.bias.abs().max() == 0


def test_a_dropped_layer_is_left_out_of_a_whole_row() -> None:
    transformer = network(zero_init=False, layers=1, layer_dropout=0.5)
    ids_BT = torch.tensor([[1, 2, 3, 4]]).expand(64, -1)
    rows = {tuple(row.flatten().tolist()) for row in transformer(ids_BT).features_BTD.detach().round(decimals=4)}
    assert len(rows) == 4  # attention or not, feed-forward or not


def test_step_is_one_graph() -> None:
    """Nothing in a step asks the device: it is traced whole."""
    transformer = network(zero_init=False, heads=4, kv_heads=2, positions="alibi").eval()
    ids_B, lengths_B = torch.tensor([3, 4]), torch.tensor([0, 2])
    memory = transformer.begin(2, 6)
    stores = [torch.randn_like(memory.buffer.keys_LBGSK) for _ in range(4)]
    stores[2:] = [store.clone() for store in stores[:2]]
    with torch.no_grad():
        expected = transformer.step(ids_B, *stores[:2], lengths_B)
        compiled = torch.compile(transformer.step, fullgraph=True, backend="eager")
        torch.testing.assert_close(compiled(ids_B, *stores[2:], lengths_B), expected)
    torch.testing.assert_close(stores[:2], stores[2:])


def test_it_learns_a_line_by_heart() -> None:
    transformer = network(vocab_size=16, width=32, hidden=64, window=16, heads=4)
    optimiser = torch.optim.AdamW(transformer.parameters(), lr=1e-2)
    text_BT = torch.randint(16, (1, 17), generator=torch.Generator().manual_seed(0))
    for _ in range(60):
        nats = transformer.loss(text_BT[:, :-1], text_BT[:, 1:]).nats
        optimiser.zero_grad()
        nats.backward()
        optimiser.step()
    assert nats.item() / 16 < 0.05
