"""The same weights give the same logits in the transformers transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from chainrule.errors import SettingsError
from chainrule.interop.decoders import GPT2, LLAMA, from_weights, to_weights
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

CLOSE = {"rtol": 1e-5, "atol": 1e-5}
VOCABULARY = 37  # padded to 40


def ours(preset: str, **settings: Any) -> Transformer:
    torch.manual_seed(6)
    sizes = {"preset": preset, "layers": 2, "width": 32, "heads": 4, "window": 16, "initial_std": 0.3}
    transformer = Transformer(TransformerConfig(**{**sizes, **settings}), VOCABULARY).eval()
    with torch.no_grad():
        # gains of 1 and biases of 0 would hide a mix-up
        for name, weight in transformer.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight), alpha=0.2 if name.endswith("weight") else 0.1)
    return transformer


def some_ids() -> Tensor:
    return torch.randint(VOCABULARY, (3, 16), generator=torch.Generator().manual_seed(7))


@torch.no_grad()
def our_logits(transformer: Transformer) -> Tensor:
    logits_BTV: Tensor = transformer.head(transformer.eval()(some_ids()).features_BTD)
    return logits_BTV


@torch.no_grad()
def their_logits(model: Any) -> Tensor:
    logits_BTV: Tensor = model.eval()(input_ids=some_ids()).logits
    return logits_BTV


@pytest.mark.parametrize("tied", [True, False])
def test_their_gpt2_is_ours(transformers: Any, tied: bool) -> None:
    torch.manual_seed(8)
    described = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=32, n_layer=2, n_head=4, tie_word_embeddings=tied
    )
    model = transformers.GPT2LMHeadModel(described)
    transformer = from_weights(GPT2, model.state_dict(), described.to_dict(), bos=0)
    torch.testing.assert_close(our_logits(transformer), their_logits(model), **CLOSE)
    assert transformer.config.dropout == 0.1


@pytest.mark.parametrize("tied", [True, False])
def test_their_llama_is_ours(transformers: Any, tied: bool) -> None:
    torch.manual_seed(9)
    described = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        max_position_embeddings=16,
        hidden_size=32,
        intermediate_size=56,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        rope_parameters={"rope_type": "default", "rope_theta": 700.0},
        tie_word_embeddings=tied,
    )
    model = transformers.LlamaForCausalLM(described)
    transformer = from_weights(LLAMA, model.state_dict(), described.to_dict(), bos=0)
    assert (transformer.config.rotary_base, transformer.config.kv_heads) == (700.0, 2)
    torch.testing.assert_close(our_logits(transformer), their_logits(model), **CLOSE)


@pytest.mark.parametrize("preset", ["gpt2", "llama"])
def test_there_and_back(preset: str) -> None:
    transformer = ours(preset)
    architecture = {"gpt2": GPT2, "llama": LLAMA}[preset]
    weights, described = to_weights(architecture, transformer)
    again = from_weights(architecture, weights, described, bos=0)
    torch.testing.assert_close(our_logits(again), our_logits(transformer), rtol=0, atol=0)
    # rows that only fill up the table are never likely: with them, the loss is hardly more
    ids_BT = some_ids()
    log_probs_BTV = our_logits(again)[:, :-1].log_softmax(dim=-1)
    exact = -log_probs_BTV.gather(2, ids_BT[:, 1:, None]).sum().item()
    trained = again.train().loss(ids_BT[:, :-1], ids_BT[:, 1:]).nats.item()
    assert exact < trained < exact + ids_BT[:, 1:].numel() * np.log(40 / 37)


def test_names_without_prefix_are_read() -> None:
    weights, described = to_weights(GPT2, ours("gpt2"))
    bare = {name.removeprefix("transformer."): weight for name, weight in weights.items()}
    torch.testing.assert_close(our_logits(from_weights(GPT2, bare, described, bos=0)), our_logits(ours("gpt2")))


def test_other_designs_are_refused() -> None:
    with pytest.raises(SettingsError, match="a gpt2 has norm=layernorm, this network norm=rmsnorm"):
        to_weights(GPT2, ours("llama"))
    with pytest.raises(SettingsError, match=r"a gpt2 has head_size=\d+, this network head_size=6"):
        to_weights(GPT2, ours("gpt2", head_size=6))
    for architecture, preset in ((GPT2, "gpt2"), (LLAMA, "llama")):
        with pytest.raises(SettingsError, match="has residual=True, this network residual=False"):
            to_weights(architecture, ours(preset, residual=False))
    with pytest.raises(SettingsError, match="a llama has qk_norm=False, this network qk_norm=True"):
        to_weights(LLAMA, ours("llama", qk_norm=True))
    weights, described = to_weights(LLAMA, ours("llama"))
    for key in ("rope_type", "type"):
        with pytest.raises(SettingsError, match="should not be stretched, but are by 'yarn'"):
            from_weights(LLAMA, weights, {**described, "rope_scaling": {key: "yarn"}}, bos=0)
    del weights["model.norm.weight"]
    with pytest.raises(SettingsError, match=r"should have 'model\.norm\.weight'"):
        from_weights(LLAMA, weights, described, bos=0)
    weights, described = to_weights(GPT2, ours("gpt2"))
    for name, value in (("scale_attn_weights", False), ("scale_attn_by_inverse_layer_idx", True)):
        with pytest.raises(SettingsError, match=f"{name} of a GPT-2 should be {not value}, not {value}"):
            from_weights(GPT2, weights, {**described, name: value}, bos=0)
    with pytest.raises(SettingsError, match=r"wte\.weight should make \[37, 16\], not \[37, 32\]"):
        from_weights(GPT2, weights, {**described, "n_embd": 16}, bos=0)
