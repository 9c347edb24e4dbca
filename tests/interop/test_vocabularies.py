"""Tokenizers of other programs give the ids that those give, and ours the same ids there."""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path
from typing import Any

import pytest

from chainrule.errors import TokenizerError
from chainrule.interop.vocabularies.files import PATTERNS, read_tokenizer
from chainrule.interop.vocabularies.ours import published_files
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer, train_tokenizer
from chainrule.tokens.vocabulary import Limit

GPT2 = Path(os.environ.get("CHAINRULE_DATA", "."), "gpt2-vocab")
needs_gpt2 = pytest.mark.skipif(not GPT2.is_dir(), reason="CHAINRULE_DATA does not name a folder with gpt2-vocab")
TEXTS = [
    "Hello world",
    "Two lines\n\nand a gap, \n  indented\ttab \n",
    "don't we'll 12345 3.14 naïve 漢字 🙂🏽 e\u0301 <s> </s> <|endoftext|>\n\n\n",
    " leading, trailing  ",
]


@needs_gpt2
def test_gpt2_encodes_as_tiktoken() -> None:
    tiktoken = pytest.importorskip("tiktoken")
    load = pytest.importorskip("tiktoken.load")
    ranks = load.data_gym_to_mergeable_bpe_ranks(str(GPT2 / "vocab.bpe"), str(GPT2 / "encoder.json"))
    pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
    peer = tiktoken.Encoding(
        "gpt2", pat_str=pattern, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 50256}
    )
    tokenizer = read_tokenizer(GPT2)
    for text in TEXTS:
        assert tokenizer.encode(text).tolist() == peer.encode_ordinary(text)
        assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode("\n\n").tolist() == [628] and (tokenizer.eos, tokenizer.start) == (198, 50256)
    again = parse_tokenizer(dump_tokenizer(tokenizer), "here")
    assert again.encode(TEXTS[2]).tolist() == peer.encode_ordinary(TEXTS[2])


@pytest.mark.parametrize("pattern", [name for name in PATTERNS if name != "gpt2"])
def test_tiktoken_files(tmp_path: Path, pattern: str) -> None:
    tiktoken = pytest.importorskip("tiktoken")
    text = Path(__file__).read_text()
    educated = pytest.importorskip("tiktoken._educational")
    expression = PATTERNS[pattern]
    ranks = educated.bpe_train(text[:3000], 320, expression, visualise=None)
    lines = [base64.b64encode(token) + b" " + str(rank).encode() for token, rank in ranks.items()]
    (tmp_path / "v.tiktoken").write_bytes(b"\n".join(lines))
    peer = tiktoken.Encoding("x", pat_str=expression, mergeable_ranks=ranks, special_tokens={})
    tokenizer = read_tokenizer(tmp_path / "v.tiktoken", pattern=pattern)
    for sample in [*TEXTS, text]:
        assert tokenizer.encode(sample).tolist() == peer.encode_ordinary(sample)
    with pytest.raises(TokenizerError, match="does not say how text is split: name the pattern, gpt2, cl100k"):
        read_tokenizer(tmp_path / "v.tiktoken")


@pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
def test_sentencepiece_models(tmp_path: Path, algorithm: str) -> None:
    sentencepiece = pytest.importorskip("sentencepiece", reason="sentencepiece, the peer, is not installed")
    (tmp_path / "text").write_text("\n".join(line for line in Path(__file__).read_text().split("\n") if line))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=420, model_type=algorithm,
        byte_fallback=True, minloglevel=9, normalization_rule_name="identity" if algorithm == "bpe" else "nmt_nfkc",
        remove_extra_whitespaces=algorithm == "unigram", character_coverage=0.99,
    )  # fmt: skip
    peer = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    tokenizer = read_tokenizer(tmp_path / "m.model")
    for text in ("Hello world", "def read_tokenizer(path)", "naïve 漢字 🙂", "two  spaces here"):
        assert tokenizer.encode(text).tolist() == peer.encode(text)
        assert tokenizer.decode(peer.encode(text)) == peer.decode(peer.encode(text))
    assert (tokenizer.start, tokenizer.stop) == (1, 2)


def ours(name: str) -> Tokenizer:
    limit = None if name == "byte" else Limit(top=700 if name not in ("char", "word") else 60)
    return train_tokenizer(name, Corpus.open("builtin:python"), limit)


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("name", ["bpe", "wordpiece", "unigram", "byte", "char", "word"])
def test_ours_in_transformers(transformers: Any, tmp_path: Path, name: str, context: Any) -> None:
    tokenizer = ours(name)
    definition, config = published_files(tokenizer, context, 64)
    (tmp_path / "tokenizer.json").write_text(json.dumps(definition))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    peer = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in [*TEXTS, "the value of\nthe <unk>\n"]:
        ids = tokenizer.encode(text).tolist()
        assert peer(text, add_special_tokens=False)["input_ids"] == ids
        assert peer(text)["input_ids"] == [tokenizer.bos, *ids] == [peer.bos_token_id, *ids]
        assert peer.decode(ids) == tokenizer.decode(ids)
    assert peer.eos_token_id == (tokenizer.eos if context == "line" else tokenizer.bos)


def test_a_tokenizer_of_theirs_is_read(transformers: Any, tmp_path: Path) -> None:
    from tokenizers import ByteLevelBPETokenizer

    made = ByteLevelBPETokenizer()
    made.train_from_iterator(
        Path(__file__).read_text().split("\n\n"), vocab_size=400, special_tokens=["<|endoftext|>"]
    )
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|endoftext|>"}')
    tokenizer = read_tokenizer(tmp_path)
    for text in TEXTS[:2]:
        assert tokenizer.encode(text).tolist() == made.encode(text).ids
    assert (tokenizer.start, tokenizer.stop, tokenizer.bos) == (0, 0, 400)
    # line by line, a line end is a token of its own
    assert tokenizer.encode_lines(b"a\n\n").tolist() == [*tokenizer.encode("a"), tokenizer.eos, tokenizer.eos]


@pytest.mark.parametrize("name", ["WordLevel", "WordPiece", "Unigram", "BPE"])
def test_every_model_of_the_library(tmp_path: Path, name: str) -> None:
    """With a token that begins and ends a text, as the table of docs/interop.md says; without one it is refused."""
    tokenizers = pytest.importorskip("tokenizers")
    trainers = {"BPE": "BpeTrainer"}
    made = tokenizers.Tokenizer(getattr(tokenizers.models, name)())
    made.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = getattr(tokenizers.trainers, trainers.get(name, f"{name}Trainer"))
    made.train_from_iterator(
        TEXTS,
        trainer(special_tokens=["<e>"], show_progress=False, **({"unk_token": "<e>"} if name == "Unigram" else {})),
    )
    made.save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(TokenizerError, match="no token to begin a text with: neither bos_token nor eos_token"):
        read_tokenizer(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<e>"}')
    tokenizer = read_tokenizer(tmp_path)
    for text in TEXTS:
        assert tokenizer.encode(text).tolist() == made.encode(text, add_special_tokens=False).ids


def test_what_is_no_vocabulary(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text('{"model": {"type": "Strange"}}')
    with pytest.raises(TokenizerError, match="a tokenizer of type 'Strange' cannot be read"):
        read_tokenizer(tmp_path)
    (tmp_path / "m.model").write_bytes(b"\xff\xff not one")
    with pytest.raises(TokenizerError, match="not a model of SentencePiece"):
        read_tokenizer(tmp_path / "m.model")
    (tmp_path / "v.tiktoken").write_text("no base64 here\n")
    with pytest.raises(TokenizerError, match="expected a token in base64"):
        read_tokenizer(tmp_path / "v.tiktoken")
    with pytest.raises(TokenizerError, match="no such file"):
        read_tokenizer(tmp_path / "absent.model")
