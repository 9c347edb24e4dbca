"""What the processes do that torchrun starts in test_processes.py: `processes_child.py FOLDER SCENARIO`."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import chainrule as cr
from chainrule.cli.main import main
from chainrule.errors import ChainruleError
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.team import rank, restarts

TINY: dict[str, Any] = {"batch": 128, "validate_every": 4, "steps": 12, "optimiser": "adamw", "learning_rate": 0.01}
TRANSFORMER: dict[str, Any] = {
    **TINY,
    "width": 16,
    "layers": 2,
    "heads": 2,
    "window": 16,
    "weight_decay": 0.1,
    **dict.fromkeys(["dropout", "attention_dropout", "hidden_dropout", "token_dropout"], 0.0),
    "average": "ema",
    "schedule": "linear",
}
LSTM: dict[str, Any] = {
    **TINY,
    "embedding": 8,
    "hidden": 8,
    "layers": 1,
    "length": 8,
    "schedule": "linear",
    "clip": 1.0,
    "warmup": 0.0,
    **dict.fromkeys(
        [f"{what}_dropout" for what in ("input", "hidden", "output", "embedding", "weight")] + ["alpha", "beta"],
        0.0,
    ),
    "beta1": 0.9,
    "beta2": 0.99,
}
MUON = {**TRANSFORMER, "optimiser": "muon", "device_batch": 48}


def trained(name: str, folder: Path, kind: str, **settings: Any) -> None:
    """Train, and let the first process save the model."""
    lm = cr.train(kind, folder / "corpus.txt", **settings, tokenizer="word")
    if rank() == 0:
        lm.save(folder / name)


def killed(folder: Path) -> None:
    """A training by the command line whose second process is killed at its seventh step, once."""
    take_step = TorchEngine.take_step

    def kill(self: TorchEngine, feed: Any, step: Any, rate: float, place: Any) -> None:
        if place.step == 7 and self.team.size == 2 and rank() == 1 and not restarts():
            os.kill(os.getpid(), signal.SIGKILL)
        take_step(self, feed, step, rate, place)

    TorchEngine.take_step = kill  # type: ignore[method-assign]
    words = [f"{name}={value}" for name, value in {**TRANSFORMER, "checkpoint_minutes": 0}.items()]
    sets = [word for one in words for word in ("--set", one)]
    try:
        main(
            [
                "train",
                "transformer",
                "--tokenizer",
                "word",
                str(folder / "corpus.txt"),
                "--out",
                str(folder / "killed"),
                "--keep",
                *sets,
            ]
        )
    except SystemExit as ending:
        if ending.code:
            raise


def refused(folder: Path) -> None:
    """Trainings for which the processes have different settings."""
    refused = {}
    other = "".join(f"another line {i % 3}\n" for i in range(40))
    differing: dict[str, tuple[Any, dict[str, Any]]] = {
        "data": (other if rank() else folder / "corpus.txt", {}),
        "settings": (folder / "corpus.txt", {"clip": 1.0 + rank()}),
    }
    for name, (corpus, settings) in differing.items():
        try:
            cr.train("transformer", corpus, **{**TRANSFORMER, **settings}, tokenizer="word")
        except ChainruleError as error:
            refused[name] = [str(error), error.is_reported]
    (folder / f"refused-{rank()}.json").write_text(json.dumps(refused))


def two(folder: Path) -> None:
    refused(folder)
    trained("muon", folder, "transformer", **MUON, parallel="fsdp")
    trained("lstm", folder, "lstm", **LSTM, context="stream")
    # a training that one process began goes on, sharded
    for name in ("run", "lstm-run"):
        lm = cr.resume(folder / name, steps=8, parallel="fsdp" if name == "run" else "ddp")
        assert lm.metrics["steps"] == 8


def three(folder: Path) -> None:
    for name in ("run", "lstm-run"):
        lm = cr.resume(folder / name, steps=12, parallel="ddp")
        if rank() == 0:
            lm.save(folder / f"{name}-of-three")


if __name__ == "__main__":
    {"killed": killed, "two": two, "three": three}[sys.argv[2]](Path(sys.argv[1]))
