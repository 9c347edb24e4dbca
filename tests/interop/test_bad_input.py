"""What other programs wrote and cannot be taken: one line, exit code 2, and nothing is written."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.cli.running import Run

import chainrule as cr
from chainrule.interop import huggingface
from chainrule.interop.gguf import write_gguf
from chainrule.tokens.base import Tokenizer

from .conftest import small

Change: TypeAlias = Callable[[Path], object]
INDEX = "model.safetensors.index.json"
ARPA = r"""\data\
ngram 1=5

\1-grams:
-1	<unk>
-99	<s>
-0.5	</s>
-0.6	colourless
-0.6	ideas

\end\
"""


@pytest.fixture(scope="module")
def folder(bpe: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Llama in three shards."""
    folder = tmp_path_factory.mktemp("published") / "llama"
    huggingface.export(small(bpe, preset="llama"), folder)
    weights = load_file(folder / "model.safetensors")
    places = {
        name: f"model-{number % 3 + 1:05}-of-00003.safetensors" for number, name in enumerate(sorted(weights))
    }
    for place in sorted(set(places.values())):
        save_file({name: weights[name] for name in places if places[name] == place}, folder / place)
    (folder / INDEX).write_text(json.dumps({"weight_map": places}))
    (folder / "model.safetensors").unlink()
    return folder


@pytest.fixture
def refused(run: Run, tmp_path: Path) -> Callable[..., str]:
    """What a verb that must fail says."""

    def refused(*words: object) -> str:
        ran = run(*words, "--out", tmp_path / "out")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran.err
        assert not (tmp_path / "out").exists()
        return ran.err

    return refused


def says(name: str = "config.json", **values: Any) -> Change:
    """Another value in a file of a folder."""

    def change(folder: Path) -> None:
        described = json.loads((folder / name).read_text())
        (folder / name).write_text(json.dumps({**described, **values}))

    return change


def without_weights(folder: Path) -> None:
    for path in folder.glob("*.safetensors*"):
        path.unlink()


def pickle_weights(folder: Path) -> None:
    without_weights(folder)
    torch.save({"model.norm.weight": torch.ones(32)}, folder / "pytorch_model.bin")


def in_whole_numbers(folder: Path) -> None:
    for path in folder.glob("*.safetensors"):
        save_file({name: weight.to(torch.int8) for name, weight in load_file(path).items()}, path)


def with_one(value: float) -> Change:
    def change(folder: Path) -> None:
        path = folder / "model-00001-of-00003.safetensors"
        weights = load_file(path)
        next(iter(weights.values())).view(-1)[3] = value
        save_file(weights, path)

    return change


def with_code(folder: Path) -> None:
    says(auto_map={"AutoModelForCausalLM": "modeling.Model"})(folder)
    (folder / "modeling.py").write_text("raise AssertionError('this must never run')")


CHANGES: dict[str, tuple[Change, str]] = {
    "pickled weights": (pickle_weights, "its weights are pickled (pytorch_model.bin), which could run any code"),
    "code": (with_code, "its model is code in the folder (auto_map), which is never run"),
    "code of a tokenizer": (
        says("tokenizer_config.json", auto_map={"AutoTokenizer": ["tokens.Tokens", None]}),
        "its tokenizer is code in the folder (auto_map), which is never run",
    ),
    "a missing shard": (
        lambda folder: (folder / "model-00002-of-00003.safetensors").unlink(),
        "1 of 3 shards are missing: model-00002-of-00003.safetensors",
    ),
    "no index": (lambda folder: (folder / INDEX).unlink(), f"it has shards of weights, but no {INDEX}"),
    "no weights": (without_weights, "there are no weights in it: neither model.safetensors nor"),
    "weights that are none": (
        lambda folder: (folder / "model-00002-of-00003.safetensors").write_bytes(b"no weights"),
        "not a safetensors file",
    ),
    "architectures that are none": (says(architectures=7), "the architecture 7 is none of GPT2LMHeadModel"),
    "another architecture": (
        says(architectures=["MambaForCausalLM"]),
        "the architecture 'MambaForCausalLM' is none of GPT2LMHeadModel",
    ),
    "another activation": (says(hidden_act="gelu"), "hidden_act of a Llama should be silu, not 'gelu'"),
    "stretched positions": (
        says(rope_scaling={"rope_type": "yarn"}),
        "should not be stretched, but are by 'yarn'",
    ),
    "a post_processor that is none": (
        says("tokenizer.json", post_processor=7),
        "post_processor should be an object of objects, not int",
    ),
    "added tokens that are none": (
        says("tokenizer.json", added_tokens=["x"]),
        "a value in it is not what it should be (string indices must be integers",
    ),
    "a norm without its number": (says(rms_norm_eps=None), "rms_norm_eps should be a number or a truth value"),
    "a larger vocabulary": (says(vocab_size=600), "embed_tokens.weight should make [600, 32], not [502, 32]"),
    "a smaller vocabulary": (says(vocab_size=12), "its tokenizer has 502 tokens, its model 12"),
    "a vocabulary in words": (says(vocab_size="many"), "vocab_size should be a number of tokens"),
    "another width": (says(hidden_size=64, head_dim=None), "should make [502, 64], not [502, 32]"),
    "more layers": (says(num_hidden_layers=3), "should have 'model.layers.2.input_layernorm.weight'"),
    "fewer layers": (says(num_hidden_layers=1), "the configuration has no place for 'model.layers.1."),
    "a size in words": (says(hidden_size="wide"), "hidden_size should be a whole number, not 'wide'"),
    "a number that is none": (
        with_one(float("nan")),
        "should be finite numbers below 1e19, but has NaN or infinity",
    ),
    "a number that overflows": (with_one(1e30), "should be finite numbers below 1e19, but has 1e+30"),
    "a quantised model": (says(quantization_config={"bits": 4}), "its weights are quantised"),
    "quantised weights": (in_whole_numbers, "should be F32 or F16 or BF16 or F64, not I8: quantised weights"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_folders_of_transformers(
    folder: Path, tmp_path: Path, refused: Callable[..., str], run: Run, name: str
) -> None:
    change, message = CHANGES[name]
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    change(copy)
    said = refused("import", copy)
    assert message in said and str(copy) in said


def test_the_folder_that_is_changed_is_a_good_one(run: Run, folder: Path, tmp_path: Path) -> None:
    assert run("import", folder, "--out", tmp_path / "out").code == 0


@pytest.mark.parametrize(
    ("architecture", "sizes", "message"),
    [
        ("mamba", {}, "the architecture 'mamba' of this GGUF file is not llama"),
        ("llama", {}, "its tokenizer is None"),
        (
            "llama",
            {"tokenizer_model": "gpt2", "head_count": 2},
            "this GGUF file does not say llama.embedding_length",
        ),
        (
            "llama",
            {
                "tokenizer_model": "gpt2",
                "head_count": 3,
                "embedding_length": 8,
                "feed_forward_length": 8,
                "context_length": 8,
            },
            "this GGUF file does not say tokenizer.ggml.tokens",
        ),
    ],
)
def test_gguf_files(
    refused: Callable[..., str], tmp_path: Path, architecture: str, sizes: dict[str, Any], message: str
) -> None:
    gguf = pytest.importorskip("gguf", reason="gguf is not installed")
    writer = gguf.GGUFWriter(tmp_path / "m.gguf", architecture)
    writer.add_block_count(2)
    for name, value in sizes.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    assert message in refused("import", tmp_path / "m.gguf")


def test_gguf_strings_that_are_not_utf8(refused: Callable[..., str], bpe: Tokenizer, tmp_path: Path) -> None:
    pytest.importorskip("gguf", reason="gguf is not installed")
    path = tmp_path / "m.gguf"
    write_gguf(small(bpe, preset="llama"), path)
    content = path.read_bytes()
    assert content.count(b"gpt-2") == 1
    path.write_bytes(content.replace(b"gpt-2", b"gpt\xff2"))
    assert f"{path}: not a GGUF file that can be read: 'utf-8' codec can't decode" in refused("import", path)


def test_a_vocabulary_alone(refused: Callable[..., str], folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    shutil.copy(folder / "tokenizer.json", path)
    says("tokenizer.json", post_processor=["x"])(tmp_path)
    assert f"{path}: post_processor should be an object of objects, not list" in refused("import", path)


def test_an_arpa_file_of_another_vocabulary(run: Run, refused: Callable[..., str], tmp_path: Path) -> None:
    """Neither mixed with a model of other words, nor does it draft for one."""
    (tmp_path / "other.arpa").write_text(ARPA)
    other, own, text = tmp_path / "other", tmp_path / "own", tmp_path / "text.txt"
    assert run("import", tmp_path / "other.arpa", "--out", other).code == 0
    cr.train("ngram", "green ideas sleep\nideas sleep\n", order=2, tokenizer="word").save(own)
    text.write_text("green ideas sleep\n")
    for options in (["--held-out", text], ["--weight", "0.5"]):
        said = refused("mix", own, other, *options)
        assert "models to mix need one vocabulary, and their words differ" in said
        assert "'green', 'sleep'; 1 that only number 2 has, such as 'colourless'" in said
    drafted = run("generate", own, "--draft", other)
    assert (drafted.code, drafted.out, drafted.err.count("\n")) == (2, "", 1)
    assert "a draft needs the vocabulary of the model: the model has 6 word tokens, the draft 5" in drafted.err
    # what a person may have meant instead
    assert "chainrule convert" in run("generate", own, "--draft", tmp_path / "other.arpa").err
    merged = run("mix", own, other, "--merge", "--held-out", text, "--out", tmp_path / "merged")
    assert merged.code == 0, merged.err
