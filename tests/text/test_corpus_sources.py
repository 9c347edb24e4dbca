"""A folder as a corpus: which of its files, in which order."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.errors import CorpusError, EncodingError
from chainrule.text.corpus import Corpus


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Files of several forms, some hidden, some deep."""
    for name, content in {
        "b.txt": "b",  # no LF at its end
        "a/z.txt": "z\n",
        "a/y.md": "y\n",
        "a-b.txt": "a-b\n",
        "c.jsonl": '{"text": "c"}\n',
        "d.csv": "text\nd\n",
        ".hidden": "no\n",
        ".git/config": "no\n",
        "a/.cache/x.txt": "no\n",
    }.items():
        path = tmp_path / "corpus" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    return tmp_path / "corpus"


def documents(*sources: Path, files: tuple[str, ...] = ()) -> list[bytes]:
    return list(Corpus.open(*sources, files=files).documents())


def test_its_files_come_by_name_and_each_by_its_form(folder: Path) -> None:
    """Names are compared part by part, so that the files of a folder stay together: a/y.md before a-b.txt."""
    assert documents(folder) == [b"y\n", b"z\n", b"a-b\n", b"b", b"c\n", b"d\n"]


def test_documents_and_lines_do_not_run_across_files(folder: Path) -> None:
    (folder / "c.txt").write_text("c, and on\n", encoding="utf-8")
    assert documents(folder, files=("[bc].txt",)) == [b"b", b"c, and on\n"]
    lines = [line for block in Corpus.open(folder, files=("[bc].txt",)).blocks() for line in block.splitlines()]
    assert lines == [b"b", b"c, and on"]


@pytest.mark.parametrize(
    ("patterns", "expected"),
    [
        (("*.txt",), [b"z\n", b"a-b\n", b"b"]),
        (("*.txt", "*.md"), [b"y\n", b"z\n", b"a-b\n", b"b"]),
        (("a/*",), [b"y\n", b"z\n"]),
        (("c.*",), [b"c\n"]),
    ],
)
def test_patterns_choose_among_its_files(folder: Path, patterns: tuple[str, ...], expected: list[bytes]) -> None:
    assert documents(folder, files=patterns) == expected


def test_a_pattern_is_for_folders_only(folder: Path) -> None:
    assert documents(folder / "b.txt", folder, files=("*.md",)) == [b"b", b"y\n"]


def test_without_a_match_the_error_says_what_there_is(folder: Path) -> None:
    with pytest.raises(CorpusError) as caught:
        Corpus.open(folder, files=("*.html", "*.xml"))
    assert str(caught.value) == (
        f"{folder}: none of its 6 files matches '*.html' or '*.xml' (they have .txt: 3, .md: 1, .jsonl: 1, .csv: 1)"
    )


def test_an_empty_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / ".hidden").touch()
    with pytest.raises(CorpusError, match="there is no file in this folder"):
        Corpus.open(tmp_path)


def test_a_model_is_no_text_and_one_inside_is_left_out(folder: Path) -> None:
    lm = cr.train("ngram", Corpus.open(folder), order=2, tokenizer="word")
    lm.save(folder / "model")
    run = folder / "model.run"
    run.mkdir()
    (run / "metrics.jsonl").write_text('{"step": 1}\n', encoding="utf-8")
    assert documents(folder) == [b"y\n", b"z\n", b"a-b\n", b"b", b"c\n", b"d\n"]
    for ours in (folder / "model", run):
        with pytest.raises(CorpusError, match=r"is a model folder|is the folder of a training run"):
            Corpus.open(ours)


def test_a_manifest_of_something_else_is_text(folder: Path) -> None:
    (folder / "a" / "manifest.json").write_text('{"name": "an app"}\n', encoding="utf-8")
    assert b'{"name": "an app"}\n' in documents(folder)


@pytest.mark.parametrize(
    ("content", "message"), [(b"\x89PNG\r\n", "found a PNG picture"), (b"\x7fELF\x02", "found a program")]
)
def test_a_binary_file_is_named(folder: Path, content: bytes, message: str) -> None:
    (folder / "a" / "odd").write_bytes(content)
    with pytest.raises(CorpusError, match=rf"a/odd: expected text, {message}"):
        documents(folder)
    (folder / "a" / "odd").write_bytes(b"\x00\xfe")
    with pytest.raises(EncodingError, match="a/odd: line 1, byte 2"):
        documents(folder)


def test_links_to_folders_are_not_followed_and_pipes_are_passed_over(folder: Path) -> None:
    (folder / "loop").symlink_to(folder)
    (folder / "nowhere").symlink_to(folder / "missing")
    (folder / "linked.txt").symlink_to(folder / "a" / "z.txt")
    os.mkfifo(folder / "pipe")
    assert documents(folder, files=("l*", "n*", "p*")) == [b"z\n"]


def test_a_changed_folder_is_another_text(folder: Path) -> None:
    """What a run remembers of its corpus, to refuse to go on with another, is a hash of all its text."""
    before, same = (
        cr.train("ngram", Corpus.open(folder), order=2, tokenizer="word").provenance["corpus_sha256"]
        for _ in range(2)
    )
    (folder / "new.txt").write_text("new\n", encoding="utf-8")
    after = cr.train("ngram", Corpus.open(folder), order=2, tokenizer="word").provenance["corpus_sha256"]
    assert before == same != after
