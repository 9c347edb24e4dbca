"""Masked models in transformers: their predictions are those of `BertForMaskedLM`, in both directions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

import chainrule as cr
from chainrule.contract.lm import start_token
from chainrule.errors import ChainruleError, ForeignFileError, SettingsError
from chainrule.interop import huggingface
from chainrule.masked.encoder_model import EncoderModel
from chainrule.masked.filling import gapped_ids
from chainrule.networks.transformer.masked import MaskedTransformer
from chainrule.networks.transformer.settings import MaskedSettings
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_tokenizer
from chainrule.tokens.vocabulary import Limit

from .conftest import both_ways

TEXT = "The value of [MASK] is <s> not [MASK]!"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *["the", "cat", "sat", "on", "mat", "dog", "##s", "!", "."]]


def masked(tokenizer: Tokenizer, context: Any = "line", **design: Any) -> EncoderModel:
    """A model with weights that give each token another probability, and gains and biases other than 1 and 0."""
    torch.manual_seed(5)
    sizes = {"preset": "bert", "layers": 2, "width": 32, "heads": 4, "window": 48, "initial_std": 0.3}
    settings = MaskedSettings(**{**sizes, "dropout": 0.0, **design})
    network = MaskedTransformer(settings, tokenizer.vocab_size)
    with torch.no_grad():
        for weight in network.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight), alpha=0.2)
    return EncoderModel(network, tokenizer, context, kind="masked", settings=settings)


@torch.no_grad()
def check_same(transformers: Any, model: EncoderModel, folder: Path, text: str = TEXT) -> Any:
    """Load a folder in transformers; its ids, logits and predictions for gaps are those of the model."""
    theirs = transformers.AutoModelForMaskedLM.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    row = gapped_ids(model, text)
    ids = tokenizer(text, return_tensors="pt")["input_ids"].long()
    is_gap = ids[0] == tokenizer.mask_token_id
    assert is_gap.sum() == text.count("[MASK]")
    ours = torch.tensor([start_token(model.tokenizer, model.context), *row.tolist()])
    assert torch.equal(ours[~is_gap], ids[0][~is_gap]) and bool((ours[is_gap] == model.mask).all())
    logits_TV = theirs(input_ids=ids).logits[0]
    # every token of the row, but for <s> and [MASK], which are not predicted
    features_TD = model.network(ours[None])[0]
    size = min(model.tokenizer.vocab_size, logits_TV.shape[1])
    tokens = [i for i in range(size) if i != model.tokenizer.bos]
    torch.testing.assert_close(logits_TV[:, tokens], model.network.logits(features_TD)[:, tokens], **CLOSE)
    filled_GV = model.fill(row[None])
    probabilities_GV = logits_TV[is_gap].softmax(-1)
    torch.testing.assert_close(probabilities_GV[:, tokens], filled_GV.exp()[:, tokens], **CLOSE)
    assert torch.equal(probabilities_GV.argmax(-1), filled_GV.argmax(-1))
    return theirs


CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.mark.parametrize("context", ["line", "stream"])
def test_there_and_back(transformers: Any, bpe: Tokenizer, tmp_path: Path, context: Any) -> None:
    model = masked(bpe, context)
    assert huggingface.export(model, tmp_path / "hf") == "BertForMaskedLM"
    assert type(check_same(transformers, model, tmp_path / "hf")).__name__ == "BertForMaskedLM"
    back = huggingface.load(tmp_path / "hf", context=context)
    back.save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    assert loaded.kind == "masked" and loaded.provenance["architecture"] == "BertForMaskedLM"
    check_same(transformers, loaded, tmp_path / "hf")
    ours, again = (cr.fill(one, "The [MASK] of [MASK]") for one in (model, loaded))
    assert [text.text for text in ours.texts] == [text.text for text in again.texts]
    huggingface.export(loaded, tmp_path / "again")
    check_same(transformers, model, tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text())["vocab_size"] == bpe.vocab_size + 1


@pytest.mark.parametrize("name", ["unigram", "wordpiece", "char", "word", "byte"])
def test_other_tokens(transformers: Any, tmp_path: Path, name: str) -> None:
    limits = [Limit(top=600)] if name in ("unigram", "wordpiece") else []
    model = masked(train_tokenizer(name, cr.Corpus.open("builtin:python"), *limits))
    for one in both_ways(model, tmp_path / "hf"):
        check_same(transformers, one, tmp_path / "hf")


@pytest.mark.parametrize(
    "design",
    [
        {"positions": "sinusoidal", "bias": False, "activation": "relu2"},
        {"positions": "none", "gain": False, "tied": False, "scaled_embedding": True, "activation": "gelu"},
    ],
    ids=str,
)
def test_designs_beside_the_preset(
    transformers: Any, bpe: Tokenizer, tmp_path: Path, design: dict[str, Any]
) -> None:
    model = masked(bpe, **design)
    for one in both_ways(model, tmp_path / "hf"):
        check_same(transformers, one, tmp_path / "hf")


def their_folder(transformers: Any, folder: Path, **values: Any) -> Any:
    """A model that transformers made from the beginning, with its own tokenizer; segments say something."""
    sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
    described = transformers.BertConfig(vocab_size=20, max_position_embeddings=24, **sizes, **values)
    torch.manual_seed(3)
    model = transformers.BertForMaskedLM(described).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight), alpha=0.2)
    model.save_pretrained(folder, max_shard_size="20KB")
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    transformers.BertTokenizerFast(vocab=str(folder / "vocab.txt")).save_pretrained(folder)
    return model


@pytest.mark.parametrize("values", [{}, {"hidden_act": "relu", "tie_word_embeddings": False}], ids=str)
def test_a_folder_of_theirs(transformers: Any, tmp_path: Path, values: dict[str, Any]) -> None:
    their_folder(transformers, tmp_path / "theirs", **values)
    assert len(list((tmp_path / "theirs").glob("model-*.safetensors"))) > 2
    model = huggingface.load(tmp_path / "theirs")
    text = "The cat [MASK] on the Dogs [MASK]"
    check_same(transformers, model, tmp_path / "theirs", text)
    model.save(tmp_path / "model")
    loaded = cr.load(tmp_path / "model")
    check_same(transformers, loaded, tmp_path / "theirs", text)
    huggingface.export(loaded, tmp_path / "back")
    check_same(transformers, loaded, tmp_path / "back", text)
    assert json.loads((tmp_path / "back" / "config.json").read_text())["vocab_size"] == 20
    pipeline = transformers.pipeline("fill-mask", str(tmp_path / "back"), top_k=3)
    theirs = [each["token"] for each in pipeline("the cat [MASK] on")]
    ids = gapped_ids(loaded, "the cat [MASK] on")[None]
    assert theirs == loaded.fill(ids)[0].argsort(descending=True)[:3].tolist()


def test_names_of_the_first_releases(transformers: Any, tmp_path: Path) -> None:
    """gamma and beta, and biases under one name only."""
    from safetensors.torch import load_file, save_file

    model = their_folder(transformers, tmp_path / "theirs")
    for path in (tmp_path / "theirs").glob("model*"):
        path.unlink()
    model.save_pretrained(tmp_path / "theirs")
    path = tmp_path / "theirs" / "model.safetensors"
    new = huggingface.load(tmp_path / "theirs")
    weights = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): weight
        for name, weight in load_file(path).items()
        if name != "cls.predictions.decoder.bias"
    }
    save_file(weights, path)
    old, ids = huggingface.load(tmp_path / "theirs"), gapped_ids(new, "the [MASK]")[None]
    assert torch.equal(old.fill(ids), new.fill(ids))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"hidden_act": "silu"}, "the activation of a BERT should be one of .*, not 'silu'"),
        ({"is_decoder": True}, "is_decoder of a BERT should be False, not True"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type of a BERT should be absolute"),
        ({"num_hidden_layers": 3}, r"should have 'bert\.encoder\.layer\.2"),
        ({"intermediate_size": 40}, "should make"),
        ({"hidden_size": None}, "hidden_size should be a whole number, not None"),
        ({"vocab_size": 12}, "its tokenizer has 14 tokens, its model 12"),
        ({"architectures": ["BertModel"]}, "the architecture 'BertModel' is none of .*BertForMaskedLM"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_folders(transformers: Any, tmp_path: Path, values: dict[str, Any], message: str) -> None:
    their_folder(transformers, tmp_path / "theirs")
    path = tmp_path / "theirs" / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    with pytest.raises(ForeignFileError, match=message) as caught:
        huggingface.load(tmp_path / "theirs")
    assert "\n" not in str(caught.value)


def test_tokenizers_that_lack_something(transformers: Any, tmp_path: Path) -> None:
    their_folder(transformers, tmp_path / "theirs")
    config = tmp_path / "theirs" / "tokenizer_config.json"
    found = json.loads(config.read_text())
    del found["mask_token"]
    config.write_text(json.dumps(found))
    assert huggingface.load(tmp_path / "theirs").tokenizer.mask == 4  # by its usual name
    config.write_text(json.dumps({**found, "mask_token": "<gap>"}))
    with pytest.raises(ChainruleError, match="a masked model needs a mask_token, which is not given"):
        huggingface.load(tmp_path / "theirs")
    (tmp_path / "theirs" / "tokenizer.json").unlink()
    with pytest.raises(ChainruleError, match=r"there is no tokenizer\.json in it"):
        huggingface.load(tmp_path / "theirs")


def test_what_cannot_be_expressed(bpe: Tokenizer, tmp_path: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        huggingface.export(masked(bpe, preset="fast"), tmp_path / "hf")
    for name in ("norm", "placement", "positions", "qk_norm", "embedding_norm", "head_layer"):
        assert f"{name}=" in str(caught.value)
    assert "activation" not in str(caught.value) and "\n" not in str(caught.value)
    assert str(caught.value).startswith(
        "a BertForMaskedLM has norm=layernorm, this network norm=rmsnorm; placement="
    )
    with pytest.raises(SettingsError, match=r"has kv_heads=4, this network kv_heads=2; head_size=8, this .*=6$"):
        huggingface.export(masked(bpe, kv_heads=2, head_size=6), tmp_path / "hf")
    with pytest.raises(SettingsError, match="has scaled_embedding=False, this network scaled_embedding=True"):
        huggingface.export(masked(bpe, scaled_embedding=True), tmp_path / "hf")
    with pytest.raises(SettingsError, match="head_layer has no gate"):
        masked(bpe, activation="swiglu")
    assert not (tmp_path / "hf").exists()
