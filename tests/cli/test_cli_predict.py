"""`chainrule predict`: typing on a real terminal, lines from a pipe, and keystrokes saved."""

from __future__ import annotations

import json
import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from chainrule.cli.output.typing import TypedLine, _size_of_key

from .running import Fails, Run, strict_json


def pressed(*keys: str) -> TypedLine:
    """A line after keys, where words that begin like the last one are suggested."""
    words = ["alpha", "beta", "better"]

    def suggest(text: str) -> list[tuple[str, str]]:
        begun = text[text.rfind(" ") + 1 :]
        return [(word, word[len(begun) :]) for word in words if word.startswith(begun)]

    line = TypedLine(suggest)
    for key in keys:
        if not line.suggestions:
            line.refresh()
        line.press(key)
    line.refresh()
    return line


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        (["b", "\t"], "beta "),
        (["b", "2"], "better "),
        (["b", "\x1b[B", "\t"], "better "),
        (["b", "\x1b[B", "\x1b[B", "\t"], "beta "),
        (["b", "\x1b[A", "\t"], "better "),
        (["b", "3"], "b3"),
        (["b", "\x16", "2"], "b2"),
        (["b", "\t", "."], "beta."),
        (["b", "\t", " ", "x"], "beta x"),
        (["a", "b", "\x7f"], "a"),
        ([*"a word", "\x17"], "a "),
        ([*"a word", "\x15"], ""),
        (["\x1b[C", "\x1b", "é"], "é"),
        (["\t", "\t"], "alpha alpha "),
    ],
)
def test_keys(keys: list[str], text: str) -> None:
    assert pressed(*keys).text == text


def test_lines_end_and_typing_ends() -> None:
    line = pressed("a")
    assert (line.press("\r"), line.press("\x04"), line.press("\x03")) == ("line", "quit", "quit")
    assert line.keys == 2


def test_sequences_of_arrows_are_one_key() -> None:
    assert [_size_of_key(keys) for keys in ("\x1b[Ab", "\x1bOAb", "\x1b[1;5Cb", "ab", "\x1b")] == [3, 3, 6, 1, 1]


def test_what_is_drawn_fits_the_terminal() -> None:
    from rich.cells import cell_len

    line = pressed(*"a long text with 漢字 of many words b")
    for width in (10, 20, 80):
        first, second = line.drawn(width).split("\r\n")
        for mark in ("\x1b[J", "\x1b[2m", "\x1b[0m", "\x1b[7m", "\r"):
            first, second = first.replace(mark, ""), second.replace(mark, "")
        assert cell_len(first) < width
        assert cell_len(second.partition("\x1b")[0].rstrip()) < width
    assert "b\x1b[2meta\x1b[0m\r\n\x1b[7m1 beta\x1b[0m  2 better" in pressed("b").drawn(80)


def on_a_terminal(model: Path, keys: list[bytes]) -> tuple[str, int]:
    """What is seen while keys are pressed on a terminal; each key is pressed when the screen has come to rest."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "chainrule", "predict", str(model)]
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "80"}
    with subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = _read_until(ours, "\x1b[1A")  # the suggestions have been drawn
        for key in keys:
            os.write(ours, key)
            seen += _read_until(ours, "\x1b[1A")
        code = process.wait(30)
        os.close(ours)
    return seen, code


def _read_until(descriptor: int, mark: str) -> str:
    """What a terminal shows until the mark comes, or the other side ends."""
    seen, end = b"", time.monotonic() + 30
    while mark.encode() not in seen and time.monotonic() < end:
        if select.select([descriptor], [], [], 0.2)[0]:
            try:
                piece = os.read(descriptor, 1 << 16)
            except OSError:  # Linux says so when the other end is closed
                break
            if not piece:
                break
            seen += piece
    return seen.decode()


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


def test_bad_input_is_one_line(fails: Fails, model: Path, tmp_path: Path) -> None:
    assert "one model at a time" in fails("predict", model, model)
    assert "--lines, --field and --files go with --evaluate" in fails("predict", model, "--lines", "3")
    assert "no such file" in fails("predict", model, "--evaluate", tmp_path / "none")
    (tmp_path / "empty.txt").write_text("\n")
    assert "the text is empty" in fails("predict", model, "--evaluate", tmp_path / "empty.txt")
