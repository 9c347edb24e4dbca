"""A corpus: where its text comes from, and that blocks and documents are the same bytes."""

from __future__ import annotations

import io
import os
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.errors import CorpusError, EncodingError
from chainrule.text import corpus as corpus_module
from chainrule.text import files
from chainrule.text.corpus import Corpus
from chainrule.tokens.char import ByteTokenizer

examples = settings(max_examples=50, deadline=None, derandomize=True)


def write(folder: Path, **contents: bytes) -> None:
    for name, content in contents.items():
        (folder / f"{name}.txt").write_bytes(content)


# -- sources ----------------------------------------------------------------------------------------------


def test_files_in_the_order_given(tmp_path: Path) -> None:
    write(tmp_path, a=b"a\n", b=b"b\n")
    corpus = Corpus.open(tmp_path / "b.txt", tmp_path / "a.txt")
    assert list(corpus.documents()) == [b"b\n", b"a\n"]


def test_a_pattern_names_its_files_in_order_of_name(tmp_path: Path) -> None:
    write(tmp_path, c=b"c\n", a=b"a\n", b=b"b\n")
    (tmp_path / "a.md").write_bytes(b"not this\n")
    (tmp_path / "folder.txt").mkdir()
    assert list(Corpus.open(f"{tmp_path}/*.txt").documents()) == [b"a\n", b"b\n", b"c\n"]


def test_two_stars_search_folders(tmp_path: Path) -> None:
    (tmp_path / "x" / "y").mkdir(parents=True)
    write(tmp_path / "x" / "y", deep=b"deep\n")
    assert list(Corpus.open(f"{tmp_path}/**/*.txt").documents()) == [b"deep\n"]


def test_a_file_whose_name_looks_like_a_pattern(tmp_path: Path) -> None:
    (tmp_path / "a[1].txt").write_bytes(b"this\n")
    (tmp_path / "a1.txt").write_bytes(b"not this\n")
    assert list(Corpus.open(f"{tmp_path}/a[1].txt").documents()) == [b"this\n"]


def test_forms_may_be_mixed(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"plain")
    (tmp_path / "b.jsonl").write_bytes(b'{"text": "record"}\n')
    corpus = Corpus.open(tmp_path / "a.txt", tmp_path / "b.jsonl", tmp_path / "a.txt")
    assert list(corpus.documents()) == [b"plain", b"record\n", b"plain"]


def test_standard_input_can_be_read_any_number_of_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"\xef\xbb\xbfi love cats\r\nend")))
    corpus = Corpus.open("-")
    for _ in range(2):
        assert b"".join(corpus.blocks()) == b"i love cats\nend"
    assert list(corpus.documents()) == [b"i love cats\n", b"end"]


def test_an_error_in_standard_input_calls_it_that(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=io.BytesIO(b"one\n\xff\n")))
    with pytest.raises(EncodingError, match=r"^standard input: line 2, byte 1: "):
        list(Corpus.open("-").blocks())


def test_standard_input_without_bytes_is_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("naïve\n"))
    assert list(Corpus.open("-").blocks()) == ["naïve\n".encode()]


def test_builtin_python_is_the_language_reference() -> None:
    corpus = Corpus.open("builtin:python")
    assert Corpus.open(Path("builtin:python")) == corpus
    documents = list(corpus.documents())
    assert len(documents) > 50  # a document per topic
    assert all(document.endswith(b"\n\n") for document in documents)
    assert b"".join(corpus.blocks()) == b"".join(documents)
    assert corpus.size() == sum(map(len, documents)) > 100_000
    assert any(b"assert_stmt" in document for document in documents)


def test_builtin_shakespeare_is_the_plays_by_speech() -> None:
    corpus = Corpus.open("builtin:shakespeare")
    documents = list(corpus.documents())
    text = b"".join(documents)
    assert len(text) == corpus.size() == 1_115_394
    assert len(set(text.decode())) == 65
    assert len(documents) == 7222
    assert documents[1] == b"All:\nSpeak, speak.\n\n"
    assert corpus.name == "builtin:shakespeare"


def test_an_unknown_builtin_text_names_those_there_are() -> None:
    with pytest.raises(CorpusError, match="there is builtin:shakespeare, builtin:python, builtin:gaps"):
        Corpus.open("builtin:milton")


@pytest.mark.parametrize(
    ("sources", "message"),
    [
        ([], "no text given"),
        (["builtin:python", "a.txt"], "cannot be mixed"),
        (["nothing.txt"], "nothing.txt: no such file"),
        (["nothing*.txt"], "no file matches 'nothing\\*.txt'"),
        (["."], "there is no file in this folder"),
    ],
)
def test_sources_that_are_wrong(
    sources: list[str], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CorpusError, match=message):
        Corpus.open(*sources)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may read every file")
def test_a_file_that_may_not_be_read(tmp_path: Path) -> None:
    write(tmp_path, a=b"a\n")
    (tmp_path / "a.txt").chmod(0)
    with pytest.raises(CorpusError, match=r"a.txt: Permission denied"):
        list(Corpus.open(tmp_path / "a.txt").blocks())


def test_size_is_known_where_nothing_hides_it(tmp_path: Path) -> None:
    write(tmp_path, a=b"12345\n", b=b"123")
    assert Corpus.open(tmp_path / "a.txt", tmp_path / "b.txt").size() == 6 + 3
    assert Corpus.from_text("naïve\n").size() == 7
    for hidden in ("a.gz", "a.zst", "a.jsonl", "a.parquet"):
        (tmp_path / hidden).touch()
        assert Corpus.open(tmp_path / "a.txt", tmp_path / hidden).size() is None


# -- lines and documents ----------------------------------------------------------------------------------


def test_the_last_line_of_a_file_never_joins_the_first_of_the_next(tmp_path: Path) -> None:
    write(tmp_path, a=b"i love", b=b"cats", c=b"end\n")
    corpus = Corpus.open(f"{tmp_path}/*.txt")
    lines = [line for block in corpus.blocks() for line in block.splitlines()]
    assert lines == [b"i love", b"cats", b"end"]
    tokenizer = ByteTokenizer()
    ids = [i for block in corpus.blocks() for i in tokenizer.encode_lines(block)]
    assert bytes(ids) == b"i love\ncats\nend\n"


def test_records_never_join_lines_with_files(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"text": "one"}\n{"text": "two"}')
    (tmp_path / "b.txt").write_bytes(b"three")
    blocks = list(Corpus.open(tmp_path / "a.jsonl", tmp_path / "b.txt").blocks())
    assert [line for block in blocks for line in block.splitlines()] == [b"one", b"two", b"three"]


@pytest.mark.parametrize(
    ("text", "documents"),
    [
        ("a\nb\n", ["a\n", "b\n"]),  # no blank line: each line is a document
        ("a\nb\n\nc\n", ["a\nb\n\n", "c\n"]),
        ("a\n\n\n\nb", ["a\n\n\n\n", "b"]),
        ("a\n \t\nb\n", ["a\n \t\n", "b\n"]),  # a line of white space is blank
        ("a\n\nb\n\n", ["a\n\n", "b\n\n"]),
        ("\n\na\n", ["\n\n", "a\n"]),
        ("a", ["a"]),
        ("\n", ["\n"]),
        ("", []),
    ],
)
def test_documents_end_at_blank_lines(text: str, documents: list[str]) -> None:
    assert [document.decode() for document in Corpus.from_text(text).documents()] == documents


lines = st.lists(
    st.sampled_from(["", "", " ", "\t ", "a", "i love cats", "naïve 🙂", "\x0b", "\u2028"]), max_size=25
)


@given(lines=lines, ended=st.booleans(), block_size=st.integers(1, 40))
@example(lines=["a", "", "", "b"], ended=True, block_size=2)
@example(lines=["a", " ", "b"], ended=False, block_size=3)
@examples
def test_blocks_and_documents_are_the_same_bytes(lines: list[str], ended: bool, block_size: int) -> None:
    text = ("\n".join(lines) + "\n" * ended).encode()
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "a.txt")
        path.write_bytes(text)
        patch.setattr(files, "BLOCK_SIZE", block_size)
        patch.setattr(corpus_module, "BLOCK_SIZE", block_size)
        from_file = Corpus.open(path)
        in_memory = Corpus.from_text(text.decode())
        for corpus in (from_file, in_memory):
            assert b"".join(corpus.blocks()) == text
            assert b"".join(corpus.documents()) == text
            assert all(corpus.documents())  # none is empty


@given(lines=lines.map(lambda lines: ["a", "", *lines]), block_size=st.integers(3, 40))
@examples
def test_the_size_of_blocks_does_not_move_the_ends_of_documents(lines: list[str], block_size: int) -> None:
    """Where the first block already shows a blank line, documents are the same for every block size."""
    text = "\n".join(lines)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder, "a.txt")
        path.write_bytes(text.encode())
        whole = list(Corpus.open(path).documents())
        patch.setattr(files, "BLOCK_SIZE", block_size)
        assert list(Corpus.open(path).documents()) == whole


def test_a_long_document_is_cut_at_line_ends_in_linear_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """500 blocks of 4 KB make one document; searched again with each block, they would be 500 MB."""
    monkeypatch.setattr(files, "BLOCK_SIZE", 1 << 12)
    body = b"i love cats\n" * (500 * (1 << 12) // 12)
    write(tmp_path, a=b"a title\n\n" * 5 + body)
    start = time.perf_counter()
    documents = list(Corpus.open(tmp_path / "a.txt").documents())
    assert time.perf_counter() - start < 1
    assert documents[:5] == [b"a title\n\n"] * 5
    assert b"".join(documents[5:]) == body
    assert all(document.endswith(b"\n") and len(document) < (1 << 16) + 12 for document in documents[5:])
    assert len(documents) < 5 + 40


def test_a_stray_blank_line_separates_nothing() -> None:
    """One blank line in a thousand: the lines are the documents, as they are without it."""
    lines = [f"line {n}\n" for n in range(1000)]
    documents = list(Corpus.from_text("".join(lines[:400]) + "\n" + "".join(lines[400:])).documents())
    assert len(documents) == 1001
    assert (
        len(
            list(Corpus.from_text("".join(line + "\n" * (n % 50 == 0) for n, line in enumerate(lines))).documents())
        )
        == 21
    )
