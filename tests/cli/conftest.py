"""What the tests of the command line share: a small corpus, models of it, and ways to run a verb."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.cli.main import main

from .running import HELD_OUT, TEXT, TOY, Fails, Ran, Run


@pytest.fixture(autouse=True)
def plain_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing around the tests asks for colours, widths or encodings."""
    for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE", "COLUMNS", "PYTHONIOENCODING"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """A verb in this process."""

    def run(*words: object) -> Ran:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main([str(word) for word in words])
        captured = capsys.readouterr()
        return Ran(ended.value.code, captured.out, captured.err)

    return run


@pytest.fixture
def run_alone() -> Run:
    """A verb in a process of its own, away from any terminal."""

    def run_alone(*words: object, stdin: bytes = b"") -> Ran:
        command = [sys.executable, "-m", "chainrule", *map(str, words)]
        done = subprocess.run(command, input=stdin, capture_output=True, check=False, timeout=600)
        return Ran(done.returncode, done.stdout.decode(), done.stderr.decode())

    return run_alone


@pytest.fixture
def fails(run: Run) -> Fails:
    """What a verb that must fail says: one line, and exit code 2."""

    def fails(*words: object) -> str:
        ran = run(*words)
        assert ran.code == 2, ran.err
        assert ran.err.startswith("chainrule: error: ")
        assert ran.err.count("\n") == 1
        assert "Traceback" not in ran.err
        return ran.err

    return fails


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="session")
def corpus(shared: Path) -> Path:
    return _written(shared / "corpus.txt", TEXT)


@pytest.fixture(scope="session")
def held_out(shared: Path) -> Path:
    return _written(shared / "held-out.txt", HELD_OUT)


@pytest.fixture(scope="session")
def toy(shared: Path) -> Path:
    return _written(shared / "toy.txt", TOY)


@pytest.fixture(scope="session")
def big(shared: Path) -> Path:
    """More than a megabyte."""
    return _written(shared / "big.txt", "".join(f"line {i % 977} of a long text\n" for i in range(50_000)))


@pytest.fixture(scope="session")
def model(shared: Path, corpus: Path) -> Path:
    """A trigram model of words and lines."""
    return _trained(shared / "model", corpus, order=3, smoothing="add-k", k=0.1)


@pytest.fixture
def animals(corpus: Path, tmp_path: Path) -> Path:
    """A trigram model that gives its mass to shorter contexts."""
    return _trained(tmp_path / "animals", corpus, order=3, smoothing="witten-bell")


@pytest.fixture(scope="session")
def stream_model(shared: Path, corpus: Path) -> Path:
    """One whose context flows across lines."""
    return _trained(shared / "stream-model", corpus, context="stream", order=3, smoothing="add-k", k=0.1)


@pytest.fixture(scope="session")
def bpe_model(shared: Path, corpus: Path) -> Path:
    """One of subwords."""
    return _trained(shared / "bpe-model", corpus, tokenizer="bpe", order=3, smoothing="laplace")


@pytest.fixture(scope="session")
def mle_model(shared: Path, toy: Path) -> Path:
    """One that rules out what it has not seen."""
    return _trained(shared / "mle-model", toy, order=3, smoothing="mle")


def _written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def _trained(folder: Path, corpus: Path, **options: Any) -> Path:
    cr.train("ngram", corpus, **{"tokenizer": "word", **options}).save(folder)
    return folder
