"""Checkpoints of llama2.c: sizes, then every weight in float32, and a tokenizer.bin beside them."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.lm import Context
from chainrule.errors import ForeignFileError
from chainrule.inference.neural_model import NeuralModel
from chainrule.interop.decoders import LLAMA, from_weights
from chainrule.interop.foreign import reading
from chainrule.interop.huggingface import as_model
from chainrule.interop.vocabularies.sentencepiece import llama2c_tokenizer

_HEADER = struct.Struct("<7i")
_MOST = 1 << 20  # no size of a network is larger


def load(path: str | Path, tokenizer: str | Path | None = None, *, context: Context = "stream") -> NeuralModel:
    """Return the model of a .bin file; its tokenizer is beside it, unless another file is named."""
    path = Path(path)
    with reading(path):
        described, weights = _read(path)
        vocabulary = llama2c_tokenizer(_tokenizer_file(path, tokenizer), described["vocab_size"])
        network = from_weights(LLAMA, weights, described, vocabulary.bos, vocabulary.vocab_size)
        return as_model(network, vocabulary, context, path, "llama2.c")


def _tokenizer_file(path: Path, named: str | Path | None) -> Path:
    if named is not None:
        return Path(named)
    beside = sorted(file for file in path.parent.glob("tok*.bin") if file != path)
    if len(beside) != 1:
        raise ForeignFileError(
            f"{path}: name its tokenizer (--tokenizer-file): there are {len(beside)} tok*.bin beside it"
        )
    return beside[0]


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the configuration and the weights, as those of a Llama."""
    raw = path.read_bytes()
    header = raw[: _HEADER.size].ljust(_HEADER.size, b"\0")
    D, hidden, L, H, G, V, T = _HEADER.unpack(header)
    tied, V = V > 0, abs(V)
    if not all(0 < size <= _MOST for size in (D, hidden, L, H, G, V, T)) or D % H or H % G:
        raise ForeignFileError(f"{path}: not a checkpoint of llama2.c")
    kv = G * D // H
    # in the order of the file, by the names of a `LlamaForCausalLM`; those of all blocks are one array
    shapes = {
        "model.embed_tokens": (V, D),
        "input_layernorm": (L, D),
        "self_attn.q_proj": (L, D, D),
        "self_attn.k_proj": (L, kv, D),
        "self_attn.v_proj": (L, kv, D),
        "self_attn.o_proj": (L, D, D),
        "post_attention_layernorm": (L, D),
        "mlp.gate_proj": (L, hidden, D),
        "mlp.down_proj": (L, D, hidden),
        "mlp.up_proj": (L, hidden, D),
        "model.norm": (D,),
        # cos and sin of the angles of the positions, which are computed here
        "angles": (2, T, D // H // 2),
        **({} if tied else {"lm_head": (V, D)}),
    }
    needed = _HEADER.size + 4 * sum(int(np.prod(shape)) for shape in shapes.values())
    if len(raw) != needed:
        raise ForeignFileError(f"{path}: a checkpoint of these sizes has {needed:,} bytes, not {len(raw):,}")
    numbers = torch.from_numpy(np.frombuffer(raw, "<f4", offset=_HEADER.size).copy())
    weights, heads = {}, {"self_attn.q_proj": H, "self_attn.k_proj": G}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        part, numbers = numbers[:size].view(shape), numbers[size:]
        if name.startswith(("model.", "lm_head")):
            weights[f"{name}.weight"] = part
        elif name != "angles":
            parts = [halves(one, heads[name]) for one in part] if name in heads else part
            weights |= {f"model.layers.{i}.{name}.weight": one for i, one in enumerate(parts)}
    described = {"vocab_size": V, "hidden_size": D, "intermediate_size": hidden, "max_position_embeddings": T}
    described |= {"num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G}
    return {**described, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5}, weights


def halves(weight: Tensor, heads: int) -> Tensor:
    """Return rows in our order: llama2.c and llama.cpp rotate neighbours (x_2i, x_2i+1), where we rotate halves."""
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)
