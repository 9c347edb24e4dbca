"""The wheel: what pip installs, not the folder that we work in."""

from __future__ import annotations

import os
import re
import shlex
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
    readme = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it gives")[0]
    words = [shlex.split(line)[1:] for line in readme.splitlines() if line.startswith("chainrule ")]
    assert [verb for verb, *_ in words] == ["compare", "generate", "suggest"]
    compared, generated, suggested = (command(run, *line, cwd=tmp_path) for line in words)
    assert "mixture" in compared and "ROMEO:" in generated and "probability" in suggested
    assert (tmp_path / "ladder" / "report.html").stat().st_size > 50_000
    (tour,) = re.findall(r"```python\n(.*?)```", readme, flags=re.DOTALL)
    assert "bits/byte" in command(binaries / "python", "-c", tour, cwd=tmp_path)
    assert (tmp_path / "shakespeare").is_dir()
    command(run, "train", "ngram", "--tokenizer", "word", "builtin:shakespeare", "--out", "model", cwd=tmp_path)
    assert "bits" in command(run, "evaluate", "model", "ladder/lstm", "builtin:shakespeare", cwd=tmp_path)
    command(run, "explain", "ladder/lstm", "--prompt", "to be or not", "--svg", "a.svg", cwd=tmp_path)
    assert (tmp_path / "a.svg").read_text().startswith("<svg")
