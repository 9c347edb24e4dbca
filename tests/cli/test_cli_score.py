"""`chainrule score` on records: ids, fields, the worst of them, and the table on a terminal."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.cells import cell_len

from chainrule.cli.output import cut

from .running import TRAIN_NGRAM, Run, on_terminal, strict_json

REVIEWS = [
    {"id": "r1", "body": "i love cats", "stars": 5},
    {"id": "r2", "body": "zebras chase\nzebras, all day", "stars": 1},
    {"id": "r3", "body": None, "stars": 3},
    {"id": "r4", "body": "we love mice", "stars": 4},
]


@pytest.fixture
def reviews(tmp_path: Path) -> Path:
    path = tmp_path / "reviews.jsonl"
    path.write_text("".join(json.dumps(review) + "\n" for review in REVIEWS), encoding="utf-8")
    return path


def objects(out: str) -> list[dict[str, object]]:
    return [strict_json(line) for line in out.splitlines()]


def test_records_are_named_by_their_ids_and_those_without_text_counted(
    run: Run, model: Path, reviews: Path
) -> None:
    ran = run("score", model, reviews, "--field", "body", "--id-field", "id", "--json")
    assert ran.code == 0
    assert [(found["id"], found["text"]) for found in objects(ran.out)] == [
        (review["id"], review["body"]) for review in REVIEWS if review["body"]
    ]
    assert ran.err == f"note: {reviews}: records without body, skipped: 1\n"


def test_without_an_id_field_the_line_names_it(run: Run, model: Path, reviews: Path) -> None:
    ran = run("score", model, reviews, "--field", "body", "--json")
    assert [found["id"] for found in objects(ran.out)] == [1, 2, 4]
    lines = run("score", model, reviews, "--field", "body", "--per-line", "--json")
    assert [found["id"] for found in objects(lines.out)] == ["1:1", "2:1", "2:2", "4:1"]


@pytest.mark.parametrize("options", [[], ["--worst", "3"], ["--csv"], ["--json"]])
def test_a_text_without_records_is_said_to_have_none(
    run: Run, model: Path, tmp_path: Path, options: list[str]
) -> None:
    (tmp_path / "none.txt").touch()
    ran = run("score", model, tmp_path / "none.txt", *options)
    assert (ran.code, ran.out.count("\n")) == (0, int("--json" not in options))
    assert "none.txt is empty" in ran.err


def test_columns_of_a_record_are_one_line(run: Run, model: Path, reviews: Path) -> None:
    names, *rows = [row.split("\t") for row in run("score", model, reviews, "--field", "body").out.splitlines()]
    assert names == ["id", "bits_per_token", "bits", "tokens", "perplexity", "text"]
    assert [row[-1] for row in rows] == ["i love cats", "zebras chase\\nzebras, all day", "we love mice"]


def test_csv_is_what_the_csv_module_reads(run: Run, model: Path, reviews: Path) -> None:
    ran = run("score", model, reviews, "--field", "body", "--id-field", "id", "--csv")
    rows = list(csv.DictReader(io.StringIO(ran.out, newline="")))
    assert list(rows[0]) == ["id", "bits_per_token", "bits", "tokens", "perplexity", "text"]
    assert [(row["id"], row["text"]) for row in rows] == [(r["id"], r["body"]) for r in REVIEWS if r["body"]]


def test_the_worst_come_first_by_mean_or_by_total(run: Run, model: Path, tmp_path: Path) -> None:
    text = tmp_path / "a.txt"
    text.write_text("i love cats\nzebras\ni love zebras and i chase zebras and cats\nwe love mice\n")
    every = objects(run("score", model, text, "--json").out)
    for by, key in (("mean", "bits_per_token"), ("total", "bits")):
        worst = objects(run("score", model, text, "--worst", 3, "--by", by, "--json").out)
        assert worst == sorted(every, key=lambda found: -float(str(found[key])))[:3]
    assert objects(run("score", model, text, "--worst", 1, "--by", "mean", "--json").out)[0]["id"] == 2
    assert objects(run("score", model, text, "--worst", 1, "--by", "total", "--json").out)[0]["id"] == 3


def test_every_verb_reads_a_folder(run: Run, model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    (folder / "deep").mkdir(parents=True)
    (folder / "b.txt").write_text("i love cats\n" * 9, encoding="utf-8")
    (folder / "deep" / "a.md").write_text("i love mice\n" * 9, encoding="utf-8")
    for options, tokens in (([], 72), (["--files", "*.md"], 36)):
        for words in (
            ["evaluate", model, folder],
            ["tokenize", folder, "--tokenizer", "word"],
            [*TRAIN_NGRAM, folder, "--out", tmp_path / "m", "--overwrite"],
        ):
            assert run(*words, *options, "--json").json["tokens"] == tokens, words
        found = objects(run("score", model, folder, *options, "--json").out)
        assert sum(int(str(one["tokens"])) for one in found) == tokens
    for number in range(20):
        (folder / f"{number}.txt").write_text(f"text {number}\n", encoding="utf-8")
    compared = run("compare", folder, "--kind", "ngram", "--tokenizer", "word", "--out", tmp_path / "c", "--json")
    assert sum(part["tokens"] for part in compared.json["parts"].values()) == 72 + 20 * 3


def test_a_model_trained_on_fields_is_that_of_their_text(run: Run, tmp_path: Path) -> None:
    text, table = tmp_path / "a.txt", tmp_path / "a.csv"
    text.write_text("Cats\ni love cats\nMice\ncats chase mice\n", encoding="utf-8")
    table.write_text("id,title,body\n1,Cats,i love cats\n2,Mice,cats chase mice\n", encoding="utf-8")
    assert run(*TRAIN_NGRAM, text, "--out", tmp_path / "t").code == 0
    assert run(*TRAIN_NGRAM, table, "--field", "title,body", "--out", tmp_path / "f").code == 0
    sums = [
        strict_json((tmp_path / name / "manifest.json").read_text())["provenance"]["corpus_sha256"] for name in "tf"
    ]
    assert sums[0] == sums[1]


# -- the table --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_the_table_fits_the_terminal_and_breaks_no_word(model: Path, tmp_path: Path, columns: int) -> None:
    text = tmp_path / "app.log"
    lines = [
        f"2024-01-0{n} ERROR [db] connection pool exhausted after {n} seconds 接続 \x1b[31mred" for n in range(9)
    ]
    text.write_text("\n".join(lines), encoding="utf-8")
    shown = on_terminal(columns, "score", model, text, "--worst", 5).splitlines()
    assert len(shown) == 3 + 5
    assert max(map(cell_len, shown)) < columns
    assert ("perplexity" in shown[1]) == (columns > 60)
    assert "\x1b" not in "".join(shown)
    for line in shown[3:]:
        excerpt = line[line.index("2024") :]
        if columns == 200:
            assert excerpt.endswith("[31mred")
        else:
            assert excerpt.endswith("…")
            assert set(excerpt.removesuffix("…").split()) <= set(" ".join(lines).split())


@pytest.mark.parametrize(
    ("text", "width", "keep", "expected"),
    [
        ("all of it", 9, "start", "all of it"),
        ("all of it", 8, "start", "all of…"),
        ("all of it", 7, "start", "all of…"),
        ("all of it", 6, "start", "all…"),
        ("immeasurable", 5, "start", "imme…"),
        ("接続 接続", 6, "start", "接続…"),
        ("logs/2024/app.log:17", 12, "end", "…app.log:17"),
        ("logs/2024/app.log:17", 8, "end", "….log:17"),
        ("app.log:17", 10, "end", "app.log:17"),
    ],
)
def test_texts_are_cut_between_words(text: str, width: int, keep: str, expected: str) -> None:
    shown = cut(text, width, keep)  # type: ignore[arg-type]
    assert shown == expected
    assert cell_len(shown) <= width
