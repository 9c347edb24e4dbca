"""How a run begins: its texts are opened and decisions made, or all is as a checkpoint has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from chainrule.errors import SettingsError
from chainrule.kinds import TrainingData
from chainrule.tokens.ids import Encoded
from chainrule.training.average import Average
from chainrule.training.batches import Source, open_source
from chainrule.training.checkpoint import Checkpoint, Checkpoints
from chainrule.training.identity import changes, identity
from chainrule.training.layouts import Layout, Size, choose_layout
from chainrule.training.notes import before_training
from chainrule.training.optim import make_optimiser
from chainrule.training.plan import TrainingSettings
from chainrule.training.rehearsal import Rehearsal
from chainrule.training.snapshot import Running
from chainrule.training.state import State
from chainrule.training.step import Stepper
from chainrule.training.trainable import Trainable


@dataclass(frozen=True)
class Job:
    """What there is to do, and with what; nothing of it changes."""

    network: Trainable
    settings: TrainingSettings
    data: TrainingData
    device: torch.device
    train: tuple[Layout, Source]
    valid: tuple[Layout, Source] | None
    checkpoints: Checkpoints | None
    sample: Callable[[], str] | None

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What the run is made of."""
        return identity(self.network, self.settings, self.data)

    @property
    def rehearsal(self) -> Rehearsal:
        """What makes its decisions."""
        return Rehearsal(self.network, self.settings, self.device, self.train, self.valid)


@dataclass(frozen=True)
class Started:
    """A run that is ready for its next step."""

    running: Running
    stepper: Stepper
    is_decided: bool
    """Whether decisions were made just now."""


def open_job(
    network: Trainable, settings: TrainingSettings, data: TrainingData, sample: Callable[[], str] | None
) -> Job:
    """The job of training a network on these texts."""
    device = torch.device(data.device)
    length = settings.row_length(network.window, data.context)
    size = Size(length, settings.batch, settings.device_batch or settings.batch)

    def opened(text: Encoded) -> tuple[Layout, Source]:
        layout = choose_layout(
            text.ids, data.tokenizer.eos, data.context, network.window, size, data.seed, vary=settings.vary_length
        )
        return layout, open_source(text.ids, data.tokenizer, data.context, device)

    train, valid = opened(data.train), None if data.valid is None else opened(data.valid)
    if settings.vary_length and not train[0].carries:
        raise SettingsError("vary_length is for a network that carries its memory on, and for --context stream")
    checkpoints = None if data.run is None else Checkpoints(data.run, data.progress)
    return Job(network.to(device), settings, data, device, train, valid, checkpoints, sample)


def start(job: Job) -> Started:
    """A run at its beginning, or as the newest checkpoint has it."""
    found = job.checkpoints.newest() if job.checkpoints is not None and job.data.resume else None
    if found is not None:
        return _go_on(job, found)
    if job.data.resume:
        job.data.progress.note(f"{job.data.run}: there is no checkpoint: training begins anew")
    state = State(job.rehearsal.decide())
    for note in before_training(job.settings, state.total, job.train[0].size.length, job.data.context):
        job.data.progress.note(note)
    return Started(*_made(job, state), is_decided=True)


def _go_on(job: Job, found: Checkpoint) -> Started:
    """As the checkpoint has it; but what may change is as the settings say now."""
    changed = changes(found.state["identity"], job.identity)
    state = State.from_json(found.state["state"])
    before, state.decisions = state.decisions, job.rehearsal.decide_anew(state, changed)
    patience, is_longer = job.settings.patience, state.total != before.total
    state.stopped = state.is_stalled(patience)
    if state.stopped and is_longer:
        raise SettingsError(
            f"training stopped since {state.stalled} validations in a row found nothing better: to go on, set more "
            f"patience than {patience}"
        )
    running, stepper = _made(job, state)
    # compiled code is made for one shape, so that its last part is filled up with rows
    is_cut_anew = "device_batch" in changed or state.decisions.compiled != before.compiled
    forgets = is_cut_anew and job.train[0].carries
    running.go_on(found, None if forgets else lambda: stepper.example_of_memory(*job.train))
    running.average.plan_anew(state.step, before.total)
    note = job.data.progress.note
    if is_longer:
        note(f"{state.step:,} of {state.total:,} steps are done; the plan was {before.total:,}")
    if forgets:
        note("steps have other parts now: what was remembered of the text so far is forgotten")
    return Started(running, stepper, is_decided=state.decisions != before)


def _made(job: Job, state: State) -> tuple[Running, Stepper]:
    """What takes the steps of a run that stands there, and all that they change."""
    stepper = Stepper.decided(job.network, job.device, state.decisions)
    average = Average(job.settings.average, dict(job.network.named_parameters()), state.total)
    optimiser = make_optimiser(job.network, job.settings)
    return Running(job.network, optimiser, average, state, job.device, job.identity), stepper
