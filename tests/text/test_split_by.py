"""What is kept together in a split: files, paragraphs, lines; or the end of the text is held out."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainrule.errors import SettingsError
from chainrule.text.corpus import Corpus
from chainrule.text.overlap import repeated_bytes
from chainrule.text.split import By, split

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Forty files of paragraphs; every line has the number of its file."""
    (tmp_path / "source").mkdir()
    for number in range(40):
        paragraphs = "\n\n".join(f"file {number} paragraph {p}\nline of {number}, {p}" for p in range(6))
        (tmp_path / "source" / f"{number:02}.txt").write_text(paragraphs + "\n")
    return tmp_path


def lines_of(part: Corpus) -> list[str]:
    return b"".join(part.blocks()).decode().splitlines()


@pytest.mark.parametrize(
    ("by", "together"), [("auto", True), ("file", True), ("paragraph", False), ("line", False)]
)
def test_files_stay_whole_where_there_are_many(folder: Path, by: By, together: bool) -> None:
    parts = split(Corpus.open(folder / "source"), SHARES, folder, by=by)
    files = [{line.split()[1] for line in lines_of(part) if line.startswith("file")} for part in parts.values()]
    assert set.union(*files) == {str(number) for number in range(40)}
    assert (sum(map(len, files)) == 40) == together
    sizes = [part.size() for part in parts.values()]
    assert 0.7 < sizes[0] / sum(sizes) < 0.9
    if by == "line":
        found = lines_of(parts["test"])
        heads = {tuple(line.split()[1::2]) for line in found if line.startswith("file")}
        bodies = {tuple(line.removeprefix("line of ").split(", ")) for line in found if line.startswith("line")}
        assert heads - bodies  # a paragraph of which only one line is there


@pytest.mark.parametrize(("by", "lines"), [("file", 17), ("paragraph", 3), ("line", 1)])
def test_the_documents_of_a_part_are_those_that_were_split(folder: Path, by: By, lines: int) -> None:
    parts = split(Corpus.open(folder / "source"), SHARES, folder, by=by)
    for part in parts.values():
        documents = [*part.documents()]
        assert b"".join(documents) == b"".join(part.blocks())
        assert max(one.count(b"\n") for one in documents) == lines
    assert by != "file" or sum(len([*part.documents()]) for part in parts.values()) == 40


def test_a_file_that_is_most_of_the_text_is_split(folder: Path) -> None:
    (folder / "source" / "large.txt").write_text("\n\n".join(f"file large, {p}" for p in range(5000)) + "\n")
    parts = split(Corpus.open(folder / "source"), SHARES, folder)
    assert all(any("large" in line for line in lines_of(part)) for part in parts.values())


def test_by_time_the_end_is_held_out(folder: Path) -> None:
    parts = split(Corpus.open(folder / "source"), SHARES, folder, by="time")
    assert [line for part in parts.values() for line in lines_of(part)] == lines_of(Corpus.open(folder / "source"))


def test_another_way_is_refused(folder: Path) -> None:
    with pytest.raises(SettingsError, match="not by 'chapter'"):
        split(Corpus.open(folder / "source"), SHARES, folder, by="chapter")  # type: ignore[arg-type]


def test_repeated_lines_are_counted_once_for_each_copy_in_the_test_text() -> None:
    long, other = "a line that is long enough to be no accident", "another line that is long enough to count"
    test = Corpus.from_text(f"{long}\n{long}\nshort\n{other}\n")
    assert repeated_bytes(test, Corpus.from_text(f"short\n{long}\n{long}\n")) == 2 * (len(long) + 1)
    assert repeated_bytes(test, Corpus.from_text("short\n")) == 0


def test_lines_that_differ_in_case_digits_and_spaces_are_near_duplicates() -> None:
    test = Corpus.from_text("2026-11-18 GET /index.html  took 31 ms\n")
    assert repeated_bytes(test, Corpus.from_text("2026-11-17 get /index.html took 55 ms\n")) == 39
    assert repeated_bytes(test, Corpus.from_text("2026-11-17 get /other.html took 55 ms\n")) == 0
