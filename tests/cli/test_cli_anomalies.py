"""`chainrule anomalies`: ranked lines, a log that grows, labels, and one line for bad input."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from .running import Fails, Run, on_terminal, strict_json

LOG = "i love cats\nyou chase zebras\nwe love mice\nzebras zebras i\n"


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "a.log").write_text(LOG)
    return tmp_path / "a.log"


def test_lines_are_ranked_and_their_surprising_tokens_marked(
    run: Run, model: Path, bpe_model: Path, log: Path
) -> None:
    rows = [line.split("\t") for line in run("anomalies", model, log, "--top", "2").out.splitlines()]
    assert [(row[0], row[2]) for row in rows] == [("4", "zebras zebras i"), ("2", "you chase zebras")]  # 8.6 bits
    marked = [line.split("\t")[2] for line in run("anomalies", bpe_model, log, "--top", "2").out.splitlines()]
    assert marked == ["«zebras zebras i»", "you chase «zebras»"]
    assert float(rows[0][1]) > float(rows[1][1])
    first = strict_json(run("anomalies", model, log, "--json").out.splitlines()[0])
    assert (first["id"], first["text"]) == (4, "zebras zebras i")
    assert [(token["text"], token["start"], token["end"]) for token in first["tokens"]] == [
        ("zebras", 0, 6),
        ("zebras", 7, 13),
        ("i", 14, 15),
        ("", 15, 15),
    ]
    assert "4  " in on_terminal(80, "anomalies", model, log, "--top", "1")


def test_a_threshold_alone_keeps_the_order(run: Run, model: Path, log: Path) -> None:
    least = float(run("anomalies", model, log, "--top", "2").out.splitlines()[1].split("\t")[1])
    ran = run("anomalies", model, log, "--threshold", least - 0.01)
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == ["2", "4"]
    ran = run("anomalies", model, log, "--threshold", least - 0.01, "--top", "9")
    assert [line.split("\t")[0] for line in ran.out.splitlines()] == ["4", "2"]


def test_a_log_is_followed_until_it_is_stopped(model: Path, log: Path) -> None:
    command = [sys.executable, "-m", "chainrule", "anomalies", str(model), str(log), "--follow", "--threshold", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert next_ids(process, 4) == ["1", "2", "3", "4"]
        with log.open("a") as file:
            file.write("i love mice\nzebras\n")
        assert next_ids(process, 2) == ["5", "6"]
        with log.open("ab") as file:
            file.write(b"\xff\xfe\ni love mice\n")
        assert next_ids(process, 2) == ["7", "8"]
        log.rename(log.with_suffix(".1"))
        log.write_text("the new log\n")
        assert next_ids(process, 1) == ["1"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    noted, _, stopped = errors.decode().strip().splitlines()
    assert (noted, stopped) == (f"note: {log}: not UTF-8, replaced by U+FFFD", "chainrule: stopped")


def next_ids(process: subprocess.Popen[bytes], count: int) -> list[str]:
    """The first column of the next lines that a process prints; it is killed if they do not come."""
    assert process.stdout is not None
    seen = b""
    while seen.count(b"\n") < count:
        if not select.select([process.stdout], [], [], 30)[0]:
            process.kill()
            raise AssertionError(f"only {seen!r} was printed")
        seen += os.read(process.stdout.fileno(), 1 << 16)
    return [line.split("\t")[0] for line in seen.decode().splitlines()]


def test_labels_are_measured(run: Run, model: Path, tmp_path: Path) -> None:
    rows = [{"line": line, "odd": "zebras" in line} for line in LOG.splitlines()]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = "anomalies", model, tmp_path / "a.jsonl", "--field", "line", "--labels", "odd"
    assert run(*words, "--json").json == {
        "records": 4,
        "anomalies": 2,
        "average_precision": 1.0,
        "auroc": 1.0,
        "random_average_precision": 0.5,
    }
    assert "average precision 1.000 (0.500 in a random order)" in run(*words).out


@pytest.mark.parametrize("how", [(), ("--threshold", "0"), ("--json",), ("--labels", "odd")])
def test_mostly_unknown_words_are_noted(
    run: Run, model: Path, bpe_model: Path, tmp_path: Path, how: tuple[str, ...]
) -> None:
    """Three of the four words are unknown: 75 %; half of them would be no news."""
    suffix = ".jsonl" if "--labels" in how else ".log"
    strange, usual = tmp_path / f"strange{suffix}", tmp_path / f"usual{suffix}"
    for path, lines in (strange, ["kernel panic", "i halted"]), (usual, ["kernel love", "i halted"]):
        records = "".join(json.dumps({"text": line, "odd": line[0] == "i"}) + "\n" for line in lines)
        path.write_text(records if suffix == ".jsonl" else "".join(f"{line}\n" for line in lines))
    (note,) = run("anomalies", model, strange, *how).err.splitlines()
    assert note.startswith("note: 75% of the words are unknown to the model")
    assert "train it on lines such as these, or with --tokenizer bpe" in note
    assert run("anomalies", model, usual, *how).err == ""
    assert run("anomalies", bpe_model, strange, *how).err == ""


def test_mostly_unknown_words_are_noted_of_a_log_that_grows(model: Path, tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_text("kernel panic\n")
    command = [sys.executable, "-m", "chainrule", "anomalies", str(model), str(log), "--follow"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert next_ids(process, 1) == ["1"]
        with log.open("a") as file:
            file.write("kernel halted\n")
        assert next_ids(process, 1) == ["2"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    notes = [line for line in errors.decode().splitlines() if line.startswith("note:")]
    assert len(notes) == 1 and notes[0].startswith("note: 100% of the words are unknown to the model")


def test_bad_input_is_one_line(fails: Fails, model: Path, log: Path, tmp_path: Path) -> None:
    assert "--follow reads a log that grows" in fails("anomalies", model, "-", "--follow")
    assert "text has no labels" in fails("anomalies", model, log, "--labels", "odd")
    assert "which is there" in fails("anomalies", model, tmp_path / "none.log", "--follow")
    assert "no such file" in fails("anomalies", model, tmp_path / "none.log")
    (tmp_path / "a.jsonl").write_text('{"text": "a", "odd": 1}\n{"text": "b", "odd": "maybe"}\n')
    said = fails("anomalies", model, tmp_path / "a.jsonl", "--labels", "odd")
    assert "record 2" in said and "found 'maybe'" in said


def test_a_log_is_masked_in_training_and_in_reading(run: Run, tmp_path: Path) -> None:
    """A later date is no surprise, a new message is: the words of it are marked, the time is not."""
    usual = tmp_path / "usual.log"
    lines = (
        f"Nov {day:2} 10:{minute:02}:00 web: request {minute * 37} done\n" for day in (3, 4) for minute in range(60)
    )
    usual.write_text("".join(lines))
    trained = run("train", "ngram", usual, "--out", tmp_path / "m")
    assert "--no-mask" in trained.err
    today = tmp_path / "today.log"
    today.write_text("Nov 11 23:59:59 web: request 9 done\nNov 11 23:59:59 web: PANIC 77\n")
    first, second = run("anomalies", tmp_path / "m", today).out.splitlines()
    assert "«PANIC" in first and "Nov 11 23:59:59 web:" in first and "«" not in second
    assert run("train", "ngram", usual, "--no-mask", "--out", tmp_path / "plain").err.count("--no-mask") == 0
    plain = run("anomalies", tmp_path / "plain", today).out.splitlines()
    assert any("«" in line.partition("web:")[0] for line in plain)  # the control: without masks the time is marked
