"""Folders as transformers keeps them: config.json, weights in safetensors, tokenizer.json.

`export` writes a Transformer as `GPT2LMHeadModel`, `LlamaForCausalLM` or `Qwen3ForCausalLM`, whichever has its
design, a masked model as `BertForMaskedLM`, and an encoder-decoder as `BartForConditionalGeneration`; `load` reads
folders of these, and of `MistralForCausalLM`. What the model reads first and what it never writes stand in the
configurations of the tokenizer and of generation, so that transformers writes the same text after the same prompt.
"""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import numpy as np
from torch import Tensor

from chainrule._version import __version__
from chainrule.contract.lm import Context, LanguageModel, offered, start_token
from chainrule.contract.model import Model
from chainrule.errors import FolderError, ForeignFileError, ModelError, SettingsError
from chainrule.folder.tensors import write_tensors
from chainrule.inference.neural_model import NeuralModel
from chainrule.interop.bart import from_bart_weights, to_bart_weights
from chainrule.interop.bert import from_bert_weights, to_bert_weights
from chainrule.interop.decoders import DECODERS, GPT2, LLAMA, architecture_of, from_weights, to_weights
from chainrule.interop.foreign import reading
from chainrule.interop.shards import Shards
from chainrule.interop.vocabularies.encoders import (
    mask_of,
    masked_files,
    masked_tokenizer,
    source_files,
    source_tokenizer,
)
from chainrule.interop.vocabularies.files import read_json, read_tokenizer
from chainrule.interop.vocabularies.ours import never_written, published_files, rows_of, special_tokens
from chainrule.masked.encoder_model import EncoderModel
from chainrule.networks.transformer.decoder import Transformer
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from chainrule.system.disk.atomic import new_folder
from chainrule.tokens.published import PublishedTokenizer

SomeModel = TypeVar("SomeModel", bound=Model)
Published: TypeAlias = tuple[dict[str, Tensor], dict[str, Any], dict[str, Any]]
"""The contents of a folder: weights, config.json, and the other files, in JSON, by name."""
CONFIG = "config.json"
_VOCABULARY = ("tokenizer.json", "tokenizer_config.json")
_EMBEDDINGS = [architecture.weights["embedding"] for architecture in (GPT2, LLAMA)]
_BERT, _BART = "BertForMaskedLM", "BartForConditionalGeneration"
ARCHITECTURES = (*DECODERS, _BERT, _BART)
_TYPES = dict(zip(("gpt2", "llama", "qwen3", "mistral", "bert", "bart"), ARCHITECTURES, strict=True))


# -- writing ----------------------------------------------------------------------------------------------


def export(model: Model, folder: str | Path, *, overwrite: bool = False) -> str:
    """Write the folder of a model for transformers; returns the name of its architecture."""
    folder = Path(folder)
    if isinstance(model, EncoderModel):
        weights, described, files = _of_masked(model)
    elif isinstance(model, EncoderDecoderModel):
        weights, described, files = _of_encoder_decoder(model)
    else:
        weights, described, files = _of_decoder(
            decoder(model, "hf", "Transformers, masked models and encoder-decoders")
        )
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        is_ours = (folder / CONFIG).is_file()
        if not (overwrite and is_ours):
            hint = "choose another one, or overwrite it (--overwrite, overwrite=True)"
            raise FolderError(f"{folder} exists; {hint if is_ours else 'choose another one'}")
    with new_folder(folder) as temporary:
        arrays = {name: np.ascontiguousarray(weight.numpy()) for name, weight in weights.items()}
        write_tensors(temporary / "model.safetensors", arrays, {"format": "pt"})
        for name, content in ((CONFIG, described), *files.items()):
            (temporary / name).write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")
    return str(described["architectures"][0])


def decoder(model: Model, form: str, writable: str) -> NeuralModel:
    """Return the model if it is a Transformer that predicts text; the error for others says what the form takes."""
    if isinstance(model, LanguageModel) and (as_torch := offered(model, "as_torch")) is not None:
        model = as_torch()  # the tape may have trained it
    if not isinstance(model, NeuralModel) or not isinstance(model.network, Transformer):
        raise ModelError(f"--to {form} writes {writable}, not a model of the kind {model.kind}")
    return model


def _of_decoder(lm: NeuralModel) -> Published:
    assert isinstance(lm.network, Transformer)
    weights, described = to_weights(architecture_of(lm.network.config), lm.network, rows_of(lm.tokenizer))
    start, read = special_tokens(lm.tokenizer, lm.context).start, start_token(lm.tokenizer, lm.context)
    if start != read:  # the token `start` is read as `read`, which the network reads first
        table = next(weights[name] for name in _EMBEDDINGS if name in weights)
        if described["tie_word_embeddings"]:  # its logit stays what it is: one table for both becomes two
            weights["lm_head.weight"], described["tie_word_embeddings"] = table.clone(), False
        table[start] = table[read]
    vocabulary = published_files(lm.tokenizer, lm.context, lm.network.config.window)
    more, files = _generating(lm, vocabulary, _special_ids(lm))
    return weights, described | more, files


def _of_masked(model: EncoderModel) -> Published:
    tokenizer, mask = model.tokenizer, mask_of(model.tokenizer)
    rows = max(rows_of(tokenizer), mask + 1)
    # what a published model predicts is predicted there as well; ours predict neither <s> nor [MASK]
    never = {mask} if mask >= rows_of(tokenizer) else set()
    never |= set() if isinstance(tokenizer, PublishedTokenizer) else {tokenizer.bos}
    weights, described = to_bert_weights(model.network, rows, mask, sorted(never))
    described |= {"dtype": "float32", "pad_token_id": tokenizer.eos}
    vocabulary = masked_files(tokenizer, model.context, model.network.config.window)
    return weights, described, dict(zip(_VOCABULARY, vocabulary, strict=True))


def _of_encoder_decoder(model: EncoderDecoderModel) -> Published:
    tokenizer, settings = model.tokenizer, model.settings
    if model.source_tokenizer is not tokenizer:
        raise SettingsError(
            "a BartForConditionalGeneration has one vocabulary for sources and targets, this model one for each"
        )
    before = tokenizer.before if isinstance(tokenizer, PublishedTokenizer) else None
    if isinstance(tokenizer, PublishedTokenizer) and settings.source_start and before is None:
        raise SettingsError("source_start=True needs a token before sources, which the published vocabulary lacks")
    weights, described = to_bart_weights(model.network, settings, rows_of(tokenizer), before)
    vocabulary = source_files(tokenizer, settings.window, starts=settings.source_start)
    ids = _special_ids(model)
    ids |= {"decoder_start_token_id": start_token(tokenizer, model.context), "forced_eos_token_id": None}
    more, files = _generating(model, vocabulary, ids, max_length=settings.window)
    return weights, described | more, files


def _generating(
    lm: NeuralModel, vocabulary: tuple[Any, Any], ids: dict[str, Any], **generation: Any
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what the configuration of a model that generates text says besides, and its other files."""
    settings = {**ids, "suppress_tokens": never_written(lm.tokenizer) or None, "do_sample": False, **generation}
    files = {"generation_config.json": settings, **dict(zip(_VOCABULARY, vocabulary, strict=True))}
    return {"dtype": "float32", **ids, "use_cache": True}, files


def _special_ids(lm: NeuralModel) -> dict[str, Any]:
    special = special_tokens(lm.tokenizer, lm.context)
    return {f"{name}_token_id": token for name, token in zip(("bos", "eos", "pad"), special, strict=True)}


# -- reading ----------------------------------------------------------------------------------------------


def load(folder: str | Path, *, context: Context | None = None) -> Any:
    """Return the model of a folder of transformers; it saves and loads like any other of its kind.

    The context of a masked model is a line, and of a language model a stream, unless another one is given; that of
    an encoder-decoder is always a line.
    """
    folder = Path(folder)
    with reading(folder):
        described, architecture = _description(folder)
        weights, size = Shards(folder), described["vocab_size"]
        if architecture == _BERT:
            tokenizer = _fitting(folder, masked_tokenizer(folder, size), size)
            assert tokenizer.mask is not None
            encoder = from_bert_weights(weights, described, tokenizer.mask, tokenizer.vocab_size)
            masked = EncoderModel(encoder, tokenizer, context or "line", kind="masked", settings=encoder.config)
            return _carried_over(masked, folder, architecture)
        if architecture == _BART:
            tokenizer = _fitting(folder, source_tokenizer(folder, size), size)
            own = tokenizer.vocab_size, tokenizer.bos, tokenizer.before
            pair, settings = from_bart_weights(weights, described, *own)
            translator = EncoderDecoderModel(pair, tokenizer, tokenizer, kind="seq2seq", settings=settings)
            return _carried_over(translator, folder, architecture)
        tokenizer = _fitting(folder, read_tokenizer(folder, size=size), size)
        kind = DECODERS[architecture]
        network = from_weights(kind, weights, described, tokenizer.bos, tokenizer.vocab_size)
        return as_model(network, tokenizer, context or "stream", folder, architecture)


def as_model(
    network: Transformer, tokenizer: PublishedTokenizer, context: Context, path: Path, architecture: str
) -> NeuralModel:
    """Return a network that was carried over from a file or folder, as a model of the kind transformer."""
    settings = TransformerSettings(**asdict(network.config), engine="torch")
    lm = NeuralModel(network, tokenizer, context, kind="transformer", settings=settings, slide=settings.slide_share)
    return _carried_over(lm, path, architecture)


def _carried_over(model: SomeModel, path: Path, architecture: str) -> SomeModel:
    """Return the model, with a note of where it comes from."""
    model.provenance = {"from": path.name, "architecture": architecture, "chainrule": __version__}
    return model


def _description(folder: Path) -> tuple[dict[str, Any], str]:
    """Return config.json and the architecture that it names; refuse one that cannot be read."""
    path = folder / CONFIG
    if not path.is_file():
        raise ForeignFileError(f"{folder}: not a folder of transformers: it has no {CONFIG}")
    described = read_json(path)
    if described.get("auto_map"):
        raise ForeignFileError(f"{path}: its model is code in the folder (auto_map), which is never run")
    named = described.get("architectures") or [_TYPES.get(str(described.get("model_type")), "")]
    found = named[0] if isinstance(named, list) else named
    if found not in ARCHITECTURES:
        found = found or described.get("model_type")
        raise ForeignFileError(f"{path}: the architecture {found!r} is none of {', '.join(ARCHITECTURES)}")
    if described.get("quantization_config"):
        raise ForeignFileError(f"{path}: its weights are quantised, which cannot be read")
    size = described.get("vocab_size")
    if not isinstance(size, int) or size < 1:
        raise ForeignFileError(f"{path}: vocab_size should be a number of tokens, not {size!r}")
    return described, found


def _fitting(folder: Path, tokenizer: PublishedTokenizer, size: int) -> PublishedTokenizer:
    if tokenizer.size > size:
        raise ForeignFileError(f"{folder}: its tokenizer has {tokenizer.size} tokens, its model {size}")
    return tokenizer
