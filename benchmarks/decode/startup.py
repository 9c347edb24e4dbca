"""From the shell to the first token: what `generate`, `suggest` and `translate` take, and where that time goes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from benchmarks.decode.models import random_model
from benchmarks.decode.results import OURS, Results, Row
from benchmarks.ngram.lab import measure

T = TypeVar("T")

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
        results.check_time("startup", verb)
        try:
            ran = _warm(results, lambda command=command: measure(command))
            steps = _warm(results, lambda folder=folder, verb=verb: _steps(folder, lab.device, verb))
        except SystemExit as error:
            results.add(Row("startup", verb, OURS, "s", error=str(error)))
            continue
        results.add_seconds("startup", f"chainrule {verb}", [one.seconds for one in ran])
        results.add_seconds("startup", f"chainrule {verb}, CPU", [one.cpu for one in ran])
        for step in steps[0]:
            results.add_seconds("startup", f"{verb}: {step}", [one[step] for one in steps])


def _warm(results: Results, run: Callable[[], T]) -> list[T]:
    """Return what each round gives; an earlier run, which reads files from the disk, is left out."""
    if not results.lab.small:
        run()
    return [run() for _ in range(results.rounds)]


def _steps(folder: str, device: str, verb: str) -> dict[str, float]:
    steps: dict[str, float] = json.loads(
        measure([sys.executable, "-c", STEPS, folder, device, verb]).output.splitlines()[-1]
    )
    return steps
