"""`chainrule predict`: typing on a real terminal, lines from a pipe, and keystrokes saved."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import select
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from chainrule.cli.output.typing import TypedLine, typed_lines

from .running import Fails, Ran, Run, strict_json


def suggest(text: str) -> list[tuple[str, str]]:
    """Suggest words that begin like the last one."""
    start = text[text.rfind(" ") + 1 :]
    return [(word, word[len(start) :]) for word in ("alpha", "beta", "better") if word.startswith(start)]


def typed(keys: str) -> list[TypedLine]:
    """Return the lines that keys type."""
    with create_pipe_input() as source:
        source.send_text(keys)
        return list(typed_lines(suggest, source, DummyOutput()))


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ("b\t", "beta "),
        ("b2", "better "),
        ("b\x1b[B\t", "better "),
        ("b\x1b[B\x1b[B\t", "beta "),
        ("b\x1bOA\t", "better "),
        ("b3", "b3"),
        ("b\x162", "b2"),
        ("b\t.", "beta."),
        ("b\t x", "beta x"),
        ("ab\x7f", "a"),
        ("a word\x17", "a "),
        ("a word\x15", ""),
        ("é", "é"),
        ("\t\t", "alpha alpha "),
    ],
)
def test_keys(keys: str, text: str) -> None:
    (line,) = typed(f"{keys}\r\x04")
    assert line.buffer.text == text


def test_keys_are_counted_for_each_line() -> None:
    first, second = typed("b\t\rab\r\x03")
    assert (first.keys, second.keys) == (3, 3)


def test_the_marked_suggestion_is_shown() -> None:
    line = TypedLine(suggest)
    line.buffer.insert_text("b")
    assert line.ghost() == [("fg:ansigray", "eta")]
    assert line.menu() == [("reverse", "1 beta"), ("", "  "), ("", "2 better"), ("", "  ")]


def on_a_terminal(model: Path, keys: list[bytes]) -> tuple[str, int]:
    """Return what a terminal shows while keys are pressed, each when nothing more is drawn."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "chainrule", "predict", str(model)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        try:
            seen = _read(ours, 120, until=b"1 ")  # the suggestions have been drawn
            for key in keys:
                os.write(ours, key)
                seen += _read(ours, 0.3)
            seen += _read(ours, 30, until=b"saved")
            code = process.wait(30)
        finally:
            process.kill()
            os.close(ours)
    return seen.decode(), code


def _read(descriptor: int, seconds: float, until: bytes | None = None) -> bytes:
    """Read what a terminal shows until the mark comes, or nothing does for so many seconds."""
    seen = b""
    while select.select([descriptor], [], [], seconds)[0]:
        try:
            piece = os.read(descriptor, 1 << 16)
        except OSError:  # Linux says so when the other end is closed
            break
        seen += piece
        if not piece or (until is not None and until in seen):
            break
    return seen


@pytest.mark.parametrize("quit_key", [b"\x04", b"\x03"])
def test_words_are_taken_on_a_real_terminal(mle_model: Path, quit_key: bytes) -> None:
    """Of "i love cats", "i love dogs", "cats chase mice": after "i" comes "love", after that cats or dogs."""
    keys = [b"i", b" ", b"\t", b"\x1b[B", b"\t", b"\r", quit_key]
    seen, code = on_a_terminal(mle_model, keys)
    assert code == 0
    assert "i love dogs\r\n" in seen
    assert "6 keys for 12 characters: 50.0% saved" in seen


def test_lines_of_a_pipe_are_answered(run_alone: Run, mle_model: Path) -> None:
    ran = run_alone("predict", mle_model, stdin=b"i love \ncats ch\n")
    assert (ran.code, ran.out) == (0, "cats\tdogs\nchase\n")
    ran = run_alone("predict", mle_model, "--json", "-k", "1", stdin=b"cats ch\n")
    assert json.loads(ran.out)["suggestions"] == [{"word": "chase", "completion": "ase", "probability": 1.0}]


def test_keystrokes_saved_of_several_models(run: Run, mle_model: Path, model: Path, toy: Path) -> None:
    first, second = run("predict", mle_model, model, "--evaluate", toy, "-k", "1", "--json").json
    assert (first["folder"], second["folder"]) == (str(mle_model), str(model))
    # i, love, c-ats and the end; the same with d-ogs; c-ats, chase, mice and the end
    assert first["characters"] == 12 + 12 + 16
    assert first["limit"] == pytest.approx(1 - 12 / 40)
    assert 0 < second["saved"] < first["saved"] <= first["limit"]
    shown = run("predict", mle_model, "--evaluate", toy, "--lines", "1").out
    assert "saved" in shown and "%" in shown
    assert strict_json(run("predict", mle_model, "--evaluate", toy, "--lines", "1", "--json").out)["lines"] == 1


def test_every_column_of_the_table_is_explained(run: Run, mle_model: Path, toy: Path) -> None:
    """Below the table: the shares, and the star of bits per byte; in the help: each column."""
    heading, _, _, explained, star = run("predict", mle_model, "--evaluate", toy, "--lines", "1").out.splitlines()
    for column in ("saved", "taken", "without context", "at most"):
        assert column in heading and f"{column}: " in explained
    assert star.startswith("* a lower bound")
    shown = run("predict", "--help").out
    for column in ("bits/byte", "saved", "keys", "characters", "taken", "without context", "at most"):
        assert column in heading and re.search(rf"^ +{column}  +\w", shown, re.MULTILINE)


def test_bad_input_is_one_line(fails: Fails, model: Path, tmp_path: Path) -> None:
    assert "one model at a time" in fails("predict", model, model)
    assert "--lines, --field and --files go with --evaluate" in fails("predict", model, "--lines", "3")
    assert "no such file" in fails("predict", model, "--evaluate", tmp_path / "none")
    (tmp_path / "empty.txt").write_text("\n")
    assert "the text is empty" in fails("predict", model, "--evaluate", tmp_path / "empty.txt")


@pytest.fixture
def play(run: Run, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Ran]:
    """A verb in this process, with these lines on standard input."""

    def play(answers: str, *words: object) -> Ran:
        monkeypatch.setattr("sys.stdin", io.StringIO(answers))
        return run(*words)

    return play


def test_games_are_played_in_a_pipe(play: Callable[..., Ran], model: Path, tmp_path: Path) -> None:
    lines = tmp_path / "lines.txt"
    lines.write_text("i love cats and you love mice\n", encoding="utf-8")
    game = ["predict", model, "--game", "shannon", "--text", lines, "--rounds", "2"]
    found = play("cats\n\n", *game, "--json").json
    assert found["guesses"] == [1, -1]  # "and" is unknown to the model, and is left out
    shown = play("mice\ncats\nyou\n", *game).out
    assert "i love…" in shown and "right, guess 2: cats" in shown
    assert "2 words" in shown
    quiz = play("a\n", "predict", model, "--game", "quiz", "--text", lines).out
    assert "1. Which is real?" in quiz and "95 % interval" in quiz
    questions = ["predict", model, "--game", "questions", "--prompt", "i"]
    asked = play("y\n" * 9, *questions, "--json").json
    assert asked["entropy"] <= asked["expected"] < asked["entropy"] + 1
    assert "there was no answer" in play("", *questions).err


def test_games_refuse_what_does_not_belong_to_them(fails: Fails, model: Path, corpus: Path) -> None:
    assert "takes --text, and no --prompt" in fails("predict", model, "--game", "quiz")
    assert "several are for --game quiz" in fails("predict", model, model, "--game", "shannon", "--text", corpus)
    assert "go with --game" in fails("predict", model, "--text", corpus)
    assert "has no rounds" in fails("predict", model, "--game", "questions", "--prompt", "i", "--rounds", "2")
