"""Commands that are told to stop (SIGTERM, SIGINT) at a random moment: they do, and nothing stays in TMPDIR."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from chainrule.system.disk.scratch import sweep_scratch

from .controls import command as chainrule
from .frame import Trial

COMMANDS = [
    "train ngram --tokenizer word a.txt --out m --overwrite --set smoothing=jelinek-mercer",
    "train anygram --tokenizer word a.txt --out m --overwrite",
    "tokenize a.txt --tokenizer bpe --out t --overwrite",
    "compare a.txt --kind ngram --out c --overwrite",
]
CODES = {signal.SIGTERM: 143, signal.SIGINT: 130}


def run(trial: Trial) -> None:
    """Stop commands, each in turn."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in the background of a shell; children would too
        signal.signal(signal.SIGINT, signal.default_int_handler)
    words = [f"word{i}" for i in range(3000)]
    lines = (" ".join(trial.random.choices(words, k=12)) for _ in range(20_000))
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        (Path(folder) / "a.txt").write_text("\n".join(lines))
        for number in trial:
            command, sent = COMMANDS[number % len(COMMANDS)], trial.random.choice(list(CODES))
            start = [*chainrule(trial.control), *command.split()]
            outcome, problem = stop_once(Path(folder), start, sent, trial.random.random())
            trial.note(f"{command.split()[0]} {sent.name}, {outcome}", problem)


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
        return outcome, f"exit code {process.returncode}: {told[:300]} ... {told[-300:]}"
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
