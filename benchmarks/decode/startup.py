"""From the shell to the first token: what `generate`, `suggest` and `translate` take, and where that time goes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.decode.models import random_model
from benchmarks.decode.results import OURS, Results, Row

STEPS = """
import json, sys, time
began = time.perf_counter()
import chainrule as cr
import torch
imported = time.perf_counter()
folder, device, verb = sys.argv[1:]
torch.zeros(1, device=device)
context = time.perf_counter()
model = cr.load(folder, device=device)
loaded = time.perf_counter()
if verb == "generate":
    cr.generate(model, "w1 w2", max_tokens=1)
elif verb == "suggest":
    cr.suggest(model, "w1 w2")
else:
    cr.translate(model, "w1 w2 w3", max_tokens=1)
done = time.perf_counter()
print(json.dumps({"import": imported - began, "context": context - imported, "load": loaded - context,
                  "first token": done - loaded}))
"""
"""A program that prints the seconds of each step."""
COMMANDS = {
    "generate": ["--prompt", "w1 w2", "--max-tokens", "1"],
    "suggest": ["--prompt", "w1 w2"],
    "translate": ["w1 w2 w3", "--max-tokens", "1"],
}


def startup(results: Results) -> None:
    """Measure each command as a process of its own, and the steps that it is made of."""
    lab = results.lab
    wide: dict[str, Any] = lab.pick({"hidden": 512, "embedding": 256}, {"hidden": 16, "embedding": 16})
    blocks = {
        "cell": "transformer",
        "layers": lab.pick(4, 1),
        "width": lab.pick(256, 16),
        "heads": 2,
        "window": 128,
    }
    lstm, seq2seq = lab.folder / "lstm", lab.folder / "seq2seq"
    random_model("lstm", lab.pick(16_000, 96), wide, context="line").save(lstm)
    random_model("seq2seq", lab.pick(16_000, 96), blocks).save(seq2seq)
    for verb, arguments in COMMANDS.items():
        folder = str(seq2seq if verb == "translate" else lstm)
        command = [sys.executable, "-m", "chainrule", verb, folder, *arguments, "--device", lab.device]
        results.add(_seconds(results, f"chainrule {verb}", command))
        found = [_steps(folder, lab.device, verb) for _ in range(results.rounds + 1)][1:]  # the first reads files
        for step in found[0]:
            seconds = statistics.median(one[step] for one in found)
            results.add(Row("startup", f"{verb}: {step}", OURS, "s", seconds))


def _seconds(results: Results, name: str, command: list[str]) -> Row:
    """Return the seconds of a command, after one call that is not timed."""
    seconds = []
    for _ in range(results.rounds + 1):
        began = time.perf_counter()
        ran = subprocess.run(command, capture_output=True, text=True, check=False)
        seconds.append(time.perf_counter() - began)
        if ran.returncode:
            return Row("startup", name, OURS, "s", error=ran.stderr.strip().splitlines()[-1])
    warm = seconds[1:]
    return Row("startup", name, OURS, "s", statistics.median(warm), min(warm), max(warm), seconds[0])


def _steps(folder: str, device: str, verb: str) -> dict[str, float]:
    found = subprocess.run(
        [sys.executable, "-c", STEPS, folder, device, verb], capture_output=True, text=True, check=True
    )
    steps: dict[str, float] = json.loads(found.stdout.splitlines()[-1])
    return steps
