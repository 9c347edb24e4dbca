"""What the parts share: a text, child processes that are measured, and models that are made once."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from benchmarks.harness import is_installed, open_text
from chainrule.ngram.workspace import parse_size

ORDER = 5
PAIRS = {"hash": "probing", "compact": "trie", "bits=8": "quantised trie"}
"""The forms of our model, each with the form of KenLM's that it is compared with."""
OURS = {"hash": ["index=hash"], "compact": [], "bits=8": ["bits=8"]}
THEIRS = {"probing": ["probing"], "trie": ["trie"], "quantised trie": ["-q", "8", "-b", "8", "trie"]}


@dataclass(frozen=True)
class Ran:
    """The time and memory of a child process, and its output."""

    seconds: float
    cpu: float
    peak: int
    """Bytes of memory, at most."""
    output: str = ""

    def then(self, other: Ran) -> Ran:
        """Return the sums of two runs, one after the other, and their larger memory."""
        return Ran(self.seconds + other.seconds, self.cpu + other.cpu, max(self.peak, other.peak), other.output)


def measure(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> Ran:
    """Run a program and measure it; a failure ends the benchmark."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(environment or {})})
        _, status, usage = os.wait4(child.pid, 0)  # subprocess does not report the usage of one child
        seconds = time.perf_counter() - began
        child.returncode = os.waitstatus_to_exitcode(status)
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    if child.returncode != 0:
        raise SystemExit(f"{' '.join(map(str, command))}\nfailed ({child.returncode}): {texts[1][-2000:]}")
    return Ran(seconds, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024, texts[0])


@dataclass
class Lab:
    """A text, and the models that were trained on it."""

    folder: Path
    text: Path
    held_out: Path
    lines: int
    words: int
    options: argparse.Namespace
    _made: dict[str, tuple[Path, Ran]] = field(default_factory=dict)

    @classmethod
    def prepare(
        cls, folder: Path, text: Path, held_out: Path, lines: int | None, options: argparse.Namespace
    ) -> Lab:
        """Write the first lines of a text, or all of them, to a plain file."""
        path = folder / "text.txt"
        counted, words = _head(text, path, lines=lines)
        return cls(folder, path, held_out, counted, words, options)

    def head(self, words: int) -> Path:
        """Write the first lines of the text to a file, until it has at least so many words."""
        path = self.folder / f"{words}.txt"
        _head(self.text, path, words=words)
        return path

    def ours(self, form: str) -> tuple[Path, Ran]:
        """Return our model in one of its forms, and the cost of its training."""
        if form not in self._made:
            folder = self.folder / f"ours-{form}"
            self._made[form] = (
                folder,
                train(self.text, folder, [f"memory={self.options.memory}", *OURS[form]]),
            )
        return self._made[form]

    def theirs(self, form: str) -> tuple[Path, Ran]:
        """Return KenLM's binary in one of its forms, and the cost of making it from the text."""
        if form not in self._made:
            arpa, estimated = self.arpa()
            path = self.folder / f"kenlm-{form}"
            workplace = ["-T", f"{self.folder}/"] if form != "probing" else []
            built = measure(["build_binary", *workplace, *THEIRS[form], arpa, path])
            self._made[form] = path, estimated.then(built)
        return self._made[form]

    def arpa(self) -> tuple[Path, Ran]:
        """Return the ARPA file of lmplz, and the cost of making it."""
        if "arpa" not in self._made:
            path = self.folder / "kenlm.arpa"
            memory = ["-S", f"{parse_size(self.options.memory)}b", "-T", f"{self.folder}/"]
            files = ["--text", self.text, "--arpa", path]
            self._made["arpa"] = path, measure(["lmplz", "-o", str(ORDER), "--discount_fallback", *memory, *files])
        return self._made["arpa"]


def train(text: Path, folder: Path, settings: Sequence[str], environment: dict[str, str] | None = None) -> Ran:
    """Run `chainrule train ngram` in a process of its own."""
    every = [f"order={ORDER}", "smoothing=modified-kneser-ney", *settings]
    chosen = [word for setting in every for word in ("--set", setting)]
    command = [
        sys.executable,
        "-m",
        "chainrule",
        "train",
        "ngram",
        text,
        "--tokenizer",
        "word",
        "--context",
        "line",
        *chosen,
    ]
    return measure([*command, "--overwrite", "--out", folder], environment)


def has_kenlm(*programs: str, module: bool = False) -> bool:
    """Return True if KenLM's programs are on PATH and its module is installed; if not, print what is missing."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        print(f"KenLM is left out: not on PATH: {', '.join(missing)}", flush=True)
    return not missing and (not module or is_installed("KenLM", "kenlm", extra="benchmarks"))


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of the files of a folder."""
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def _head(source: Path, target: Path, *, lines: int | None = None, words: int | None = None) -> tuple[int, int]:
    """Copy lines up to a number of lines or of words; return the numbers of lines and words that were copied."""
    counted = found = 0
    with open_text(source) as file, target.open("wb") as out:
        for line in islice(file, lines):
            if words is not None and found >= words:
                break
            out.write(line)
            counted += 1
            found += len(line.split())
    return counted, found
