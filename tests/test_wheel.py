"""The wheel: what pip installs, not the folder that we work in."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def command(*words: str | Path, cwd: Path) -> str:
    elsewhere = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        list(map(str, words)), check=False, capture_output=True, text=True, cwd=cwd, env=elsewhere
    )
    assert done.returncode == 0, done.stderr[-3000:] + done.stdout[-1000:]
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("build")
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    ours = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=ours)
    command(sys.executable, "-m", "build", "--wheel", cwd=folder)
    (found,) = (folder / "dist").glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src"
    files = [path for path in (package / "chainrule").rglob("*") if path.is_file()]
    wanted = {path.relative_to(package).as_posix() for path in files if "__pycache__" not in path.parts}
    assert wanted - set(zipfile.ZipFile(wheel).namelist()) == set()


@pytest.mark.slow
def test_the_wheel_works_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    binaries = tmp_path / "env" / "bin"
    constraint = "--constraint", ROOT / "constraints.txt"
    command(binaries / "python", "-m", "pip", "install", "--quiet", *constraint, f"{wheel}[report]", cwd=tmp_path)
    run = binaries / "chainrule"
    command(
        run, "compare", "builtin:shakespeare", "--ladder", "quick", "--minutes", "1.5", "--out", "l", cwd=tmp_path
    )
    assert (tmp_path / "l" / "report.html").stat().st_size > 50_000
    command(run, "train", "ngram", "--tokenizer", "word", "builtin:shakespeare", "--out", "model", cwd=tmp_path)
    assert command(run, "generate", "model", "--prompt", "ROMEO", cwd=tmp_path).startswith("ROMEO")
    assert "word" in command(run, "suggest", "model", "--prompt", "To be or n", cwd=tmp_path)
    assert "bits" in command(run, "evaluate", "model", "l/lstm", "builtin:shakespeare", cwd=tmp_path)
    command(run, "explain", "l/lstm", "--prompt", "to be or not", "--svg", "a.svg", cwd=tmp_path)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
