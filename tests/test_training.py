"""Tests of `chainrule.train`: the model and its provenance."""

from __future__ import annotations

import hashlib
import json
import platform
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.errors import CorpusError, SettingsError
from listening import Listening

LINES = [f"number {i} is {'even' if i % 2 == 0 else 'odd'}\n" for i in range(200)]
TEXT = "".join(LINES)


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def checksums(folder: Path) -> dict[str, str]:
    files = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"]
    return {name: entry["sha256"] for name, entry in files.items()}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "corpus.txt"
    file.write_text(TEXT, encoding="utf-8")
    return file


def test_text_in_memory_and_in_a_file_are_the_same_corpus(path: Path, tmp_path: Path) -> None:
    sources = {"memory": cr.Corpus.from_text(TEXT), "path": path, "text": TEXT, "list": [path]}
    found = []
    for name, source in sources.items():
        lm = cr.train("ngram", source, order=2, tokenizer="word")
        lm.save(tmp_path / name)
        sums = checksums(tmp_path / name)
        found.append((lm.provenance["corpus_sha256"], sums["model.safetensors"], sums["tokenizer.json"]))
    assert len(set(found)) == 1


def test_the_same_inputs_give_the_same_bytes(path: Path, tmp_path: Path) -> None:
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        cr.train("ngram", path, tokenizer="bpe", seed=seed, smoothing="jelinek-mercer").save(tmp_path / name)
    first, second, other = (checksums(tmp_path / name) for name in "abc")
    assert first["model.safetensors"] == second["model.safetensors"]
    assert first["tokenizer.json"] == second["tokenizer.json"]
    assert first["model.safetensors"] != other["model.safetensors"]  # other text is held out


def test_a_kind_that_tunes_holds_out_a_twentieth(path: Path) -> None:
    provenance = cr.train("ngram", path, smoothing="jelinek-mercer", tokenizer="word").provenance
    assert provenance["corpus_bytes"] == pytest.approx(0.95 * len(TEXT), abs=2 * max(map(len, LINES)))
    assert provenance["corpus_sha256"] != sha256(TEXT)
    assert provenance["held_out_sha256"] not in (None, sha256(TEXT), provenance["corpus_sha256"])


def test_what_is_held_out_is_not_trained_on() -> None:
    lines = [f"unique{i}\n" for i in range(100)]
    lm = cr.train("ngram", cr.Corpus.from_text("".join(lines)), smoothing="jelinek-mercer", tokenizer="word")
    known = [line for line in lines if lm.tokenizer.encode(line.strip()).tolist() != [lm.tokenizer.unk]]
    held_out = [line for line in lines if line not in known]
    assert 4 <= len(held_out) <= 6
    assert lm.provenance["corpus_sha256"] == sha256("".join(known))
    assert lm.provenance["held_out_sha256"] == sha256("".join(held_out))


@pytest.mark.parametrize("smoothing", ["mle", "laplace", "modified-kneser-ney"])
def test_a_kind_that_does_not_tune_trains_on_all(path: Path, smoothing: str) -> None:
    provenance = cr.train("ngram", path, smoothing=smoothing, tokenizer="word").provenance
    assert provenance["corpus_sha256"] == sha256(TEXT)
    assert provenance["held_out_sha256"] is None


@pytest.mark.parametrize("smoothing", ["mle", "jelinek-mercer"])
def test_held_out_text_that_is_given_leaves_the_corpus_whole(path: Path, smoothing: str) -> None:
    valid = cr.Corpus.from_text("number 7 is odd\n")
    provenance = cr.train("ngram", path, valid=valid, smoothing=smoothing, tokenizer="word").provenance
    assert provenance["corpus_sha256"] == sha256(TEXT)
    assert provenance["held_out_sha256"] == sha256("number 7 is odd\n")


def test_held_out_text_is_what_the_model_is_tuned_on(path: Path) -> None:
    texts = "number 7 is odd\nnumber 8 is even\n", "odd even number is\neven is odd odd\n"
    like, unlike = (
        cr.train("ngram", path, valid=cr.Corpus.from_text(text), smoothing="jelinek-mercer", tokenizer="word")
        for text in texts
    )
    assert like.perplexity("number 9 is odd") < unlike.perplexity("number 9 is odd")


def test_a_single_document_is_not_split() -> None:
    progress = Listening()
    text = cr.Corpus.from_text("i love cats\ni love cats\n")
    lm = cr.train("ngram", text, progress=progress, smoothing="jelinek-mercer", tokenizer="word")
    assert lm.provenance["held_out_sha256"] is None
    assert len(progress.notes) == 1
    assert "held-out" in progress.notes[0]


def test_provenance_says_what_is_needed_to_train_again(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = ["/usr/local/bin/chainrule", "train", "ngram", "--tokenizer", "word", "my corpus.txt"]
    monkeypatch.setattr(sys, "argv", command)
    lm = cr.train("ngram", path, smoothing="mle", seed=5, tokenizer="word")
    words = shlex.split(lm.provenance["command"])
    assert words == ["chainrule", "train", "ngram", "--tokenizer", "word", "my corpus.txt"]
    assert lm.provenance["corpus_bytes"] == len(TEXT)
    assert lm.provenance["corpus_tokens"] == len(TEXT.split()) + len(LINES)
    assert lm.provenance["seed"] == 5
    assert lm.provenance["chainrule"] == cr.__version__
    assert lm.provenance["python"] == platform.python_version()
    assert lm.provenance["numpy"] == version("numpy")
    assert lm.metrics["training_seconds"] >= 0


def test_a_tokenizer_can_be_an_object_a_choice_or_a_name(path: Path) -> None:
    made = cr.train("ngram", path, tokenizer="char").tokenizer
    assert cr.train("ngram", path, tokenizer=made).tokenizer is made
    chosen = cr.train("ngram", path, tokenizer=cr.TokenizerChoice("word", vocab_size=5), smoothing="mle").tokenizer
    assert (chosen.kind, chosen.vocab_size) == ("word", 5 + 3)


def test_settings_are_checked_before_the_text_is_read(tmp_path: Path) -> None:
    broken = tmp_path / "broken.txt"
    broken.write_bytes(b"\xff\n")
    with pytest.raises(SettingsError, match="order"):
        cr.train("ngram", broken, order="many", tokenizer="word")


def test_an_empty_corpus_is_an_error() -> None:
    with pytest.raises(CorpusError, match="empty"):
        cr.train("ngram", cr.Corpus.from_text(""), tokenizer="word")


def test_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(SettingsError, match="line or stream, not 'foo'"):
        cr.train("ngram", "a text", context="foo", tokenizer="word")
    with pytest.raises(SettingsError, match="line or stream, not 'foo'"):
        cr.compare("a text\nof two lines\nand a third\n" * 9, "never-made", context="foo")
    assert not Path("never-made").exists()
    with pytest.raises(SettingsError, match="vocab_size belongs to the tokenizer"):
        cr.train("ngram", "a text", vocab_size=1000, tokenizer="word")


def test_a_model_and_a_corpus_say_what_they_are() -> None:
    toy = cr.Corpus.from_text("i love cats\n")
    assert repr(cr.train("ngram", toy, smoothing="mle", tokenizer="word")) == "<NgramModel of 6 word tokens, line>"
    assert "i love" not in repr(toy)


def test_models_of_one_text_have_one_tokenizer_and_can_be_mixed() -> None:
    """A network holds lines out to tune on, an n-gram model does not; both learn the same subwords."""
    text = "\n".join(f"line {i} of {i * i} words and {'more ' * (i % 7)}words" for i in range(300))
    counted = cr.train("ngram", text, order=2)
    network = cr.train("lstm", text, steps=2)
    assert counted.tokenizer.to_json() == network.tokenizer.to_json()
    assert cr.mix([counted, network], text[:2000]).tokenizer.to_json() == counted.tokenizer.to_json()
