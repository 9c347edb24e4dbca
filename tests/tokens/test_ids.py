"""A corpus as ids on disk: the counts, the type of the ids and their order."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path

import numpy as np
import pytest

from chainrule.errors import CorpusError
from chainrule.text import files
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Ids
from chainrule.tokens.char import ByteTokenizer
from chainrule.tokens.ids import encode_corpus
from chainrule.tokens.registry import train_tokenizer
from chainrule.tokens.vocabulary import Limit
from chainrule.tokens.words.tokenizer import WordTokenizer
from listening import Listening


def test_counts_of_a_worked_example(tmp_path: Path) -> None:
    """Words: the cat </s> </s> the <unk> </s>, where only the and cat are known."""
    text = "the cat\n\nthe naïveté"
    tokenizer = WordTokenizer([b"the", b"cat"])
    encoded = encode_corpus(Corpus.from_text(text), tokenizer, tmp_path / "ids")
    assert encoded.ids.tolist() == [3, 4, 2, 2, 3, 0, 2]
    assert encoded.tokens == 7
    assert encoded.lines == 3
    assert encoded.unknown == 1
    assert encoded.bytes == 22  # 20 characters, two of which take two bytes
    assert encoded.fingerprint == hashlib.sha256(text.encode()).hexdigest()


def test_the_file_is_the_ids_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "ids"
    encoded = encode_corpus(Corpus.from_text("ab\n"), ByteTokenizer(), path)
    assert path.read_bytes() == b"a\0b\0\n\0"  # uint16, lowest byte first
    assert isinstance(encoded.ids, np.memmap)
    assert not encoded.ids.flags.writeable
    assert encoded.unknown == 0


@pytest.mark.parametrize(("words", "dtype"), [(65_533, np.uint16), (65_534, np.uint32)])
def test_ids_take_two_bytes_up_to_65536_of_them(words: int, dtype: type, tmp_path: Path) -> None:
    """Three special ids and the words; the last id must survive."""
    tokenizer = WordTokenizer([b"w%d" % i for i in range(words)])
    assert tokenizer.id_dtype is dtype
    encoded = encode_corpus(Corpus.from_text(f"w0 w{words - 1}\n"), tokenizer, tmp_path / "ids")
    assert encoded.ids.dtype == dtype
    assert encoded.ids.tolist() == [3, words + 2, 2]


class SlowAtFirst(ByteTokenizer):
    """Its first block is done long after the others."""

    def encode_lines(self, block: bytes) -> Ids:
        if block.startswith(b"first"):
            time.sleep(0.2)
        return super().encode_lines(block)


def test_blocks_stay_in_order_though_threads_encode_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_SIZE", 100)
    text = b"first\n" + b"".join(b"%d\n" % i for i in range(2_000))
    (tmp_path / "a.txt").write_bytes(text)
    corpus = Corpus.open(tmp_path / "a.txt")
    assert len(list(corpus.blocks())) > 50
    encoded = encode_corpus(corpus, SlowAtFirst(), tmp_path / "ids")
    assert bytes(encoded.ids.tolist()) == text
    assert (encoded.lines, encoded.bytes) == (2_001, len(text))
    assert encoded.fingerprint == hashlib.sha256(text).hexdigest()


@pytest.mark.parametrize("name", ["word", "word:unicode", "char", "byte", "bpe"])
def test_threads_give_the_ids_of_one_thread(name: str, tmp_path: Path) -> None:
    """Three files of 1.2 MB: blocks large enough for every fast path, side by side."""
    for i, line in enumerate([b"i love cats %d\n", "naïve %d 漢字\n\n".encode(), b"don't stop %d\n"]):
        (tmp_path / f"{i}.txt").write_bytes(b"".join(line % (n % 1000) for n in range(80_000)))
    corpus = Corpus.open(f"{tmp_path}/*.txt")
    blocks = list(corpus.blocks())
    assert all(len(block) > 1 << 20 for block in blocks)
    tokenizer = train_tokenizer(name, Corpus(texts=(blocks[0][:50_000],)), Limit(top=600))
    encoded = encode_corpus(corpus, tokenizer, tmp_path / "ids")
    one_by_one = np.concatenate([tokenizer.encode_lines(block) for block in blocks])
    np.testing.assert_array_equal(encoded.ids, one_by_one)
    assert encoded.unknown == (0 if tokenizer.unk is None else np.count_nonzero(one_by_one == tokenizer.unk))
    assert encoded.lines == sum(block.count(b"\n") for block in blocks)


def test_a_file_without_final_newline_ends_its_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ab")
    (tmp_path / "b.txt").write_bytes(b"cd")
    corpus = Corpus.open(tmp_path / "a.txt", tmp_path / "b.txt")
    encoded = encode_corpus(corpus, ByteTokenizer(), tmp_path / "ids")
    assert bytes(encoded.ids.tolist()) == b"ab\ncd\n"
    assert encoded.lines == 2


def test_an_empty_corpus_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a.txt").touch()
    with pytest.raises(CorpusError, match=r"a\.txt is empty"):
        encode_corpus(Corpus.open(tmp_path / "a.txt"), ByteTokenizer(), tmp_path / "ids")


def test_replaced_text_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"caf\xe9 na\xefve\n")
    progress = Listening()
    corpus = Corpus.open(tmp_path / "a.txt", encoding_errors="replace")
    encoded = encode_corpus(corpus, ByteTokenizer(), tmp_path / "ids", progress)
    assert progress.notes == [f"{tmp_path / 'a.txt'}: not UTF-8, replaced by U+FFFD: 2"]
    assert progress.done == encoded.bytes == len("caf\ufffd na\ufffdve\n".encode())
