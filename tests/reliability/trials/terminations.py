"""Commands that are told to stop (SIGTERM, SIGINT) at a random moment: they do, and nothing stays in TMPDIR."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from chainrule.system.disk.scratch import sweep_scratch

COMMANDS = [
    (
        "train",
        "ngram",
        "--tokenizer",
        "word",
        "a.txt",
        "--out",
        "m",
        "--overwrite",
        "--set",
        "smoothing=jelinek-mercer",
    ),
    ("train", "anygram", "--tokenizer", "word", "a.txt", "--out", "m", "--overwrite"),
    ("tokenize", "a.txt", "--tokenizer", "bpe", "--out", "t", "--overwrite"),
    ("compare", "a.txt", "--kind", "ngram", "--out", "c", "--overwrite"),
]
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def run(count: int, seed: int = 0) -> Counter[str]:
    """Stop `count` commands; problems are under "wrong: ..."."""
    generator, found = random.Random(seed), Counter[str]()
    folder = Path(tempfile.mkdtemp(prefix="trial-"))
    words = [f"word{i}" for i in range(3000)]
    lines = (" ".join(generator.choices(words, k=12)) for _ in range(20_000))
    (folder / "a.txt").write_text("\n".join(lines))
    try:
        for trial in range(count):
            command, number = COMMANDS[trial % len(COMMANDS)], generator.choice(list(CODES))
            words = [sys.executable, "-m", "chainrule", *command]
            outcome, problem = stop_once(folder, words, number, generator.random())
            found[f"{command[0]} {number.name}: {outcome}"] += 1
            if problem:
                found[f"wrong: {command[0]} {number.name}: {problem}"] += 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return found


def stop_once(folder: Path, words: list[str], number: signal.Signals, chance: float) -> tuple[str, str | None]:
    """Stop a command at some moment; returns what it did, and what is wrong with that, None if nothing is."""
    scratch = folder / "tmp"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    streams: Any = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    with subprocess.Popen(words, cwd=folder, env=environment, **streams) as process:
        time.sleep(0.15 + 1.2 * chance)
        process.send_signal(number)
        try:
            _, said = process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            process.kill()
            return "hangs", "it did not stop"
    told = said.decode(errors="replace")
    if process.returncode == -number:  # before the first line of ours ran
        return "at the start", None
    outcome = "finished" if process.returncode == 0 else "stopped"
    if process.returncode not in (0, CODES[number]):
        return outcome, f"exit code {process.returncode}: {told[-300:]}"
    if "Traceback" in told and process.returncode == 0:
        return outcome, f"swallowed: {told[-300:]}"
    if any(scratch.iterdir()):
        outcome += ", left for the next start to remove"
        tempfile.tempdir = str(scratch)
        sweep_scratch()
        tempfile.tempdir = None
        left = [str(path) for path in scratch.rglob("*") if path.is_file()]
        return outcome, f"left behind: {left}" if left else None
    return outcome, None
