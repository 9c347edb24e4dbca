"""A run in a process of its own, to be killed: `training_child.py RUN NETWORK CONTEXT OPTIMISER AVERAGE HELD`.

It is held after step HELD until a signal comes: however slow whoever sends it is, the run does not end before.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import torch
from trainables import Bigram, Recurrent, data, seeded, train

from chainrule.networks.training_settings import TrainingSettings
from chainrule.settings import parse
from chainrule.training import loop
from chainrule.training.checkpoints.run_folder import checkpoint_folders
from chainrule.training.loop import Trained


def settings(optimiser: str = "adamw", average: str = "none", minutes: float = 10.0) -> TrainingSettings:
    """Forty steps in parts, a checkpoint every so many minutes."""
    values = {
        "batch": 64,
        "length": 8,
        "device_batch": 24,
        "steps": 40,
        "learning_rate": 0.02,
        "precision": "float32",
    }
    own = {"optimiser": optimiser, "average": average, "checkpoint_minutes": minutes}
    return parse(TrainingSettings, {**values, **own})


def trained(
    run: Path | None, network: str, context: Any, optimiser: str, average: str, minutes: float = 10.0
) -> Trained:
    """The run of these, resumed if there is something to resume."""
    made = seeded({"bigram": Bigram, "recurrent": Recurrent}[network], dropout=0.3)
    resume = run is not None and bool(checkpoint_folders(run))
    return train(made, settings(optimiser, average, minutes), data(context, run=run, resume=resume))


def held(between_steps: Any, last: int) -> Any:
    def wait(self: Any, task: Any) -> None:
        time.sleep(0.01)  # so that signals mostly come in the middle of the run
        while self.state.step >= last and self.interrupts.received is None:
            time.sleep(0.01)
        self._tick()
        between_steps(self, task)

    return wait


if __name__ == "__main__":
    torch.set_num_threads(1)
    loop.Loop._between_steps = held(loop.Loop._between_steps, int(sys.argv[6]))  # type: ignore[method-assign]
    trained(Path(sys.argv[1]), *sys.argv[2:6], minutes=0)
