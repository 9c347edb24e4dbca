"""Surprisals on disk: where tokens end, and that they add up to what `evaluate` measures."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.comparison.surprisals import (
    MOST_BITS,
    Surprisals,
    read_sizes,
    read_surprisals,
    read_text,
    surprisals_of,
    token_ends,
    write_surprisals,
    write_text,
)
from chainrule.errors import DamagedFileError
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer

LINES = ["the cat sat on the mat", "the naïve café — a cat", "", "on the  mat, the cat"]
BLOCK = "".join(line + "\n" for line in LINES).encode()


def tokenizer(name: str) -> Tokenizer:
    return cr.train("ngram", LINES[:1] * 3, order=1, tokenizer=name, smoothing="laplace").tokenizer


@pytest.mark.parametrize("name", ["word", "word:unicode", "char", "byte", "bpe", "wordpiece"])
def test_tokens_end_where_their_text_ends(name: str) -> None:
    """Every known token ends with its own bytes, ends are in order, and line ends are where the lines end."""
    tokens = tokenizer(name)
    ids = tokens.encode_lines(BLOCK)
    ends = token_ends(tokens, BLOCK, ids)
    pieces = tokens.pieces()
    assert pieces is not None
    assert len(ends) == len(ids)
    assert (np.diff(ends) >= 0).all()
    for i, end in zip(ids.tolist(), ends.tolist(), strict=True):
        assert BLOCK[:end].endswith(pieces[i] if i != tokens.eos else b"\n")
    line_ends = [place + 1 for place, byte in enumerate(BLOCK) if byte == ord("\n")]
    assert ends[ids == tokens.eos].tolist() == line_ends


def test_words_that_are_unknown_have_their_place() -> None:
    ends = token_ends(tokenizer("word"), b"the dog sat\n", tokenizer("word").encode_lines(b"the dog sat\n"))
    assert ends.tolist() == [3, 7, 11, 12]


class WithoutBytes(Tokenizer):
    """A tokenizer that does not say which bytes a token has, as that of a plug-in may."""

    def __init__(self, of: Tokenizer) -> None:
        self.of, self.eos, self.unk, self.splitting = of, of.eos, of.unk, None

    def encode_lines(self, block: bytes) -> np.ndarray:
        return self.of.encode_lines(block)

    def encode_line(self, line: bytes) -> list[int]:
        return self.of.encode_line(line)

    def decode(self, ids) -> str:  # type: ignore[no-untyped-def]
        return self.of.decode(ids)

    def token(self, token_id: int) -> str:
        return self.of.token(token_id)

    def to_json(self) -> dict[str, object]:
        return {}


def test_tokens_without_known_bytes_are_placed_by_decoding() -> None:
    known = tokenizer("bpe")
    ids = known.encode_lines(b"the mat on the cat\nsat\n")
    expected = token_ends(known, b"the mat on the cat\nsat\n", ids)
    assert token_ends(WithoutBytes(known), b"the mat on the cat\nsat\n", ids).tolist() == expected.tolist()


@given(
    nats=st.lists(st.floats(0, 20, width=32), min_size=1, max_size=12),
    sizes=st.lists(st.integers(0, 4), min_size=12, max_size=12),
    place=st.integers(0, 48),
)
def test_bytes_share_the_surprisal_of_their_token(nats: list[float], sizes: list[int], place: int) -> None:
    """The sum up to a byte against a loop over bytes; a token without bytes counts with the one before it."""
    ends = np.cumsum(np.maximum(sizes[: len(nats)], [1] + [0] * (len(nats) - 1)))
    of_bytes: list[float] = []
    for value, size in zip(nats, np.diff(ends, prepend=0).tolist(), strict=True):
        if size:
            of_bytes += [value / size] * size
            last = size
        else:
            of_bytes[-last:] = [one + value / last for one in of_bytes[-last:]]
    place = min(place, len(of_bytes))
    found = Surprisals(np.asarray(nats, np.float32), ends).total_before(np.asarray([place]))
    assert found[0] == pytest.approx(sum(of_bytes[:place]), abs=1e-4)


def test_the_sum_is_what_evaluate_measures() -> None:
    lm = cr.train("ngram", LINES, order=2, tokenizer="bpe", smoothing="laplace")
    found = surprisals_of(lm, BLOCK)
    assert found.nats.sum() == pytest.approx(cr.evaluate(lm, LINES).nats * len(found.nats), rel=1e-5)
    assert found.total_before(np.asarray([len(BLOCK)]))[0] == pytest.approx(float(found.nats.sum()), rel=1e-5)


def test_impossible_tokens_count_as_much_as_can_be_drawn() -> None:
    found = Surprisals(np.asarray([1, math.inf], np.float32), np.asarray([2, 3]))
    assert found.total_before(np.asarray([2, 3])).tolist() == pytest.approx([1, 1 + MOST_BITS * math.log(2)])


def test_files_are_read_back_and_damage_is_named(tmp_path: Path) -> None:
    found = Surprisals(np.asarray([1, 2.5], np.float32), np.asarray([2, 3]))
    write_surprisals(tmp_path, "model", found)
    again = read_surprisals(tmp_path, "model", 3)
    assert again is not None
    assert again.nats.tolist() == [1, 2.5]
    assert again.ends.tolist() == [2, 3]
    assert read_surprisals(tmp_path, "other", 3) is None
    with pytest.raises(DamagedFileError, match="not the surprisals of"):
        read_surprisals(tmp_path, "model", 4)
    path = tmp_path / "surprisal" / "model.npz"
    packed = path.read_bytes()
    begin = packed.index(b"nats.npy") + len(b"nats.npy") + 20  # where numpy's compressed header stands
    for damaged in (b"PK\x03\x04 nonsense", packed[:begin] + b"\xff" * 40 + packed[begin + 40 :]):
        path.write_bytes(damaged)
        with pytest.raises(DamagedFileError, match="not a file of surprisals"):
            read_surprisals(tmp_path, "model", 3)
    quoted = tmp_path.rename(tmp_path.with_name("two words"))
    with pytest.raises(DamagedFileError, match=r"chainrule report '.*two words' --test FILE"):
        read_surprisals(quoted, "model", 3)


def test_damage_of_the_text_is_named(tmp_path: Path) -> None:
    block = write_text(tmp_path, Corpus.from_texts(["a b\n\nc"] * 10))
    assert read_text(tmp_path) == block and read_sizes(tmp_path, block).tolist() == [7] * 10
    for damaged in (np.asarray([7, 3]), np.asarray([70.0]), np.asarray([[70]]), np.asarray([71, -1])):
        np.save(tmp_path / "test.npy", damaged)
        with pytest.raises(DamagedFileError, match="not the sizes of the documents"):
            read_sizes(tmp_path, block)
    (tmp_path / "test.npy").write_bytes(b"nonsense")
    with pytest.raises(DamagedFileError, match="not the sizes of the documents"):
        read_sizes(tmp_path, block)
    (tmp_path / "test.npy").unlink()  # as of an earlier version: paragraphs
    assert read_sizes(tmp_path, block).tolist() == [5, *[7] * 9, 2]
    block = write_text(tmp_path, Corpus.from_texts(["a b\n\nc"] * 2))  # two documents are too few to draw
    assert read_sizes(tmp_path, block).tolist() == [5, 7, 2]
    (tmp_path / "test.txt").write_bytes(b"a \x80 b\n")
    with pytest.raises(DamagedFileError, match="not UTF-8"):
        read_text(tmp_path)


def test_the_files_of_a_folder_are_its_documents(tmp_path: Path) -> None:
    """Intervals are over documents: two paragraphs of one file are not independent."""
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number:02}.txt").write_text(f"one {number}\n\ntwo\n", encoding="utf-8")
    block = write_text(tmp_path, cr.Corpus.open(tmp_path / "texts"))
    sizes = read_sizes(tmp_path, block)
    assert len(sizes) == 30 and sizes.sum() == len(block)
