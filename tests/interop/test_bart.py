"""Encoder-decoders in transformers: logits and greedy translations are those of BART, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.contract.lm import start_token
from chainrule.errors import ChainruleError, ForeignFileError, SettingsError
from chainrule.interop import huggingface
from chainrule.interop.vocabularies.definitions import added_token, bpe, byte_level, definition_of
from chainrule.networks.seq2seq.config import Seq2SeqSettings
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel, make_network
from chainrule.seq2seq.translate import translate_texts
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_tokenizer
from chainrule.tokens.subwords.library import byte_characters
from chainrule.tokens.vocabulary import Limit

from .conftest import both_ways

TEXTS = ["The value of", "is <s> not\nthe  expression!", "Another"]
COUNT = 12
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def pairs_model(tokenizer: Tokenizer, source: Tokenizer | None = None, **design: Any) -> EncoderDecoderModel:
    """A model with weights that give each token another probability, and gains and biases other than 1 and 0."""
    torch.manual_seed(5)
    sizes = {"preset": "bart", "layers": 2, "width": 32, "heads": 4, "window": 64}
    settings = Seq2SeqSettings(**{**sizes, "dropout": 0.0, "token_dropout": 0.0, **design})
    source = source or tokenizer
    shares = settings.shared and source is tokenizer
    network = make_network(settings, tokenizer.vocab_size, tokenizer.bos, source.vocab_size, shares=shares)
    with torch.no_grad():
        for weight in network.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    return EncoderDecoderModel(network, tokenizer, source, kind="seq2seq", settings=settings)


@torch.no_grad()
def check_same(transformers: Any, model: EncoderDecoderModel, folder: Path, texts: list[str] = TEXTS) -> Any:
    """Load a folder in transformers; its ids, logits and greedy translations are those of the model."""
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    targets = np.random.default_rng(3).integers(0, 20, 12)
    found = translate_texts(model, texts, cr.Greedy(), max_tokens=COUNT)
    for text, (ours, *_) in zip(texts, found, strict=True):
        read = tokenizer(text, return_tensors="pt")
        ids = model.encode_source(text)
        assert read["input_ids"][0].tolist()[-len(ids) :] == ids.tolist()
        assert read["input_ids"].shape[1] == len(ids) + model.settings.source_start
        decoder_ids = torch.tensor([[start_token(model.tokenizer, "line"), *targets]])
        logits_TV = theirs(**read, decoder_input_ids=decoder_ids).logits[0]
        source_BS = torch.from_numpy(ids.astype(np.int64))[None]
        memory = model.network.begin_from(source_BS, torch.ones_like(source_BS, dtype=torch.bool))
        ours_TV = model.network.head(model.network(decoder_ids, memory).features_BTD)[0]
        size = min(logits_TV.shape[1], ours_TV.shape[1])
        torch.testing.assert_close(logits_TV[:, :size], ours_TV[:, :size], **CLOSE)
        written = theirs.generate(**read, max_new_tokens=COUNT)[0, 1:]
        assert written.tolist() == list(ours.ids)
        assert tokenizer.decode(written, skip_special_tokens=True).strip() == ours.text.strip()
    return theirs


@pytest.mark.parametrize("source_start", [False, True])
def test_there_and_back(transformers: Any, bpe: Tokenizer, tmp_path: Path, source_start: bool) -> None:
    model = pairs_model(bpe, source_start=source_start)
    assert huggingface.export(model, tmp_path / "hf") == "BartForConditionalGeneration"
    assert type(check_same(transformers, model, tmp_path / "hf")).__name__ == "BartForConditionalGeneration"
    # not one text for every source, which any two models might have in common
    assert len({best.ids for best, *_ in translate_texts(model, TEXTS, cr.Greedy(), max_tokens=COUNT)}) == len(
        TEXTS
    )
    huggingface.load(tmp_path / "hf").save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    assert loaded.kind == "seq2seq" and loaded.settings.source_start == source_start
    assert loaded.provenance["architecture"] == "BartForConditionalGeneration"
    check_same(transformers, loaded, tmp_path / "hf")
    assert cr.translate(loaded, TEXTS) == cr.translate(model, TEXTS)
    huggingface.export(loaded, tmp_path / "again")
    check_same(transformers, model, tmp_path / "again")
    first, again = (json.loads((tmp_path / name / "config.json").read_text()) for name in ("hf", "again"))
    assert {**again, "pad_token_id": first["pad_token_id"]} == first


@pytest.mark.parametrize("name", ["wordpiece", "char", "word", "byte"])
def test_other_tokens(transformers: Any, tmp_path: Path, name: str) -> None:
    limits = [Limit(top=600)] if name == "wordpiece" else []
    model = pairs_model(train_tokenizer(name, cr.Corpus.open("builtin:python"), *limits))
    for one in both_ways(model, tmp_path / "hf"):
        check_same(transformers, one, tmp_path / "hf")


@pytest.mark.parametrize(
    "design",
    [
        {"positions": "sinusoidal", "activation": "relu2", "hidden": 48},
        {"positions": "none", "activation": "gelu", "scaled_embedding": True},
        {"preset": "lecture", "embedding_norm": True},
    ],
    ids=str,
)
def test_designs_beside_the_preset(
    transformers: Any, bpe: Tokenizer, tmp_path: Path, design: dict[str, Any]
) -> None:
    model = pairs_model(bpe, **design)
    for one in both_ways(model, tmp_path / "hf"):
        check_same(transformers, one, tmp_path / "hf")


def their_folder(transformers: Any, folder: Path, **values: Any) -> Any:
    """A model that transformers made from the beginning, with a tokenizer of bytes as published models have one."""
    specials = ["<s>", "<pad>", "</s>", "<unk>"]
    sizes = {
        f"{side}_{name}": size
        for side in ("encoder", "decoder")
        for name, size in {"layers": 2, "attention_heads": 4, "ffn_dim": 48}.items()
    }
    described = transformers.BartConfig(
        vocab_size=264, d_model=32, max_position_embeddings=96, forced_eos_token_id=None, **{**sizes, **values}
    )
    torch.manual_seed(3)
    model = transformers.BartForConditionalGeneration(described).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    model.save_pretrained(folder, max_shard_size="40KB")
    vocabulary = {name: number for number, name in enumerate([*specials, *byte_characters().values()])}
    definition = definition_of(
        bpe(vocabulary, []),
        pre_tokenizer=byte_level(),
        decoder=byte_level(),
        added=[added_token(number, name, special=True) for number, name in enumerate(specials)],
    )
    surrounding = {"sep": ["</s>", 2], "cls": ["<s>", 0], "trim_offsets": True, "add_prefix_space": False}
    definition["post_processor"] = {"type": "RobertaProcessing", **surrounding}
    (folder / "tokenizer.json").write_text(json.dumps(definition))
    names = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": True, **names}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return model


@pytest.mark.parametrize("values", [{}, {"scale_embedding": True, "activation_function": "relu"}], ids=str)
def test_a_folder_of_theirs(transformers: Any, tmp_path: Path, values: dict[str, Any]) -> None:
    their_folder(transformers, tmp_path / "theirs", **values)
    assert len(list((tmp_path / "theirs").glob("model-*.safetensors"))) > 2
    texts = ["The value of", "Änother, one"]
    model = huggingface.load(tmp_path / "theirs")
    check_same(transformers, model, tmp_path / "theirs", texts)
    model.save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    check_same(transformers, loaded, tmp_path / "theirs", texts)
    huggingface.export(loaded, tmp_path / "back")
    check_same(transformers, loaded, tmp_path / "back", texts)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["vocab_size"] == 264
    weights = loaded.attention_weights(loaded.encode_source("The"), loaded.tokenizer.encode("Die"))
    assert weights is not None and weights.shape == (2, 4, 3, 4)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"decoder_layers": 1}, "decoder_layers of a BART should be as encoder_layers, 2, not 1"),
        ({"decoder_ffn_dim": 40}, "decoder_ffn_dim of a BART should be as encoder_ffn_dim, 48, not 40"),
        ({"normalize_before": True}, "normalize_before of a BART should be False, not True"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings of a BART should be True, not False"),
        ({"activation_function": "swish"}, "the activation of a BART should be one of .*, not 'swish'"),
        ({"max_position_embeddings": 64}, r"embed_positions\.weight should make \[64, 32\], not \[96, 32\]"),
        ({"eos_token_id": 3}, "sources end in the token 2, and targets in 3: they should be one"),
        ({"decoder_start_token_id": None}, "an encoder-decoder needs a decoder_start_token_id, which is not given"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_folders(transformers: Any, tmp_path: Path, values: dict[str, Any], message: str) -> None:
    their_folder(transformers, tmp_path / "theirs")
    (tmp_path / "theirs" / "generation_config.json").unlink()
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(ChainruleError, match=message) as caught:
        huggingface.load(tmp_path / "theirs")
    assert "\n" not in str(caught.value)


def test_a_bias_of_logits_is_refused(transformers: Any, bpe: Tokenizer, tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    huggingface.export(pairs_model(bpe), tmp_path / "hf")
    weights = load_file(tmp_path / "hf" / "model.safetensors")
    weights["final_logits_bias"][0, 3] = 1.0
    save_file(weights, tmp_path / "hf" / "model.safetensors")
    with pytest.raises(ForeignFileError, match="final_logits_bias of a BART should be 0"):
        huggingface.load(tmp_path / "hf")


def test_what_cannot_be_expressed(bpe: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        huggingface.export(pairs_model(bpe, preset="fast", tied=False, shared=False), tmp_path / "hf")
    for name in ("shared", "tied", "norm", "placement", "positions", "qk_norm", "embedding_norm"):
        assert f"{name}=" in str(caught.value)
    assert "\n" not in str(caught.value) and "activation" not in str(caught.value)
    assert str(caught.value).startswith(
        "a BartForConditionalGeneration has shared=True, this network shared=False; "
    )
    with pytest.raises(SettingsError, match=r"has cell=transformer, this network cell=lstm$"):
        huggingface.export(pairs_model(bpe, cell="lstm"), tmp_path / "hf")
    with pytest.raises(SettingsError, match=r"has pretrain=none, this network pretrain=infilling$"):
        huggingface.export(pairs_model(bpe, pretrain="infilling"), tmp_path / "hf")
    other = train_tokenizer("char", cr.Corpus.open("builtin:python"))
    with pytest.raises(SettingsError, match="has one vocabulary for sources and targets, this model one for each"):
        huggingface.export(pairs_model(bpe, other), tmp_path / "hf")
    with pytest.raises(SettingsError, match="source_start=true goes with cell=transformer"):
        pairs_model(bpe, cell="lstm", source_start=True)
    assert not (tmp_path / "hf").exists()
