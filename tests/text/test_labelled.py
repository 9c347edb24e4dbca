"""Labelled texts: from records, lines and memory; and one clear line for what is wrong with them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chainrule.errors import CorpusError
from chainrule.text.corpus import Corpus
from chainrule.text.labelled import Labelled, as_labelled, single_texts

PAIRS = [("the cat", "en"), ("die Katze", "de"), ("a dog", "en")]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rows = [{"body": text, "lang": label} for text, label in PAIRS]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "a.csv").write_text("lang,body\n" + "".join(f"{label},{text}\n" for text, label in PAIRS))
    (tmp_path / "a.tsv").write_text("lang\tbody\n" + "".join(f"{label}\t{text}\n" for text, label in PAIRS))
    (tmp_path / "a.txt").write_text("".join(f"{label}\t{text}\n" for text, label in PAIRS) + "\n")
    return tmp_path


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.tsv", "a.txt"])
def test_every_form_has_the_same_texts(folder: Path, name: str) -> None:
    found = Labelled.open(folder / name, field="body", label_field="lang")
    assert list(found) == PAIRS == list(as_labelled(PAIRS))
    assert found.labels == ["de", "en"] and found.fingerprint == as_labelled(PAIRS).fingerprint


def test_parquet(tmp_path: Path) -> None:
    pyarrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    table = pyarrow.table({"text": [text for text, _ in PAIRS], "label": [1, 0, 1]})
    parquet.write_table(table, tmp_path / "a.parquet")
    assert list(as_labelled(tmp_path / "a.parquet")) == [("the cat", "1"), ("die Katze", "0"), ("a dog", "1")]


def test_a_text_is_one_line_and_labels_may_have_spaces(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(json.dumps({"text": "two\n lines\tand a tab", "label": " science  fiction "}) + "\n")
    (one,) = as_labelled(path)
    assert one == ("two lines and a tab", "science fiction")
    assert b"".join(as_labelled(path).lines.blocks()) == b"science fiction\ttwo lines and a tab\n"


def test_records_without_text_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps({"text": text, "label": "x"}) + "\n" for text in ("", "  ", "word")))
    found = as_labelled(path)
    assert [one.text for one in found] == ["word"]
    assert found.origin is not None and found.origin.cleaning.skipped == 2


def test_every_label_is_in_the_training_part(tmp_path: Path) -> None:
    given = Labelled.of([(f"text {number}", f"label {number // 2}") for number in range(40)])
    parts = given.split({"train": 0.5, "valid": 0.5}, tmp_path)
    assert parts["train"].labels == given.labels and len(parts["valid"].texts) > 0
    assert sorted([*parts["train"], *parts["valid"]]) == sorted(given)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", '{"text": "a", "kind": "x"}\n', 'a.jsonl: there is no field "label"; there are: text, kind'),
        ("a.jsonl", '{"text": "a", "label": "x"}\n{"text": "b"}\n', 'record 2: it has no label: the field "label"'),
        ("a.csv", "text,label\na,x\nb,\n", 'a.csv, record 3: it has no label: the field "label" is empty'),
        ("a.txt", "en\ta cat\nno tab here\n", "a.txt, line 2: expected a label, a tab and a text, found 'no tab"),
        ("a.txt", "en\ta cat\nen\t \n", "a.txt, line 2: the text is empty"),
        ("a.txt", "\ta cat\n", "a.txt, line 1: the label is empty"),
        ("a.txt", "\n\n", "there are no labelled texts"),
    ],
)
def test_what_is_wrong_is_one_clear_line(tmp_path: Path, name: str, content: str, message: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(CorpusError) as caught:
        as_labelled(tmp_path / name)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_what_is_wrong_in_memory() -> None:
    for given, message in (
        ([("a",)], r"item 0: expected \(text, label\)"),
        ([("a", "x"), ("", "x")], "item 1: the text is empty"),
        ([("a", " ")], "item 0: the label is empty"),
        ([], "there are no labelled texts"),
    ):
        with pytest.raises(CorpusError, match=message):
            as_labelled(given)


def test_texts_to_classify(folder: Path) -> None:
    (folder / "b.txt").write_text("one text\n\nanother\tone\n")
    assert list(single_texts(Corpus.open(folder / "b.txt"))) == ["one text", "another one"]
    assert list(single_texts(Corpus.open(folder / "a.jsonl", fields="body"))) == [text for text, _ in PAIRS]
    assert list(single_texts(Corpus.from_text("one text"))) == ["one text"]
