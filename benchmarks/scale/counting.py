"""N-gram models by Ray's workers against one process: `python -m benchmarks scale counting [options]`.

Both sides run `chainrule train ngram FILES` in a process of its own, in turns. The seconds are those of the whole
command, the start of Ray included. Memory is sampled over all processes of a side: private memory with Ray's object
store, and pages of files, which the system may drop at any time. `--cap` limits the private memory of each process
of Ray's side (RLIMIT_DATA): a process that needs more fails.

    python -m benchmarks scale counting                           simplewiki, order 5, two workers
    python -m benchmarks scale counting --megabytes 20 60 200     texts of these sizes; long ones repeat the corpus
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import DATA, new_parser, open_text, show

_FILE_BYTES = 18_000_000
_LOOK_EVERY = 0.25  # seconds


@dataclass
class Run:
    """One run of a side: its seconds, the peaks of memory and disk in MB, and the figures it reports."""

    seconds: float = 0.0
    private: float = 0.0
    files: float = 0.0
    disk: float = 0.0
    figures: dict[str, float] = field(default_factory=dict)

    def watch(self, pid: int, folder: Path, ended: threading.Event) -> None:
        """Sample the memory of a process and its descendants and the size of a folder until the process ends."""
        while not ended.wait(_LOOK_EVERY):
            sizes = [_proportional(one) for one in _descendants(pid)]
            self.private = max(self.private, sum(one for one, _ in sizes))
            self.files = max(self.files, sum(other for _, other in sizes))
            self.disk = max(self.disk, _blocks(folder))


def _descendants(pid: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found = [pid]
    for one in found:
        found += children.get(one, [])
    return found


def _proportional(pid: int) -> tuple[float, float]:
    """Return private and shared memory, and pages of files, in MB; each process counts its part of shared pages."""
    try:
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except OSError:
        return 0.0, 0.0
    sizes = {line.split(":")[0]: float(line.split()[1]) / 1000 for line in text.split("\n")[1:] if line}
    return sizes.get("Pss_Anon", 0.0) + sizes.get("Pss_Shmem", 0.0), sizes.get("Pss_File", 0.0)


def _blocks(folder: Path) -> float:
    total = 0
    for root, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):  # the training may delete a file at any time
                total += Path(root, name).stat().st_blocks * 512
    return total / 1e6


def write_files(source: Path, folder: Path, megabytes: float | None) -> int:
    """Write the corpus, or so many MB of it, repeated if needed, to plain files of 18 MB; return the bytes."""
    wanted = None if megabytes is None else int(megabytes * 1e6)
    written, number, file = 0, 0, None
    while wanted is None or written < wanted:
        with open_text(source) as lines:
            for line in lines:
                if file is None or file.tell() >= _FILE_BYTES:
                    if file is not None:
                        file.close()
                    file = (folder / f"{number:04}.txt").open("wb")
                    number += 1
                written += file.write(line)
                if wanted is not None and written >= wanted:
                    break
        if wanted is None:
            break
    if file is not None:
        file.close()
    return written


def train(files: Path, order: int, executor: str, cap: float | None, place: Path) -> Run:
    """Train by the command line, and measure it."""
    work, out = place / "work", place / executor
    work.mkdir(exist_ok=True)
    command = [sys.executable, "-m", "chainrule", "train", "ngram", f"{files}/*.txt", "--context", "line"]
    command += ["--tokenizer", "word", "--set", f"order={order}"]
    command += ["--executor", executor, "--out", str(out), "--overwrite", "--json"]
    command += ["--work", str(work)] if executor == "ray" else []

    def limit() -> None:
        if executor == "ray" and cap is not None:
            resource.setrlimit(resource.RLIMIT_DATA, (int(cap * 1e6),) * 2)

    began = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=limit)  # noqa: PLW1509 (no thread runs yet)
    run, ended = Run(), threading.Event()
    watching = threading.Thread(target=run.watch, args=(process.pid, work, ended))
    watching.start()
    printed, _ = process.communicate()
    run.seconds = time.perf_counter() - began
    ended.set()
    watching.join()
    if process.returncode:
        sys.exit(f"{' '.join(command)}: failed")
    run.figures = {**json.loads(printed), **json.loads((out / "metrics.json").read_text())}
    return run


def main(arguments: Sequence[str]) -> None:
    """Train on each text by both sides, in turns."""
    parser = new_parser("scale counting", __doc__)
    parser.add_argument("--corpus", type=Path, default=DATA / "simplewiki" / "train.txt.gz")
    parser.add_argument("--megabytes", type=float, nargs="*", help="sizes of texts [default: the whole corpus]")
    parser.add_argument("--order", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--cap", type=float, metavar="MB", help="private memory of each process of Ray's side")
    options = parser.parse_args(arguments)
    for megabytes in options.megabytes or [None]:
        with tempfile.TemporaryDirectory() as name:
            _one_size(Path(name), options, megabytes)


def _one_size(place: Path, options: argparse.Namespace, megabytes: float | None) -> None:
    files = place / "files"
    files.mkdir()
    size = write_files(options.corpus, files, megabytes)
    runs: dict[str, list[Run]] = {"embedded": [], "ray": []}
    for _ in range(options.rounds):
        for executor, done in runs.items():
            done.append(train(files, options.order, executor, options.cap, place))
    tensors = [(place / executor / "model.safetensors").read_bytes() for executor in runs]
    seconds = {executor: statistics.median(run.seconds for run in done) for executor, done in runs.items()}
    rows = []
    for executor, done in runs.items():
        last = done[-1]
        figures = seconds[executor], seconds[executor] / seconds["embedded"], last.private, last.files, last.disk
        rows.append([executor, *(f"{value:,.2f}" if value < 100 else f"{value:,.0f}" for value in figures)])
    headings = ["executor", "s", "ratio", "private MB", "file pages MB", "work folder MB"]
    show(f"{size / 1e6:,.0f} MB, order {options.order}, cap {options.cap or 'none'}", headings, rows)
    last = runs["ray"][-1].figures
    print(f"tokens {last['tokens']:,}, n-grams {last['ngrams']}, model {last['megabytes']} MB")
    print(f"equal bit for bit: {tensors[0] == tensors[1]}; load of the machine {os.getloadavg()}")
