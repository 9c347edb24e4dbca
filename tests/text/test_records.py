"""Records of jsonl, CSV and parquet files: which fields are text, and what becomes of those that are not there."""

from __future__ import annotations

import csv
import gzip
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chainrule.errors import CorpusError, EncodingError
from chainrule.text import files, records
from chainrule.text.corpus import Corpus
from chainrule.text.files import Cleaning
from chainrule.text.records import Fields, Record, read_records
from listening import Listening

examples = settings(max_examples=100, deadline=None, derandomize=True)

Rows = Sequence[dict[str, Any]]


def write_jsonl(path: Path, rows: Rows) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def write_csv(path: Path, rows: Rows) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), delimiter="\t" if path.suffix == ".tsv" else ",")
        writer.writeheader()
        writer.writerows(rows)


def write_parquet(path: Path, rows: Rows) -> None:
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)


WRITERS: dict[str, Callable[[Path, Rows], None]] = {
    "jsonl": write_jsonl,
    "csv": write_csv,
    "tsv": write_csv,
    "parquet": write_parquet,
}
Made = Callable[[Rows], Path]


@pytest.fixture(params=WRITERS)
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """A file of the same rows, in each form."""

    def made(rows: Rows) -> Path:
        path = tmp_path / f"a.{request.param}"
        WRITERS[request.param](path, rows)
        return path

    return made


def read(path: Path, *text: str, id: str | None = None) -> list[Record]:  # noqa: A002
    return list(read_records(path, str(path), Fields.parse(text, id), Cleaning()))


def texts(path: Path, *text: str) -> list[str]:
    return [record.text.decode() for record in read(path, *text)]


# -- every form -------------------------------------------------------------------------------------------


def test_one_field_is_the_text(made: Made) -> None:
    path = made([{"id": "x", "body": "i love cats"}, {"id": "y", "body": 'say "hi",\tor\ntwo lines'}])
    assert texts(path, "body") == ["i love cats\n", 'say "hi",\tor\ntwo lines\n']


def test_several_fields_begin_a_new_line_each(made: Made) -> None:
    path = made([{"title": "Cats", "body": "i love\ncats\n"}])
    for words in (["title,body"], ["title", "body"], ["title , body"]):
        assert texts(path, *words) == ["Cats\ni love\ncats\n"]
    assert texts(path, "body,title") == ["i love\ncats\nCats\n"]


def test_an_id_names_the_record_and_else_its_line_or_row(made: Made) -> None:
    path = made([{"id": "x", "body": "a\nb"}, {"id": "7", "body": "c"}])
    assert [record.label for record in read(path, "body", id="id")] == ["x", "7"]
    first, second = {".jsonl": (1, 2), ".parquet": (1, 2)}.get(path.suffix, (2, 4))  # a header; two lines
    assert [record.label for record in read(path, "body")] == [first, second]


def test_what_is_empty_is_skipped_and_counted_and_said_once(made: Made) -> None:
    path = made([{"text": "a"}, {"text": ""}, {"text": "b"}, {"text": ""}])
    corpus, progress = Corpus.open(path), Listening()
    for _ in range(2):
        assert b"".join(corpus.blocks()) == b"a\nb\n"
        assert corpus.cleaning.skipped == 2
        corpus.note_losses(progress)
    assert progress.notes == [f"{path}: records without text, skipped: 2"]


def test_of_several_fields_those_that_are_empty_add_nothing(made: Made) -> None:
    path = made([{"title": "", "body": "a"}, {"title": "b", "body": ""}, {"title": "", "body": ""}])
    assert texts(path, "title,body") == ["a\n", "b\n"]


def test_a_field_that_is_not_there_is_an_error_that_names_those_that_are(made: Made) -> None:
    path = made([{"id": "x", "body": "a"}])
    with pytest.raises(CorpusError) as caught:
        read(path)
    assert str(caught.value) == (
        f'{path}: there is no field "text"; there are: id, body (choose with --field, --id-field '
        'and --label-field; in Python with Corpus.open(path, fields="..."))'
    )
    assert list(Corpus.open(path, fields="body").documents()) == [b"a\n"]
    assert list(Corpus.open(path, fields=["id", "body"]).documents()) == [b"x\na\n"]
    with pytest.raises(CorpusError, match='no field "title" and "key"; there are: id, body'):
        read(path, "body,title", id="key")


def test_numbers_are_text(made: Made) -> None:
    path = made([{"text": 3, "id": 12}, {"text": -45, "id": 13}])
    assert [(str(record.label), record.text) for record in read(path, id="id")] == [
        ("12", b"3\n"),
        ("13", b"-45\n"),
    ]


def test_line_ends_and_marks_are_cleaned_inside_a_field(made: Made) -> None:
    path = made([{"text": "\ufeffone\r\ntwo\n"}])
    assert texts(path) == ["one\ntwo\n"]


@pytest.mark.parametrize("words", [["a,,b"], [""], ["a", " "]])
def test_an_empty_name_is_an_error(words: list[str]) -> None:
    with pytest.raises(CorpusError, match="name of a field is empty"):
        Fields.parse(words)


# -- jsonl ------------------------------------------------------------------------------------------------


def jsonl(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "a.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def test_numbers_in_json_are_as_they_are_spelled(tmp_path: Path) -> None:
    spelled = ["3.10", "1e400", "-0", "123456789012345678901234567890", "NaN"]
    path = jsonl(tmp_path, *(f'{{"text": {number}}}' for number in spelled), '{"text": true}', '{"text": false}')
    assert texts(path) == [f"{number}\n" for number in [*spelled, "true", "false"]]


def test_dots_lead_into_objects_unless_a_key_has_them(tmp_path: Path) -> None:
    path = jsonl(tmp_path, '{"meta": {"a": {"b": "deep"}}}', '{"meta.a.b": "plain", "meta": {"a": {"b": "no"}}}')
    assert texts(path, "meta.a.b") == ["deep\n", "plain\n"]
    with pytest.raises(CorpusError, match=r"there are: meta\.a, meta\.a\.b "):
        read(path, "meta.b")


def test_null_and_absent_are_skipped_where_others_have_the_field(tmp_path: Path) -> None:
    path = jsonl(tmp_path, '{"id": 1}', '{"text": null}', '{"text": "a"}', '{"body": "b"}')
    cleaning = Cleaning()
    assert [record[:2] for record in read_records(path, "a", Fields(), cleaning)] == [(3, b"a\n")]
    assert cleaning.skipped == 3


def test_a_record_without_an_id_has_its_line(tmp_path: Path) -> None:
    path = jsonl(tmp_path, '{"text": "a", "id": "x"}', '{"text": "b"}', '{"text": "c", "id": null}')
    assert [record.label for record in read(path, id="id")] == ["x", 2, 3]


def test_a_wrong_name_is_found_long_before_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "_ENOUGH_OBJECTS", 3)
    path = jsonl(tmp_path, *['{"body": "a"}'] * 3, "this is not JSON")
    with pytest.raises(CorpusError, match='no field "text"; there are: body'):
        read(path)
    with pytest.raises(CorpusError, match=r"line 4: not JSON: Expecting value \(character 1\)$"):
        read(path, "body")


def test_an_empty_file_lacks_no_field(tmp_path: Path) -> None:
    assert read(jsonl(tmp_path)) == read(jsonl(tmp_path, "", " ")) == []


# -- CSV --------------------------------------------------------------------------------------------------

cells = st.text(st.sampled_from('ab",;\t é\u2028\x85\n🙂') | st.characters(codec="utf-8"), max_size=8).map(
    lambda text: text.replace("\r", "")
)


@given(rows=st.lists(st.tuples(cells, cells), max_size=6), block_size=st.integers(1, 30))
@example(rows=[('"', '\n"\n'), ("a,b", "c;d")], block_size=1)
@examples
def test_what_python_writes_is_read_back(rows: list[tuple[str, str]], block_size: int) -> None:
    """Quotes, separators and line ends in cells, wherever the blocks end."""
    out = io.StringIO(newline="")
    writer = csv.writer(out, quoting=csv.QUOTE_ALL)
    writer.writerows([("id", "text"), *rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "BLOCK_SIZE", block_size)
        patch.setattr(records, "raw_pieces", lambda path, name: _pieces(out.getvalue().encode(), block_size))
        found = [record.text.decode() for record in read_records(Path("a.csv"), "a", Fields(), Cleaning())]
    expected = [text.removeprefix("\ufeff") for _, text in rows if text]
    assert found == [text if text.endswith("\n") else f"{text}\n" for text in expected]


def _pieces(content: bytes, size: int) -> list[bytes]:
    return [content[i : i + size] for i in range(0, len(content), size)]


def test_semicolons_separate_where_the_first_row_has_no_comma(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id;text\n1;eins, zwei\n", encoding="utf-8")
    assert texts(path) == ["eins, zwei\n"]


def test_compressed_csv_with_a_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b'\xef\xbb\xbfid,text\r\n1,"two\r\nlines"\r\n\r\n2,end'))
    assert [record[:2] for record in read(path)] == [(2, b"two\nlines\n"), (5, b"end\n")]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,text\n1,a\n2,b,c\n", "line 3: 3 cells, where the first row has 2"),
        ("id,text\n1,a\n2\n", "line 3: 1 cells, where the first row has 2"),
        ('id,text\n1,"a"b\n', "line 2: .*quote in it doubled"),
        ('id,text\n1,a\n2,"never\nclosed\n', "line 3: .*quote in it doubled"),
    ],
)
def test_a_row_that_is_wrong_is_located(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(CorpusError, match=message):
        read(path)


def test_a_byte_that_is_not_utf8_is_located_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b'id,text\n1,"two\nlines"\n2,caf\xe9\n')
    with pytest.raises(EncodingError) as caught:
        read(path)
    assert (caught.value.line, caught.value.byte) == (4, 6)


def test_a_long_cell_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("text\n" + "word " * 100_000 + "\n", encoding="utf-8")
    assert len(texts(path)[0]) == 500_001  # more than the csv module takes unless told otherwise


# -- parquet ----------------------------------------------------------------------------------------------


def parquet(tmp_path: Path, columns: dict[str, object]) -> Path:
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def test_dots_lead_into_struct_columns(tmp_path: Path) -> None:
    path = parquet(tmp_path, {"meta": [{"a": {"b": "x"}, "c": 1}, None, {"a": None, "c": 3}], "id": [7, 8, 9]})
    assert [record[:2] for record in read(path, "meta.a.b,meta.c", id="id")] == [("7", b"x\n1\n"), ("9", b"3\n")]
    with pytest.raises(CorpusError, match=r"there are: meta\.a\.b, meta\.c, id "):
        read(path, "meta.d")


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (pyarrow.array([1.5, None]), ["1.5\n"]),
        (pyarrow.array([True, False]), ["true\n", "false\n"]),
        (pyarrow.array(["a", "b", "a"]).dictionary_encode(), ["a\n", "b\n", "a\n"]),
        (pyarrow.array(["a"], pyarrow.large_string()), ["a\n"]),
        (pyarrow.array([None, None]), []),
    ],
)
def test_columns_of_every_kind_of_text(values: object, expected: list[str], tmp_path: Path) -> None:
    assert texts(parquet(tmp_path, {"text": values})) == expected


@pytest.mark.parametrize("values", [[["a"]], [b"a"]])
def test_a_column_that_is_no_text(values: object, tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=r'a\.parquet: the field "text" holds .*, not text or numbers'):
        read(parquet(tmp_path, {"text": values}))
