"""The same weights give the same logits in the transformers library."""

from __future__ import annotations

import os
import struct
from pathlib import Path
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
STORIES = Path(os.environ.get("CHAINRULE_DATA", "."), "stories260k")
"""A Llama of 260 thousand weights trained on stories for children, as llama2.c keeps it."""


@pytest.fixture(scope="module")
def library() -> Any:
    os.environ["HF_HUB_OFFLINE"] = "1"
    return pytest.importorskip("transformers", reason="transformers, the peer of these tests, is not installed")


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


def loaded(model: Any, weights: dict[str, Tensor]) -> Any:
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected
    assert missing in ([], ["lm_head.weight"])  # the latter where it is tied
    model.tie_weights()
    return model


@pytest.mark.parametrize(
    "settings", [{}, {"tied": False}, {"activation": "relu", "hidden": 48}, {"activation": "gelu_erf"}]
)
def test_our_gpt2_is_theirs(library: Any, settings: dict[str, Any]) -> None:
    transformer = ours("gpt2", **settings)
    weights, described = to_weights(GPT2, transformer)
    model = loaded(library.GPT2LMHeadModel(library.GPT2Config(**described)), weights)
    torch.testing.assert_close(their_logits(model), our_logits(transformer), **CLOSE)


@pytest.mark.parametrize("tied", [True, False])
def test_their_gpt2_is_ours(library: Any, tied: bool) -> None:
    torch.manual_seed(8)
    described = library.GPT2Config(
        vocab_size=VOCABULARY, n_positions=16, n_embd=32, n_layer=2, n_head=4, tie_word_embeddings=tied
    )
    model = library.GPT2LMHeadModel(described)
    transformer = from_weights(GPT2, model.state_dict(), described.to_dict(), bos=0)
    torch.testing.assert_close(our_logits(transformer), their_logits(model), **CLOSE)
    assert transformer.config.dropout == 0.1


@pytest.mark.parametrize("settings", [{}, {"kv_heads": 2}, {"kv_heads": 1, "tied": True, "rotary_base": 500.0}])
def test_our_llama_is_theirs(library: Any, settings: dict[str, Any]) -> None:
    transformer = ours("llama", **settings)
    weights, described = to_weights(LLAMA, transformer)
    model = loaded(library.LlamaForCausalLM(library.LlamaConfig(**described)), weights)
    torch.testing.assert_close(their_logits(model), our_logits(transformer), **CLOSE)


@pytest.mark.parametrize("tied", [True, False])
def test_their_llama_is_ours(library: Any, tied: bool) -> None:
    torch.manual_seed(9)
    described = library.LlamaConfig(
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
    model = library.LlamaForCausalLM(described)
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


def read_stories() -> tuple[Transformer, list[bytes]]:
    """The network, and its tokens."""
    raw = (STORIES / "stories260K.bin").read_bytes()
    D, hidden, L, H, G, V, T = struct.unpack("7i", raw[:28])
    numbers = torch.from_numpy(np.frombuffer(raw, np.float32, offset=28).copy())
    shapes = {"embed": (V, D), "input_layernorm": (L, D), "q": (L, D, D), "k": (L, G * D // H, D)}
    shapes |= {"v": (L, G * D // H, D), "o": (L, D, D), "post_attention_layernorm": (L, D)}
    shapes |= {"gate": (L, hidden, D), "down": (L, D, hidden), "up": (L, hidden, D), "norm": (D,)}
    parts: dict[str, Tensor] = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        parts[name], numbers = numbers[:size].view(shape), numbers[size:]
    for name in "qk":
        # it turns neighbours, (x_2i, x_2i+1), where we turn halves
        parts[name] = parts[name].view(L, -1, D // H // 2, 2, D).transpose(2, 3).reshape(parts[name].shape)
    weights = {"model.embed_tokens.weight": parts["embed"], "model.norm.weight": parts["norm"]}
    for i in range(L):
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{i}.{name}.weight"] = parts[name][i]
        weights |= {f"model.layers.{i}.self_attn.{x}_proj.weight": parts[x][i] for x in "qkvo"}
        weights |= {f"model.layers.{i}.mlp.{x}_proj.weight": parts[x][i] for x in ("gate", "up", "down")}
    sizes = {"vocab_size": V, "hidden_size": D, "intermediate_size": hidden, "max_position_embeddings": T}
    heads = {"num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G}
    described = {**sizes, **heads, "tie_word_embeddings": True, "rms_norm_eps": 1e-5}
    raw, tokens, at = (STORIES / "tok512.bin").read_bytes(), [], 4
    for _ in range(V):
        (length,) = struct.unpack_from("i", raw, at + 4)
        tokens.append(raw[at + 8 : at + 8 + length])
        at += 8 + length
    return from_weights(LLAMA, weights, described, bos=1), tokens


@pytest.mark.skipif(not STORIES.exists(), reason="CHAINRULE_DATA does not name a folder with stories260k")
def test_a_published_llama_tells_a_story() -> None:
    transformer, tokens = read_stories()
    # a table, 5 blocks of two norms, q and o, k and v, and the three of swiglu, and a norm
    blocks = 5 * (2 * 64 + 2 * 64 * 64 + 2 * 32 * 64 + 3 * 172 * 64)
    assert sum(p.numel() for p in transformer.parameters()) == 512 * 64 + blocks + 64 == 260_032
    memory, ids = transformer.eval().begin(1), [1]
    for _ in range(60):
        reading = transformer(torch.tensor([ids[-1:]]), memory)
        memory = reading.memory
        ids.append(int(transformer.head(reading.features_BTD[0, -1]).argmax()))
    text = b"".join(tokens[i] for i in ids[1:]).decode()
    # text as the stories it was trained on have it
    assert text == (
        " Once upon a time, there was a little girl named Lily. She loved to play outside in the park. One day, "
        "she saw a big, red ball. She wanted to play with it, but it was too high"
    )
