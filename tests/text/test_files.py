"""Bytes of a file become clean blocks of whole lines: UTF-8, LF, no byte-order mark."""

from __future__ import annotations

import gzip
import json
import sys
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.errors import CorpusError, EncodingError, MissingExtraError
from chainrule.text import files
from chainrule.text.corpus import Corpus
from chainrule.text.files import BLOCK_SIZE, Cleaning, clean_blocks

examples = settings(max_examples=50, deadline=None, derandomize=True)

Write = Callable[[str, bytes], Path]


def zstd(content: bytes) -> bytes:
    """One frame."""
    return pyarrow.compress(content, codec="zstd", asbytes=True)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(name: str, content: bytes) -> Path:
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def text_of(path: Path) -> bytes:
    return b"".join(Corpus.open(path).blocks())


def cleaned(pieces: list[bytes], cleaning: Cleaning | None = None) -> bytes:
    return b"".join(clean_blocks(pieces, "file", cleaning or Cleaning()))


def small_pieces(content: bytes, size: int) -> list[bytes]:
    return [content[i : i + size] for i in range(0, len(content), size)]


# -- what a clean text is ---------------------------------------------------------------------------------


def test_a_byte_order_mark_is_dropped(write: Write) -> None:
    assert text_of(write("a.txt", b"\xef\xbb\xbfcats\n")) == b"cats\n"


def test_a_byte_order_mark_is_dropped_only_at_the_start() -> None:
    assert cleaned(small_pieces(b"cats\n\xef\xbb\xbfdogs\n", 5)) == b"cats\n\xef\xbb\xbfdogs\n"


def test_a_file_that_is_only_a_byte_order_mark_has_no_blocks(write: Write) -> None:
    assert list(Corpus.open(write("a.txt", b"\xef\xbb\xbf")).blocks()) == []


def test_an_empty_file_has_no_blocks(write: Write) -> None:
    assert list(Corpus.open(write("a.txt", b"")).blocks()) == []


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_crlf_gives_the_blocks_of_the_lf_text_wherever_the_pieces_end(size: int) -> None:
    lf = b"i love cats\n\ni love dogs\nend"
    crlf = lf.replace(b"\n", b"\r\n")
    assert cleaned(small_pieces(crlf, size)) == lf


def test_crlf_and_lf_files_have_the_same_blocks_and_documents(write: Write) -> None:
    lf = write("lf.txt", b"a\n\nb\nc\n")
    crlf = write("crlf.txt", b"a\r\n\r\nb\r\nc\r\n")
    assert list(Corpus.open(crlf).blocks()) == list(Corpus.open(lf).blocks())
    assert list(Corpus.open(crlf).documents()) == list(Corpus.open(lf).documents()) == [b"a\n\n", b"b\nc\n"]


def test_a_lone_carriage_return_stays(write: Write) -> None:
    assert text_of(write("a.txt", b"one\rstill one\r\r\ntwo\r")) == b"one\rstill one\r\ntwo\r"


def test_nul_is_a_character_like_any_other(write: Write) -> None:
    assert text_of(write("a.txt", b"a\x00b\n\x00\n")) == b"a\x00b\n\x00\n"


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e"])
def test_only_lf_ends_a_line(separator: str, write: Write) -> None:
    text = f"one{separator}still one\ntwo\n".encode()
    corpus = Corpus.open(write("a.txt", text))
    assert list(corpus.documents()) == [f"one{separator}still one\n".encode(), b"two\n"]


def test_special_strings_are_text(write: Write) -> None:
    text = b"<s> </s> <unk> <|endoftext|>\n"
    assert text_of(write("a.txt", text)) == text


def test_every_block_is_whole_lines() -> None:
    lines = [b"x" * (i % 40) + b"\n" for i in range(200)]
    blocks = list(clean_blocks(small_pieces(b"".join(lines) + b"end", 64), "file", Cleaning()))
    assert len(blocks) > 10
    assert all(block.endswith(b"\n") for block in blocks[:-1])
    assert b"".join(blocks) == b"".join(lines) + b"end"


# -- large ------------------------------------------------------------------------------------------------


def test_a_file_of_several_blocks(write: Write) -> None:
    """12 MB in lines of 64 bytes are read in pieces of 4 MB, each a whole number of lines: three blocks."""
    content = (b"%063d\n" % 7) * (3 * BLOCK_SIZE // 64)
    blocks = list(Corpus.open(write("a.txt", content)).blocks())
    assert [len(block) for block in blocks] == [BLOCK_SIZE] * 3
    assert b"".join(blocks) == content


def test_a_line_of_50_mb_is_one_block_in_linear_time(write: Write) -> None:
    line = b"0123456789" * 5_000_000 + b"\n"
    path = write("a.txt", line + b"short\n")
    start = time.perf_counter()
    first, *rest = Corpus.open(path).blocks()
    assert time.perf_counter() - start < 5
    assert first[: len(line)] == line
    assert first[len(line) :] + b"".join(rest) == b"short\n"


def test_memory_does_not_grow_with_the_file(write: Write) -> None:
    """64 MB are read; at most 6 blocks' worth is ever held."""
    path = write("a.txt", (b"i love cats and i love dogs, too\n" * 1_986) * 1_024)
    assert path.stat().st_size > 64e6
    tracemalloc.start()
    try:
        size = sum(len(block) for block in Corpus.open(path).blocks())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert size == path.stat().st_size
    assert peak < 6 * BLOCK_SIZE


# -- text that is not UTF-8 -------------------------------------------------------------------------------


@pytest.mark.parametrize("block_size", [4, 16, BLOCK_SIZE])
@pytest.mark.parametrize(
    ("content", "line", "byte"),
    [
        (b"\xffabc\n", 1, 1),
        (b"abc\xff\n", 1, 4),
        (b"one\ntwo\nth\xffee\n", 3, 3),
        (b"one\r\ntwo\r\nth\xffee\r\n", 3, 3),
        (b"na\xc3\xafve na\xefve\n", 1, 10),  # bytes, not characters: "naïve na" is 9 bytes
        (b"one\n\n\n\xe2\x82\n", 4, 1),  # the first two of the three bytes of €
        (b"\n" * 40 + b"end \xe2\x82", 41, 5),  # cut off at the end of the file
        (b"a\n\xc0\xaf\n", 2, 1),  # an overlong /
        (b"a\nb\n\xed\xa0\x80\n", 3, 1),  # a surrogate
    ],
)
def test_strict_names_file_line_and_byte(
    content: bytes, line: int, byte: int, block_size: int, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_SIZE", block_size)
    path = write("a.txt", content)
    with pytest.raises(EncodingError) as caught:
        list(Corpus.open(path).blocks())
    error = caught.value
    assert (error.name, error.line, error.byte) == (str(path), line, byte)
    assert str(error).startswith(f"{path}: line {line}, byte {byte}: expected UTF-8, found ")
    assert "--encoding-errors replace" in str(error)


def test_the_byte_is_counted_in_the_file_as_it_is_with_its_byte_order_mark(write: Write) -> None:
    """EF BB BF 61 FF: the wrong byte is the fifth of the file's first line."""
    with pytest.raises(EncodingError) as caught:
        list(Corpus.open(write("a.txt", b"\xef\xbb\xbfa\xff\n")).blocks())
    assert (caught.value.line, caught.value.byte) == (1, 5)


def test_a_wrong_byte_far_into_a_line_and_a_file() -> None:
    """Validation goes in pieces of 64 KB; the place is right across them."""
    content = ("é" * 100_000 + "\n").encode() + b"x" * 70_001 + b"\x80" + b"\n"
    with pytest.raises(EncodingError) as caught:
        cleaned([content])
    assert (caught.value.line, caught.value.byte) == (2, 70_002)


def test_a_character_may_lie_across_the_pieces_of_validation() -> None:
    content = b"x" + "é".encode() * 100_000 + b"\n"  # 65,536 is odd from here: it falls inside an é
    assert cleaned([content]) == content


@pytest.mark.parametrize(
    ("content", "text", "replaced"),
    [
        (b"caf\xe9\n", "caf\ufffd\n", 1),
        (b"\xff\xff\n", "\ufffd\ufffd\n", 2),
        (b"\xe2\x82\n", "\ufffd\n", 1),  # the first two bytes of € are one stretch
        (b"end \xf0\x9f\x99", "end \ufffd", 1),
        ("was here \ufffd\n".encode() + b"\xff\n", "was here \ufffd\n\ufffd\n", 1),
        ("was here \ufffd\n".encode(), "was here \ufffd\n", 0),
    ],
)
def test_replacements_are_counted(content: bytes, text: str, replaced: int, write: Write) -> None:
    corpus = Corpus.open(write("a.txt", content), encoding_errors="replace")
    assert b"".join(corpus.blocks()).decode() == text
    assert corpus.replaced == replaced
    list(corpus.documents())
    assert corpus.replaced == replaced  # of the last reading, not of all


noise = st.lists(
    st.sampled_from(
        [b"\n", b"a", "é".encode(), "€".encode(), "🙂".encode(), "\ufffd".encode(), b"\xff", b"\xe2\x82"]
    )
    | st.binary(max_size=2).filter(lambda b: b"\r" not in b),
    max_size=30,
).map(b"".join)


@given(content=noise, size=st.integers(1, 20))
@example(content=b"\xe2\n\x82\xac", size=1)
@examples
def test_replace_gives_what_python_gives(content: bytes, size: int) -> None:
    cleaning = Cleaning("replace")
    text = cleaned(small_pieces(content, size), cleaning).decode()
    assert text == content.removeprefix(b"\xef\xbb\xbf").decode(errors="replace")
    assert cleaning.replaced == text.count("\ufffd") - content.count("\ufffd".encode())


# -- forms ------------------------------------------------------------------------------------------------

SENTENCES = b"i love cats\n\ni love dogs\n"


@pytest.mark.parametrize("name", ["a.txt", "a", "a.md", "A.TXT"])
def test_any_other_name_is_text(name: str, write: Write) -> None:
    assert text_of(write(name, SENTENCES)) == SENTENCES


@pytest.mark.parametrize("name", ["a.txt.gz", "a.gz", "a.TXT.GZ"])
def test_gzip(name: str, write: Write) -> None:
    assert text_of(write(name, gzip.compress(SENTENCES))) == SENTENCES


def test_gzip_of_several_members(write: Write) -> None:
    assert text_of(write("a.gz", gzip.compress(b"one\n") + gzip.compress(b"two\n"))) == b"one\ntwo\n"


def test_zstd(write: Write) -> None:
    assert text_of(write("a.txt.zst", zstd(SENTENCES))) == SENTENCES


def test_zstd_of_several_frames(write: Write) -> None:
    frames = zstd(b"one\n") + zstd(b"two, ") + zstd(b"still two\n")
    assert text_of(write("a.zst", frames)) == b"one\ntwo, still two\n"


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_a_file_that_is_not_compressed_as_its_name_says(suffix: str, write: Write) -> None:
    path = write(f"a.txt.{suffix}", b"plain text\n")
    with pytest.raises(CorpusError, match=f"a.txt.{suffix}: damaged or not "):
        text_of(path)


@pytest.mark.parametrize(("suffix", "compress"), [("gz", gzip.compress), ("zst", zstd)])
@pytest.mark.parametrize("kept", [0.5, 0.99])
def test_a_compressed_file_that_is_cut_off_is_an_error(
    suffix: str, compress: Callable[[bytes], bytes], kept: float, write: Write
) -> None:
    content = compress(b"".join(b"%d\n" % (i * i) for i in range(100_000)))
    with pytest.raises(CorpusError, match=f"a.{suffix}: damaged"):
        text_of(write(f"a.{suffix}", content[: int(len(content) * kept)]))


def jsonl(*records: object) -> bytes:
    return "".join(json.dumps(record) + "\n" for record in records).encode()


@pytest.mark.parametrize("name", ["a.jsonl", "a.ndjson", "a.jsonl.gz", "a.jsonl.zst"])
def test_jsonl_is_the_string_under_text(name: str, write: Write) -> None:
    content = jsonl({"text": "i love cats"}, {"id": 7, "text": "two\nlines\n"}, {"text": "naïve\r\nend"})
    if name.endswith("gz"):
        content = gzip.compress(content)
    if name.endswith("zst"):
        content = zstd(content)
    corpus = Corpus.open(write(name, content))
    assert list(corpus.documents()) == [b"i love cats\n", b"two\nlines\n", "naïve\nend\n".encode()]
    assert b"".join(corpus.blocks()) == "i love cats\ntwo\nlines\nnaïve\nend\n".encode()


def test_jsonl_blank_lines_are_no_records(write: Write) -> None:
    path = write("a.jsonl", b'\n{"text": "a"}\n  \n\n{"text": "b"}')
    assert list(Corpus.open(path).documents()) == [b"a\n", b"b\n"]


@pytest.mark.parametrize("block_size", [8, BLOCK_SIZE])
@pytest.mark.parametrize(
    ("bad", "found"),
    [
        (b"i love cats", "not JSON"),
        (b'{"text": "a"', "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"text": ["a"]}', 'the field "text" holds a list'),
        (b'{"text": {"a": 1}}', 'the field "text" holds an object'),
        (b'["text"]', "found a list"),
        (b'"text"', "found a text or a number"),
        (b"null", "found null"),
        (b"7.5", "found a text or a number"),
        (b"NaN", "found a text or a number"),
        (b"true", "found true or false"),
    ],
)
def test_a_jsonl_error_names_file_and_line(
    bad: bytes, found: str, block_size: int, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_SIZE", block_size)
    path = write("a.jsonl", b'{"text": "one"}\n\n{"text": "three"}\n' + bad + b"\n")
    with pytest.raises(CorpusError) as caught:
        text_of(path)
    assert str(caught.value).startswith(f"{path}: line 4: ")
    assert found in str(caught.value)


def test_half_a_character_in_jsonl_is_an_error_or_replaced(write: Write) -> None:
    r"""\ud83d alone is a JSON string but no text; its three bytes, written out, are each wrong."""
    path = write("a.jsonl", b'{"text": "fine"}\n{"text": "ab\\ud83d"}\n')
    with pytest.raises(EncodingError, match=r"a\.jsonl: line 2"):
        text_of(path)
    corpus = Corpus.open(path, encoding_errors="replace")
    assert list(corpus.documents()) == [b"fine\n", "ab\ufffd\ufffd\ufffd\n".encode()]
    assert corpus.replaced == 3


def parquet(path: Path, columns: dict[str, object]) -> Path:
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_parquet_is_the_column_text_without_its_nulls(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"id": [1, 2, 3], "text": ["i love cats", None, "two\r\nlines\n"]})
    corpus = Corpus.open(path)
    assert list(corpus.documents()) == [b"i love cats\n", b"two\nlines\n"]
    assert b"".join(corpus.blocks()) == b"i love cats\ntwo\nlines\n"


def test_parquet_of_many_rows_keeps_their_order(tmp_path: Path) -> None:
    path = parquet(tmp_path / "a.parquet", {"text": [str(i) for i in range(10_000)]})
    assert b"".join(Corpus.open(path).blocks()) == b"".join(b"%d\n" % i for i in range(10_000))


def test_a_file_that_is_no_parquet(write: Write) -> None:
    with pytest.raises(CorpusError, match=r"a\.parquet: not a parquet file"):
        text_of(write("a.parquet", b"plain text\n"))


@pytest.mark.parametrize(("library", "name"), [("pyarrow", "a.zst"), ("pyarrow", "a.parquet")])
def test_without_the_library_the_error_says_what_to_install(
    library: str, name: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(MissingExtraError, match=rf"{library}.*pip install 'chainrule\[files\]'"):
        text_of(write(name, b""))
