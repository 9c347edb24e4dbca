"""What the parts share: a text, programs run as children and measured, and models made once."""

from __future__ import annotations

import argparse
import gzip
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

from chainrule.ngram.workspace import parse_size

ORDER = 5
PAIRS = {"hash": "probing", "compact": "trie", "bits=8": "quantised trie"}
"""Our forms of a model, and KenLM's that are like them."""
OURS = {"hash": ["index=hash"], "compact": [], "bits=8": ["bits=8"]}
THEIRS = {"probing": ["probing"], "trie": ["trie"], "quantised trie": ["-q", "8", "-b", "8", "trie"]}


@dataclass(frozen=True)
class Ran:
    """What a child took."""

    seconds: float
    cpu: float
    peak: int
    """Bytes of memory, at most."""
    output: str = ""

    def then(self, other: Ran) -> Ran:
        """One after the other."""
        return Ran(self.seconds + other.seconds, self.cpu + other.cpu, max(self.peak, other.peak), other.output)


def measure(command: Sequence[str | Path], environment: dict[str, str] | None = None) -> Ran:
    """Run a program to its end; a failure ends the benchmark."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        began = time.perf_counter()
        child = subprocess.Popen(command, stdout=out, stderr=err, env={**os.environ, **(environment or {})})
        _, status, usage = os.wait4(child.pid, 0)  # subprocess would not say what this one child took
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
    """A text, and the models that were made of it."""

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
        """The first lines of a text, or all, as a plain file."""
        path = folder / "text.txt"
        counted, words = _head(text, path, lines=lines)
        return cls(folder, path, held_out, counted, words, options)

    def head(self, words: int) -> Path:
        """The first lines of the text, with so many words in all, or one line's more."""
        path = self.folder / f"{words}.txt"
        _head(self.text, path, words=words)
        return path

    def ours(self, form: str) -> tuple[Path, Ran]:
        """Our model in one of its forms, and what making it took."""
        if form not in self._made:
            folder = self.folder / f"ours-{form}"
            self._made[form] = folder, train(self.text, folder, [f"memory={self.options.memory}", *OURS[form]])
        return self._made[form]

    def theirs(self, form: str) -> tuple[Path, Ran]:
        """KenLM's, from text to ARPA to its binary."""
        if form not in self._made:
            arpa, estimated = self.arpa()
            path = self.folder / f"kenlm-{form}"
            workplace = ["-T", f"{self.folder}/"] if form != "probing" else []
            built = measure(["build_binary", *workplace, *THEIRS[form], arpa, path])
            self._made[form] = path, estimated.then(built)
        return self._made[form]

    def arpa(self) -> tuple[Path, Ran]:
        """What lmplz estimates."""
        if "arpa" not in self._made:
            path = self.folder / "kenlm.arpa"
            memory = ["-S", f"{parse_size(self.options.memory)}b", "-T", f"{self.folder}/"]
            files = ["--text", self.text, "--arpa", path]
            self._made["arpa"] = path, measure(["lmplz", "-o", str(ORDER), "--discount_fallback", *memory, *files])
        return self._made["arpa"]


def train(text: Path, folder: Path, settings: Sequence[str], environment: dict[str, str] | None = None) -> Ran:
    """`chainrule train ngram` in a process of its own."""
    every = [f"order={ORDER}", "smoothing=modified-kneser-ney", *settings]
    chosen = [word for setting in every for word in ("--set", setting)]
    return measure(
        [sys.executable, "-m", "chainrule", "train", "ngram", text, *chosen, "--overwrite", "--out", folder],
        environment,
    )


def has_kenlm(*programs: str) -> bool:
    """Whether KenLM's programs are on PATH; says so if not."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        print(f"KenLM is left out: not on PATH: {', '.join(missing)}", flush=True)
    return not missing


def size_of(path: Path) -> int:
    """Bytes of a file, or of the files of a folder."""
    return sum(file.stat().st_size for file in path.iterdir()) if path.is_dir() else path.stat().st_size


def _head(source: Path, target: Path, *, lines: int | None = None, words: int | None = None) -> tuple[int, int]:
    """Copy lines up to a number of lines or of words; how many of each there are."""
    counted = found = 0
    with gzip.open(source) if source.suffix == ".gz" else source.open("rb") as file, target.open("wb") as out:
        for line in islice(file, lines):
            if words is not None and found >= words:
                break
            out.write(line)
            counted += 1
            found += len(line.split())
    return counted, found
