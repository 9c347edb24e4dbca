"""Folders of transformers: its logits and its greedy texts are ours, in both directions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.autodiff.tape_model import as_tape_model
from chainrule.contract.lm import start_token
from chainrule.errors import ChainruleError, ForeignFileError, ModelError, SettingsError
from chainrule.inference.neural_model import NeuralModel
from chainrule.interop import huggingface
from chainrule.interop.vocabularies.ours import special_tokens
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_tokenizer

from .conftest import small

TEXT = "The value of\nthe expression  is\n"
DESIGNS: dict[str, dict[str, Any]] = {
    "GPT2LMHeadModel": {"preset": "gpt2"},
    "LlamaForCausalLM": {"preset": "llama", "kv_heads": 2},
    "Qwen3ForCausalLM": {"preset": "fast"},
}


@torch.no_grad()
def our_logits(lm: NeuralModel, text: str) -> torch.Tensor:
    ids = torch.tensor([[start_token(lm.tokenizer, lm.context), *lm.tokenizer.encode(text).tolist()]])
    logits_BTV: torch.Tensor = lm.network.head(lm.network(ids).features_BTD)
    return logits_BTV


def written(model: Any, tokenizer: Any, text: str, count: int) -> str:
    """What greedy generation adds to a text there."""
    read = tokenizer(text, return_tensors="pt")
    ids = model.generate(read["input_ids"], attention_mask=read["attention_mask"], max_new_tokens=count)
    return str(tokenizer.decode(ids[0, read["input_ids"].shape[1] :], skip_special_tokens=True))


def check_same(transformers: Any, lm: NeuralModel, folder: Path) -> Any:
    """Load a folder in transformers; its ids, logits and greedy texts are those of the model."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    for text in (TEXT, "Another", ""):
        ids = tokenizer(text, return_tensors="pt")["input_ids"].long()
        first = special_tokens(lm.tokenizer, lm.context).start
        assert ids[0].tolist() == [first, *lm.tokenizer.encode(text).tolist()]
        with torch.no_grad():
            theirs_BTV = model(input_ids=ids).logits
        ours_BTV = our_logits(lm, text)[..., : theirs_BTV.shape[-1]]
        torch.testing.assert_close(theirs_BTV, ours_BTV, rtol=1e-5, atol=1e-5)
        if lm.context == "stream" or "\n" not in text:
            ours = cr.generate(lm, text, cr.Greedy(), max_tokens=12, heal=False)[len(text) :]
            # of words, a text begins without the space that a continuation has
            assert written(model, tokenizer, text, 12).strip() == ours.strip()
    return model


def test_a_model_of_the_tape_is_exported(bpe: Tokenizer, tmp_path: Path) -> None:
    lm = small(bpe, "line", preset="gpt2")
    assert huggingface.export(as_tape_model(lm), tmp_path / "hf") == "GPT2LMHeadModel"
    back = huggingface.load(tmp_path / "hf", context="line")
    ours_BTV = our_logits(lm, TEXT)
    torch.testing.assert_close(our_logits(back, TEXT)[..., : ours_BTV.shape[-1]], ours_BTV)


@pytest.mark.parametrize("architecture", DESIGNS)
@pytest.mark.parametrize("context", ["stream", "line"])
def test_there_and_back(transformers: Any, bpe: Tokenizer, tmp_path: Path, architecture: str, context: Any) -> None:
    lm = small(bpe, context, **DESIGNS[architecture])
    assert huggingface.export(lm, tmp_path / "hf") == architecture
    model = check_same(transformers, lm, tmp_path / "hf")
    assert type(model).__name__ == architecture
    back = huggingface.load(tmp_path / "hf", context=context)
    assert back.network.config.activation == lm.network.config.activation  # type: ignore[union-attr]
    back.save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    assert cr.generate(loaded, "The", cr.Greedy(), heal=False) == cr.generate(lm, "The", cr.Greedy(), heal=False)
    if context == "stream":
        # there every token is predicted, also <s>: its share of the probability is all that differs
        share = -our_logits(lm, TEXT)[0, :-1].log_softmax(-1).double()
        nats = share.gather(1, torch.from_numpy(lm.tokenizer.encode(TEXT).astype(np.int64))[:, None]).sum().item()
        assert back.log_prob(TEXT) == pytest.approx(-nats, rel=1e-5)
    assert loaded.provenance["architecture"] == architecture


@pytest.mark.parametrize("name", ["char", "word", "byte"])
def test_other_tokens(transformers: Any, tmp_path: Path, name: str) -> None:
    tokenizer = train_tokenizer(name, cr.Corpus.open("builtin:python"))
    lm = small(tokenizer, preset="llama")
    huggingface.export(lm, tmp_path / "hf")
    check_same(transformers, lm, tmp_path / "hf")


@pytest.mark.parametrize(
    "design",
    [
        {"preset": "gpt2", "positions": "sinusoidal", "bias": False, "activation": "relu2"},
        {"preset": "gpt2", "positions": "none", "gain": False, "tied": False, "scaled_embedding": True},
        {"preset": "gpt2", "activation": "relu", "hidden": 48},
        {"preset": "gpt2", "tied": False, "activation": "gelu_erf"},
        {"preset": "llama", "bias": True, "tied": True, "rotary_base": 500.0, "kv_heads": 1},
        {"preset": "llama", "activation": "relu2", "gain": False},
    ],
    ids=str,
)
def test_designs_beside_the_presets(
    transformers: Any, bpe: Tokenizer, tmp_path: Path, design: dict[str, Any]
) -> None:
    lm = small(bpe, **design)
    huggingface.export(lm, tmp_path / "hf")
    check_same(transformers, lm, tmp_path / "hf")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_their_shards_in_half_precision(transformers: Any, bpe: Tokenizer, tmp_path: Path, dtype: str) -> None:
    huggingface.export(small(bpe, preset="llama"), tmp_path / "one")
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "one", dtype=getattr(torch, dtype))
    model.save_pretrained(tmp_path / "many", max_shard_size="40KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "one" / name, tmp_path / "many")
    assert len(list((tmp_path / "many").glob("model-*.safetensors"))) > 2
    lm = huggingface.load(tmp_path / "many")
    wide = model.float().eval()
    with torch.no_grad():
        ids = torch.tensor([[lm.tokenizer.start, *lm.tokenizer.encode(TEXT).tolist()]])
        theirs_BTV = wide(input_ids=ids).logits
    torch.testing.assert_close(our_logits(lm, TEXT)[..., : theirs_BTV.shape[-1]], theirs_BTV, rtol=1e-5, atol=1e-5)
    shard = sorted((tmp_path / "many").glob("model-*.safetensors"))[1]
    shard.unlink()
    with pytest.raises(ForeignFileError, match=f"1 of .* shards are missing: {shard.name}"):
        huggingface.load(tmp_path / "many")


def test_a_folder_of_theirs(transformers: Any, bpe: Tokenizer, tmp_path: Path) -> None:
    """Made by transformers from the beginning, with a bos and an eos of its own."""
    huggingface.export(small(bpe, preset="llama"), tmp_path / "ours")
    described = transformers.Qwen3Config(
        vocab_size=512, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=16, max_position_embeddings=32, bos_token_id=500, eos_token_id=500,
    )  # fmt: skip
    torch.manual_seed(2)
    model = transformers.Qwen3ForCausalLM(described).eval()
    with torch.no_grad():
        for layer in model.model.layers:
            layer.self_attn.q_norm.weight.uniform_(0.5, 1.5)
            layer.self_attn.k_norm.weight.uniform_(0.5, 1.5)
    model.save_pretrained(tmp_path / "theirs")
    shutil.copy(tmp_path / "ours" / "tokenizer.json", tmp_path / "theirs")
    lm = huggingface.load(tmp_path / "theirs")
    assert (lm.tokenizer.vocab_size, lm.tokenizer.bos) == (513, 512)
    assert lm.network.config.head_size == 16 and lm.network.config.qk_gain
    ids = torch.tensor([[lm.tokenizer.start, *lm.tokenizer.encode(TEXT).tolist()]])
    with torch.no_grad():
        logits_TV = model(input_ids=ids).logits[0]
    nats = -logits_TV[:-1].log_softmax(-1).gather(1, ids[0, 1:, None]).double().sum().item()
    assert lm.log_prob(TEXT) == pytest.approx(-nats, rel=1e-5)
    lm.save(tmp_path / "saved")
    loaded = cr.load(tmp_path / "saved")
    assert loaded.log_prob(TEXT) == pytest.approx(-nats, rel=1e-5)
    huggingface.export(loaded, tmp_path / "back")
    back = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "back")
    with torch.no_grad():
        torch.testing.assert_close(back(input_ids=ids).logits[0, :, :512], logits_TV, rtol=1e-5, atol=1e-5)


def test_a_mistral_of_theirs(transformers: Any, bpe: Tokenizer, tmp_path: Path) -> None:
    """Without a sliding window it is a Llama by another name; with one that cuts texts, it is not."""
    huggingface.export(small(bpe, preset="llama"), tmp_path / "ours")
    torch.manual_seed(2)
    described = transformers.MistralConfig(
        vocab_size=bpe.vocab_size, hidden_size=32, intermediate_size=40, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=32, bos_token_id=500, eos_token_id=500, sliding_window=None,
        initializer_range=0.3, rope_theta=500.0,
    )  # fmt: skip
    model = transformers.MistralForCausalLM(described).eval()
    model.save_pretrained(tmp_path / "theirs")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tmp_path / "ours" / name, tmp_path / "theirs")
    lm = huggingface.load(tmp_path / "theirs")
    with torch.no_grad():
        ids = torch.tensor([[lm.tokenizer.start, *lm.tokenizer.encode(TEXT).tolist()]])
        theirs_BTV = model(input_ids=ids).logits
    torch.testing.assert_close(our_logits(lm, TEXT)[..., : theirs_BTV.shape[-1]], theirs_BTV, rtol=1e-5, atol=1e-5)
    config = json.loads((tmp_path / "theirs" / "config.json").read_text())
    for reach, is_read in ((32, True), (31, False)):
        (tmp_path / "theirs" / "config.json").write_text(json.dumps({**config, "sliding_window": reach}))
        if is_read:
            assert huggingface.load(tmp_path / "theirs").log_prob(TEXT) == lm.log_prob(TEXT)
        else:
            with pytest.raises(
                ForeignFileError, match=f"should be null, or max_position_embeddings, 32, not {reach}"
            ):
                huggingface.load(tmp_path / "theirs")


@pytest.fixture(scope="module")
def folder(bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("hf") / "llama"
    huggingface.export(small(bpe, preset="llama"), place)
    return place


@pytest.mark.parametrize(
    ("design", "message"),
    [
        ({"preset": "lecture"}, "a gpt2 has placement=pre, this network placement=post"),
        ({"preset": "bert"}, "placement=post; embedding_norm=False, this network embedding_norm=True"),
        ({"preset": "llama", "positions": "alibi"}, "a llama has positions=rotary, this network positions=alibi"),
        (
            {"preset": "llama", "activation": "gelu"},
            "a llama has activation=swiglu or relu2, this network activation=gelu",
        ),
        ({"preset": "fast", "bias": True}, "a qwen3 has bias=False, this network bias=True"),
        ({"preset": "gpt2", "kv_heads": 2}, "a gpt2 has kv_heads=4, this network kv_heads=2"),
        ({"preset": "llama", "scaled_embedding": True, "tied": True}, "scaled_embedding=False, this network"),
    ],
    ids=str,
)
def test_what_cannot_be_expressed(bpe: Tokenizer, tmp_path: Path, design: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        huggingface.export(small(bpe, **design), tmp_path / "hf")
    assert not (tmp_path / "hf").exists()


def test_other_kinds_and_places(bpe: Tokenizer, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="not a model of the kind ngram"):
        huggingface.export(cr.train("ngram", "a b\na c\n", order=2, tokenizer="word"), tmp_path / "hf")
    with pytest.raises(ChainruleError, match="exists; choose another one, or overwrite it"):
        huggingface.export(small(bpe, preset="llama"), folder)
    huggingface.export(small(bpe, preset="gpt2"), folder, overwrite=True)
    assert "GPT2" in (folder / "config.json").read_text()
    huggingface.export(small(bpe, preset="llama"), folder, overwrite=True)
