"""A corpus in shards: the same lines, and the same file of ids, wherever the cuts are."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainrule.errors import CorpusError, EncodingError
from chainrule.text.corpus import Corpus
from chainrule.text.shards import shards_of
from chainrule.tokens import ids
from chainrule.tokens.char import ByteTokenizer
from chainrule.tokens.ids import encode_corpus, learn_and_encode
from chainrule.tokens.vocabulary import Limit

from .conftest import Threads

TEXTS = {
    "plain": "one two\nthree\n\nfour five six\n",
    "no end": "one two\nthree",
    "carriage returns": "one\r\ntwo two\r\n\r\nthree\r\n",
    "marks": "\ufeffone\n\ufefftwo\n\ufeffthree\n",
    "long": "a " * 40 + "\n" + "é" * 30 + "\n\n\n" + "word " * 20,
}


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 16, 100])
@pytest.mark.parametrize("name", TEXTS)
def test_shards_have_the_lines_of_the_corpus(tmp_path: Path, name: str, size: int) -> None:
    (tmp_path / "t.txt").write_bytes(TEXTS[name].encode())
    corpus = Corpus.open(tmp_path / "t.txt")
    found = b"".join(block for shard in shards_of(corpus, size) for block in shard.blocks())
    assert found == b"".join(corpus.blocks())


@pytest.fixture
def files(tmp_path: Path) -> Corpus:
    """Files that end with and without a line end, one of records among them."""
    folder = tmp_path / "files"
    folder.mkdir()
    for number, text in enumerate(TEXTS.values()):
        (folder / f"{number}.txt").write_bytes(text.encode() * 3)
    (folder / "z.jsonl").write_text(
        '{"text": "one more"}\n{"other": 1}\n{"text": "two\\nlines"}\n', encoding="utf-8"
    )
    return Corpus.open(folder)


@pytest.mark.parametrize("shard_bytes", [10, 64, 1 << 20])
@pytest.mark.parametrize("limit", [Limit(), Limit(min_count=3), Limit(top=4)])
def test_words_and_ids_are_those_of_one_pass(
    tmp_path: Path,
    files: Corpus,
    threads: Threads,
    shard_bytes: int,
    limit: Limit,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(ids, "SHARD_BYTES", shard_bytes)
    tokenizer, expected = learn_and_encode(files, limit, "whitespace", tmp_path / "expected")
    path = tmp_path / "found"
    found, text = learn_and_encode(files, limit, "whitespace", path, executor=threads)
    assert found.spellings == tokenizer.spellings
    assert path.read_bytes() == (tmp_path / "expected").read_bytes()
    assert (text.lines, text.bytes, text.unknown) == (expected.lines, expected.bytes, expected.unknown)
    assert text.fingerprint == expected.fingerprint
    assert files.cleaning.skipped == 1
    assert list((tmp_path / "work").iterdir()) == []


@pytest.mark.parametrize("corpus", ["files", "memory"])
def test_ids_of_a_known_tokenizer_are_the_same(
    tmp_path: Path, files: Corpus, threads: Threads, corpus: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "SHARD_BYTES", 11)
    text = files if corpus == "files" else Corpus.from_texts(["one two", "", "three\nfour"])
    expected = encode_corpus(text, ByteTokenizer(), tmp_path / "expected")
    found = encode_corpus(text, ByteTokenizer(), tmp_path / "found", executor=threads)
    assert (tmp_path / "found").read_bytes() == (tmp_path / "expected").read_bytes()
    assert (found.bytes, found.fingerprint) == (expected.bytes, expected.fingerprint)


def test_a_bad_byte_is_named_by_its_line_in_the_file(
    tmp_path: Path, threads: Threads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ids, "SHARD_BYTES", 40)
    (tmp_path / "t.txt").write_bytes(b"good\n" * 50 + b"b\xffd\n" + b"good\n" * 50)
    with pytest.raises(EncodingError, match="line 51, byte 2"):
        encode_corpus(Corpus.open(tmp_path / "t.txt"), ByteTokenizer(), tmp_path / "ids", executor=threads)


def test_nothing_is_refused(tmp_path: Path, threads: Threads) -> None:
    (tmp_path / "t.txt").write_bytes(b"")
    with pytest.raises(CorpusError, match="is empty"):
        encode_corpus(Corpus.open(tmp_path / "t.txt"), ByteTokenizer(), tmp_path / "ids", executor=threads)
