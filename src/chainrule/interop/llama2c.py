"""Checkpoints of llama2.c: sizes, then every weight in float32, and a tokenizer.bin beside them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.lm import Context
from chainrule.errors import ForeignFileError
from chainrule.inference.neural_model import NeuralModel
from chainrule.interop.huggingface import as_model
from chainrule.interop.llama import from_llama_weights
from chainrule.interop.vocabularies.sentencepiece import llama2c_tokenizer

_HEADER = struct.Struct("<7i")
_MOST = 1 << 20  # no size of a network is larger


def load(path: str | Path, tokenizer: str | Path | None = None, *, context: Context = "stream") -> NeuralModel:
    """The model of a .bin file; its tokenizer is beside it, unless another file is named."""
    path = Path(path)
    described, weights = _read(path)
    vocabulary = llama2c_tokenizer(_tokenizer_file(path, tokenizer), described["vocab_size"])
    network = from_llama_weights(weights, described, vocabulary.bos, vocabulary.vocab_size)
    return as_model(network, vocabulary, context, {"from": path.name, "architecture": "llama2.c"})


def _tokenizer_file(path: Path, named: str | Path | None) -> Path:
    if named is not None:
        return Path(named)
    beside = sorted(file for file in path.parent.glob("tok*.bin") if file != path)
    if len(beside) != 1:
        raise ForeignFileError(
            f"{path}: name its tokenizer (--tokenizer-file): there are {len(beside)} tok*.bin beside it"
        )
    return beside[0]


def is_checkpoint(path: Path) -> bool:
    """Whether a file begins as those of llama2.c do."""
    with path.open("rb") as file:
        head = file.read(_HEADER.size)
    if len(head) < _HEADER.size:
        return False
    width, hidden, layers, heads, kv_heads, vocabulary, window = _HEADER.unpack(head)
    sizes = (width, hidden, layers, heads, kv_heads, abs(vocabulary), window)
    return all(0 < size <= _MOST for size in sizes) and width % heads == 0 and heads % kv_heads == 0


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """The configuration and the weights, as those of a Llama."""
    raw = path.read_bytes()
    if not is_checkpoint(path):
        raise ForeignFileError(f"{path}: not a checkpoint of llama2.c")
    D, hidden, L, H, G, V, T = _HEADER.unpack(raw[: _HEADER.size])
    tied, V = V > 0, abs(V)
    kv = G * D // H
    shapes = {"embed": (V, D), "input_layernorm": (L, D), "q": (L, D, D), "k": (L, kv, D), "v": (L, kv, D)}
    shapes |= {"o": (L, D, D), "post_attention_layernorm": (L, D), "gate": (L, hidden, D), "down": (L, D, hidden)}
    # the angles of the positions are stored too, and are computed here
    shapes |= {"up": (L, hidden, D), "norm": (D,), "cos": (T, D // H // 2), "sin": (T, D // H // 2)}
    if not tied:
        shapes["head"] = (V, D)
    needed = _HEADER.size + 4 * sum(int(np.prod(shape)) for shape in shapes.values())
    if len(raw) != needed:
        raise ForeignFileError(f"{path}: a checkpoint of these sizes has {needed:,} bytes, not {len(raw):,}")
    numbers = torch.from_numpy(np.frombuffer(raw, "<f4", offset=_HEADER.size).copy())
    parts = {}
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        parts[name], numbers = numbers[:size].view(shape), numbers[size:]
    for name, heads in (("q", H), ("k", G)):
        parts[name] = torch.stack([halves(weight, heads) for weight in parts[name]])
    described = {"vocab_size": V, "hidden_size": D, "intermediate_size": hidden, "max_position_embeddings": T}
    described |= {"num_hidden_layers": L, "num_attention_heads": H, "num_key_value_heads": G}
    return {**described, "tie_word_embeddings": tied, "rms_norm_eps": 1e-5}, _named(parts, L, tied=tied)


def halves(weight: Tensor, heads: int) -> Tensor:
    """Rows in our order: llama2.c and llama.cpp turn neighbours (x_2i, x_2i+1), where we turn halves of a head."""
    return weight.view(heads, -1, 2, weight.shape[1]).transpose(1, 2).reshape(weight.shape)


def _named(parts: Mapping[str, Tensor], layers: int, *, tied: bool) -> dict[str, Tensor]:
    """The weights by the names that a `LlamaForCausalLM` has for them."""
    weights = {"model.embed_tokens.weight": parts["embed"], "model.norm.weight": parts["norm"]}
    if not tied:
        weights["lm_head.weight"] = parts["head"]
    for i in range(layers):
        for name in ("input_layernorm", "post_attention_layernorm"):
            weights[f"model.layers.{i}.{name}.weight"] = parts[name][i]
        weights |= {f"model.layers.{i}.self_attn.{x}_proj.weight": parts[x][i] for x in "qkvo"}
        weights |= {f"model.layers.{i}.mlp.{x}_proj.weight": parts[x][i] for x in ("gate", "up", "down")}
    return weights
