"""`chainrule filter`: what is kept, in a file or on standard output, its counts, and one line for bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .running import Fails, Run

LINES = "i love cats\nzebras zebras\n\nwe chase mice\nzebras love\n"
FLUENT = "i love cats\n\nwe chase mice\n"


@pytest.fixture
def text(tmp_path: Path) -> Path:
    (tmp_path / "a.txt").write_text(LINES)
    return tmp_path / "a.txt"


def test_kept_lines_go_to_standard_output_and_counts_to_standard_error(
    run_alone: Run, model: Path, text: Path
) -> None:
    ran = run_alone("filter", model, text, "--keep", "0.5")
    assert (ran.code, ran.out) == (0, FLUENT)
    assert "kept 2 of 4 documents (50.0%), 26 of 52 bytes (50.0%), of perplexity" in ran.err
    assert "quantiles: 5% " in ran.err
    piped = run_alone("filter", model, "-", "--max-perplexity", "20", stdin=LINES.encode())
    assert (piped.code, piped.out) == (0, FLUENT)
    spooled = run_alone("filter", model, "-", "--keep", "0.5", "--json", stdin=LINES.encode())
    assert (spooled.code, spooled.out, json.loads(spooled.err)["dropped"]) == (0, FLUENT, 2)


def test_kept_records_go_to_a_file_and_counts_to_standard_output(run: Run, model: Path, tmp_path: Path) -> None:
    records = [{"id": n, "body": line} for n, line in enumerate(LINES.splitlines())]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    out = tmp_path / "out.jsonl"
    words = "filter", model, tmp_path / "a.jsonl", "--field", "body", "--keep", "0.5", "--out", out, "--json"
    found = run(*words).json
    assert (found["documents"], found["kept"], found["dropped"], found["without_text"]) == (4, 2, 2, 1)
    assert [json.loads(line) for line in out.read_text().splitlines()] == [records[0], records[3]]
    assert "exists" in run(*words).err
    assert run(*words, "--overwrite").code == 0


def test_bad_input_is_one_line(fails: Fails, model: Path, text: Path, tmp_path: Path) -> None:
    assert "choose --keep SHARE or --max-perplexity P" in fails("filter", model, text)
    assert "choose --keep" in fails("filter", model, text, "--keep", "0.5", "--max-perplexity", "9")
    assert "'--keep': 1.5 is not in the range" in fails("filter", model, text, "--keep", "1.5")
    assert "no such file" in fails("filter", model, tmp_path / "none.txt", "--keep", "0.5")
    (tmp_path / "blank.txt").write_text("\n \n")
    assert "there is no document in it to filter" in fails("filter", model, tmp_path / "blank.txt", "--keep", "1")
    (tmp_path / "bytes.txt").write_bytes(b"i love\xff cats\n")
    assert "line 1, byte 7: expected UTF-8" in fails("filter", model, tmp_path / "bytes.txt", "--keep", "1")
    assert "are text, but this is the name of a csv file" in fails(
        "filter", model, text, "--keep", "1", "--out", tmp_path / "out.csv"
    )
    assert "plain text has no fields" in fails("filter", model, text, "--keep", "1", "--field", "body")
