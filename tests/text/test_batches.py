"""Records in batches: the same records, whatever the size of the batches and of the blocks they are cut from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from chainrule.text import files
from chainrule.text.batches import record_batches
from chainrule.text.corpus import Corpus

LINES = ["a", "", "i love cats", "naïve", "end"]


def gathered(corpus: Corpus, size: int, *, per_line: bool = False) -> list[tuple[str, object, str, int, bool]]:
    """File, label, text, lines, and whether it begins anew, of every record."""
    return [
        (Path(batch.file).name, batch.labels[i], batch.text(i), int(batch.lines[i]), i in batch.starts)
        for batch in record_batches(corpus, size, per_line=per_line)
        for i in range(len(batch))
    ]


@pytest.mark.parametrize("per_line", [False, True])
@pytest.mark.parametrize(("size", "block_size"), [(1, 4), (5, 100), (1000, 1000), (7, 9)])
def test_the_records_of_a_text_are_its_numbered_lines(
    size: int, block_size: int, per_line: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK_SIZE", block_size)
    (tmp_path / "a.txt").write_text("\n".join(LINES), encoding="utf-8")
    (tmp_path / "b.txt").write_text("more\n", encoding="utf-8")
    expected = [("a.txt", n, line, 1, n == 1) for n, line in enumerate(LINES, start=1)]
    found = gathered(Corpus.open(tmp_path), size, per_line=per_line)
    assert found == [*expected, ("b.txt", 1, "more", 1, True)]


@pytest.mark.parametrize("size", [1, 10, 1000])
def test_the_records_of_jsonl_are_its_objects_or_their_lines(size: int, tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in ("one\ntwo", "", "three")))
    corpus = Corpus.open(path)
    assert gathered(corpus, size) == [("a.jsonl", 1, "one\ntwo", 2, True), ("a.jsonl", 3, "three", 1, True)]
    assert gathered(corpus, size, per_line=True) == [
        ("a.jsonl", "1:1", "one", 1, True),
        ("a.jsonl", "1:2", "two", 1, False),
        ("a.jsonl", "3:1", "three", 1, True),
    ]
    assert corpus.cleaning.skipped == 1


def test_batches_are_about_as_large_as_asked_for(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("0123456789\n" * 1000, encoding="utf-8")
    sizes = [len(batch.block) for batch in record_batches(Corpus.open(tmp_path), 100)]
    assert set(sizes[:-1]) == {110} and np.sum(sizes) == 11_000
