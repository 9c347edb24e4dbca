"""Commands in strange surroundings: they work, or say why not in one line."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from .controls import command
from .frame import Trial

COMMANDS = {
    "train": "train ngram a.txt --tokenizer word --out m --overwrite",
    "evaluate": "evaluate m a.txt",
    "generate": "generate m --max-tokens 5",
    "score": "score m a.txt",
    "inspect": "inspect m",
    "suggest": "suggest m --prompt i",
    "tokenize": "tokenize a.txt --tokenizer bpe --out t --overwrite",
    "compare": "compare a.txt --kind anygram --out c --overwrite",
    "help": "--help",
}
TEXT = "i love cats\ni love dogs\ncats chase mice naïve 漢字\n" * 40
SECONDS = 120


def _read_only(folder: Path) -> Path:
    place = folder / "read only"
    place.mkdir(exist_ok=True)
    place.chmod(0o500)
    return place


Surroundings = Callable[[Path, dict[str, str]], dict[str, Any]]
"""Changes the environment, and returns other options of `subprocess.run`."""


def _set(**values: str) -> Surroundings:
    def change(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
        environment.update({name: value.replace("FOLDER", str(folder)) for name, value in values.items()})
        return {}

    return change


def _without(*names: str) -> Surroundings:
    def change(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
        for name in names:
            environment.pop(name, None)
        return {}

    return change


def _read_only_home(folder: Path, environment: dict[str, str]) -> dict[str, Any]:
    environment |= {"HOME": str(_read_only(folder)), "NUMBA_CACHE_DIR": str(_read_only(folder))}
    environment.pop("XDG_CACHE_HOME", None)
    return {}


def _closed(stream: int) -> Surroundings:
    return lambda folder, environment: {"preexec_fn": lambda: os.close(stream)}


SURROUNDINGS: dict[str, Surroundings] = {
    "no HOME": _without("HOME", "XDG_CACHE_HOME"),
    "a HOME that is not there": _set(HOME="/nowhere/at all"),
    "a read-only HOME": _read_only_home,
    "LANG=C": _set(LANG="C", LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0"),
    "ASCII output": _set(PYTHONIOENCODING="ascii"),
    "TERM=dumb": _set(TERM="dumb"),
    "no TERM": _without("TERM"),
    "a narrow terminal": _set(COLUMNS="10"),
    "no environment at all": lambda folder, environment: environment.clear() or {},
    "no TMPDIR": _set(TMPDIR="/nowhere/at all"),
    "umask 077": lambda folder, environment: {"umask": 0o077},
    "standard input closed": _closed(0),
    "standard output closed": _closed(1),
    "standard error closed": _closed(2),
    "spaces and other scripts in paths": lambda folder, environment: {"cwd": _strange(folder)},
    "python -O": _set(PYTHONOPTIMIZE="2"),
    "python -W error": _set(PYTHONWARNINGS="error"),
    "python -X dev": _set(PYTHONDEVMODE="1"),
    "no bytecode": _set(PYTHONDONTWRITEBYTECODE="1"),
    "one thread": _set(OMP_NUM_THREADS="1", NUMBA_NUM_THREADS="1"),
    "few open files": lambda folder, environment: {"preexec_fn": _few_files},
}


def _few_files() -> None:
    import resource

    resource.setrlimit(resource.RLIMIT_NOFILE, (40, 40))


def _strange(folder: Path) -> Path:
    place = folder / "with spaces, 'quotes' & naïve 漢字 \N{SLIGHTLY SMILING FACE}"
    if not place.exists():
        place.mkdir()
        shutil.copy(folder / "a.txt", place)
        subprocess.run([*command(""), *COMMANDS["train"].split()], cwd=place, capture_output=True, check=True)
    return place


def run(trial: Trial) -> None:
    """Run each command in each of the surroundings, in turn."""
    pairs = [(name, verb) for verb in COMMANDS for name in trial.chosen(list(SURROUNDINGS))]
    with tempfile.TemporaryDirectory(prefix="trial-") as name:
        folder = Path(name)
        (folder / "a.txt").write_text(TEXT, encoding="utf-8")
        for verb in ["train"] if trial.control else COMMANDS:  # one that never works would survive everything
            subprocess.run([*command(""), *COMMANDS[verb].split()], cwd=folder, capture_output=True, check=True)
        for number in trial:
            if number >= len(pairs):
                break
            # a small run has some of all: the step has no divisor in common with the number of pairs
            surroundings, verb = pairs[number * 37 % len(pairs)]
            trial.note(surroundings, _tried(folder, surroundings, verb, trial.control))


def _tried(folder: Path, surroundings: str, verb: str, control: str) -> str | None:
    environment = {**os.environ}
    options = SURROUNDINGS[surroundings](folder, environment)
    if "PYTHONPATH" in os.environ:  # where the package is not installed
        environment["PYTHONPATH"] = os.environ["PYTHONPATH"]
    try:
        done = subprocess.run(
            [*command(control), *COMMANDS[verb].split()],
            env=environment,
            capture_output=True,
            check=False,
            timeout=SECONDS,
            **{"cwd": folder, "stdin": subprocess.DEVNULL, **options},
        )
    except subprocess.TimeoutExpired:
        return f"{verb}: not done after {SECONDS} s"
    said = done.stderr.decode(errors="replace").strip()
    if done.returncode == 0:
        return f"{verb}: it worked, and said: {said[-300:]}" if "Traceback" in said else None
    is_one_line = done.returncode == 2 and said.count("\n") == 0 and bool(said)
    return None if is_one_line else f"{verb}: exit code {done.returncode}: {said[-300:]}"
