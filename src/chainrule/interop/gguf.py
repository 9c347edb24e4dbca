"""GGUF files for llama.cpp, through the package `gguf`: a Llama or a Qwen3 with byte-level BPE."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.lm import Context, start_token
from chainrule.contract.model import Model
from chainrule.errors import ForeignFileError, TokenizerError, importing
from chainrule.inference.neural_model import NeuralModel
from chainrule.interop.decoders import LLAMA, architecture_of, from_weights, to_weights
from chainrule.interop.foreign import reading
from chainrule.interop.huggingface import as_model, decoder
from chainrule.interop.llama2c import halves
from chainrule.interop.vocabularies.definitions import byte_level_bpe, made
from chainrule.interop.weights import expect, stacked
from chainrule.networks.transformer.decoder import Transformer
from chainrule.system.disk.atomic import replaced_path
from chainrule.tokens.published import PublishedTokenizer
from chainrule.tokens.subwords.library import byte_characters
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer

_SIZES = {
    "embedding_length": "hidden_size",
    "feed_forward_length": "intermediate_size",
    "context_length": "max_position_embeddings",
    "block_count": "num_hidden_layers",
    "attention.head_count": "num_attention_heads",
}
"""The sizes of a network, in llama.cpp's names and in those of transformers."""


def library() -> ModuleType:
    """Return the package `gguf`."""
    with importing("gguf", "interop", "a GGUF file"):
        import gguf
    found: ModuleType = gguf
    return found


# -- writing ----------------------------------------------------------------------------------------------


def write_gguf(model: Model, path: str | Path) -> str:
    """Write the weights and the tokenizer of a model as a file for llama.cpp; returns the architecture."""
    gguf, lm, path = library(), decoder(model, "gguf", "Transformers that predict text"), Path(path)
    assert isinstance(lm.network, Transformer)
    config, tokenizer = lm.network.config, lm.tokenizer
    expect(config, "llama of llama.cpp", {"activation": ("swiglu",), "bias": (False,)})
    if not isinstance(tokenizer, SubwordTokenizer) or tokenizer.algorithm != "bpe":
        raise TokenizerError(f"a GGUF file takes byte-level BPE, not {tokenizer.name} tokens")
    weights, described = to_weights(architecture_of(config), lm.network)
    architecture = str(described["model_type"])
    with replaced_path(path) as temporary:
        writer = gguf.GGUFWriter(temporary, architecture)
        try:
            for key, name in _SIZES.items():
                writer.add_uint32(f"{architecture}.{key}", described[name])
            writer.add_head_count_kv(described["num_key_value_heads"])
            for add_size in (writer.add_key_length, writer.add_value_length, writer.add_rope_dimension_count):
                add_size(described["head_dim"])
            writer.add_layer_norm_rms_eps(described["rms_norm_eps"])
            writer.add_rope_freq_base(described["rope_theta"])
            writer.add_vocab_size(described["vocab_size"])
            _add_tokenizer(writer, tokenizer, lm)
            names = _names(described["num_hidden_layers"])
            for name, weight in weights.items():
                writer.add_tensor(names[name], _their_order(name, weight.numpy(), described))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        except BaseException:
            with suppress(OSError):  # what is left in a buffer cannot be written either
                writer.close()
            raise
        writer.close()
    return architecture


def _names(layers: int) -> dict[str, str]:
    """Return the names of a Llama's or a Qwen3's weights: those of transformers, and llama.cpp's."""
    table = library().get_tensor_name_map(library().MODEL_ARCH.QWEN3, layers)
    stems = [name.replace("*", "weight") for names in LLAMA.weights.values() for name in stacked(names)]
    every = [stem.format(i) for stem in stems for i in range(layers if "{}" in stem else 1)]
    return {name: table.get_name(name, (".weight",)) for name in every}


def _their_order(name: str, array: np.ndarray, described: dict[str, Any]) -> np.ndarray:
    """Return rows in llama.cpp's order: it rotates neighbouring numbers of a head, we rotate halves."""
    if described["model_type"] == "llama" and ("q_proj" in name or "k_proj" in name):
        heads = described["num_attention_heads" if "q_proj" in name else "num_key_value_heads"]
        array = array.reshape(heads, 2, -1, array.shape[1]).swapaxes(1, 2).reshape(array.shape)
    return np.ascontiguousarray(array)


def _add_tokenizer(writer: Any, tokenizer: SubwordTokenizer, lm: NeuralModel) -> None:
    """Add the vocabulary, the merges, and the token that is read before the first one.

    The piece that spells a line end is never used by us, whose lines end in </s>: the two change names.
    """
    from gguf import TokenType

    described = tokenizer.to_json()["tokenizers"]["model"]
    names = {number: name for name, number in described["vocab"].items()}
    end = byte_characters()[ord("\n")]
    names[described["vocab"][end]], names[tokenizer.eos], names[tokenizer.bos] = "</s>", end, "<s>"
    special = {tokenizer.bos, described["vocab"][end]}
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([names[i] for i in range(tokenizer.vocab_size)])
    kinds = [TokenType.CONTROL if i in special else TokenType.NORMAL for i in range(tokenizer.vocab_size)]
    writer.add_token_types(kinds)
    writer.add_token_merges([" ".join(pair) for pair in tokenizer.merges()])
    writer.add_bos_token_id(start_token(tokenizer, lm.context))
    # of a text that flows across lines, a line end is no end
    writer.add_eos_token_id(tokenizer.eos if lm.context == "line" else described["vocab"][end])
    writer.add_add_bos_token(True)


# -- reading ----------------------------------------------------------------------------------------------


def load(path: str | Path, *, context: Context = "stream") -> NeuralModel:
    """Return the model of a GGUF file: a llama with byte-level BPE of GPT-2's pattern, in float32 or float16."""
    path = Path(path)
    try:
        reader = _reader(path)
        values = {name: field.contents() for name, field in reader.fields.items()}
    except (ValueError, IndexError, KeyError, OSError, TypeError) as error:
        raise ForeignFileError(f"{path}: not a GGUF file that can be read: {error}") from None
    with reading(path):
        network, tokenizer = _read(path, reader.tensors, values)
        return as_model(network, tokenizer, context, path, "gguf llama")


def _reader(path: Path) -> Any:
    """Return the package's reader, with an error where a value goes beyond the end of the file.

    The package itself goes on without bytes, for as many values as a damaged file says: for hours.
    """

    class Whole(library().GGUFReader):  # type: ignore[misc]
        def _get(self, offset: int, dtype: Any, count: int = 1, **options: Any) -> Any:
            found = super()._get(offset, dtype, count, **options)
            if len(found) < count:
                raise ValueError(f"it ends inside a value, at byte {offset:,}")
            return found

    return Whole(path)


def _read(path: Path, tensors: Any, values: dict[str, Any]) -> tuple[Transformer, PublishedTokenizer]:
    """Return the network and the tokenizer of a file with these tensors and these values by name."""
    architecture = values.get("general.architecture")
    if architecture != "llama":
        raise ForeignFileError(f"{path}: the architecture {architecture!r} of this GGUF file is not llama")
    kind, pattern = values.get("tokenizer.ggml.model"), values.get("tokenizer.ggml.pre")
    if kind != "gpt2" or pattern not in ("gpt-2", None):
        raise ForeignFileError(f"{path}: its tokenizer is {kind} {pattern or ''}, not gpt2 with the pattern gpt-2")
    described = {name: _required(path, values, f"llama.{key}") for key, name in _SIZES.items()}
    described |= {
        "num_key_value_heads": values.get("llama.attention.head_count_kv") or described["num_attention_heads"],
        "rms_norm_eps": values.get("llama.attention.layer_norm_rms_epsilon") or 1e-5,
        "rope_theta": values.get("llama.rope.freq_base") or 10000.0,
        "vocab_size": len(_required(path, values, "tokenizer.ggml.tokens")),
    }
    weights: dict[str, Tensor] = {}
    names = {theirs: ours for ours, theirs in _names(described["num_hidden_layers"]).items()}
    for tensor in tensors:
        if tensor.tensor_type.name not in ("F32", "F16"):
            raise ForeignFileError(f"{path}: {tensor.name} is {tensor.tensor_type.name}, not F32 or F16")
        name = names.get(tensor.name, tensor.name)
        weights[name] = _our_order(name, torch.from_numpy(np.array(tensor.data)).float(), described)
    described["tie_word_embeddings"] = "lm_head.weight" not in weights
    tokenizer = _tokenizer(path, values)
    return from_weights(LLAMA, weights, described, tokenizer.bos, tokenizer.vocab_size), tokenizer


def _required(path: Path, values: dict[str, Any], name: str) -> Any:
    if name not in values:
        raise ForeignFileError(f"{path}: this GGUF file does not say {name}")
    return values[name]


def _our_order(name: str, weight: Tensor, described: dict[str, Any]) -> Tensor:
    for part, heads in (("q_proj", "num_attention_heads"), ("k_proj", "num_key_value_heads")):
        # rows that are no whole heads are left as they are: their shape is refused later, by its name
        if part in name and weight.dim() == 2 and len(weight) % (2 * described[heads]) == 0:
            return halves(weight, described[heads])
    return weight


def _tokenizer(path: Path, values: dict[str, Any]) -> PublishedTokenizer:
    names, kinds = (_required(path, values, f"tokenizer.ggml.{what}") for what in ("tokens", "token_type"))
    merges = [pair.split(" ") for pair in _required(path, values, "tokenizer.ggml.merges")]
    control = [(i, name) for i, name in enumerate(names) if kinds[i] == 3]
    definition = byte_level_bpe({name: i for i, name in enumerate(names)}, merges, *control)
    start, stop = values.get("tokenizer.ggml.bos_token_id"), values.get("tokenizer.ggml.eos_token_id")
    start, stop = (None if token is None else int(token) for token in (start, stop))
    return made(definition, path, size=len(names), start=stop if start is None else start, stop=stop)
