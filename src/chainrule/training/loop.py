"""One training loop for any network."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from chainrule.devices import current_device
from chainrule.errors import Interrupted, TrainingError
from chainrule.kinds import TrainingData
from chainrule.progress import Task
from chainrule.training.interrupts import Interrupts
from chainrule.training.losses import Losses
from chainrule.training.notes import worse_than_guessing
from chainrule.training.plan import TrainingSettings
from chainrule.training.runs import check_run
from chainrule.training.schedule import factor
from chainrule.training.start import Job, Started, open_job, start
from chainrule.training.state import Place
from chainrule.training.step import take_step
from chainrule.training.trainable import Trainable
from chainrule.training.validate import validate
from chainrule.training.watch import Watcher

READ_SECONDS = 1.0
"""Between two looks at the losses, which wait for the device."""

Weights = dict[str, Tensor]


@dataclass(frozen=True)
class Trained:
    """What training gives. The network itself holds the best weights."""

    best: Weights
    """By validation; the last, or averaged, ones where there is no text to validate on. On the CPU, in float32."""
    last: Weights
    best_loss: float | None
    """Nats per token of the best weights on the held-out text."""
    history: list[dict[str, Any]]
    """Loss in training and in validation, at each validation."""
    steps: int
    tokens: int
    """How many targets were seen."""
    seconds: float
    """Of steps and what is between them."""
    earlier: float
    """Seconds of them before the run was resumed."""
    decisions: dict[str, Any]
    """What was chosen at the start: precision, compiling, the number of steps, and the times measured for that."""


def train_network(
    network: Trainable, settings: TrainingSettings, data: TrainingData, *, sample: Callable[[], str] | None = None
) -> Trained:
    """Train a network on a text; `sample` gives some text of the network as it is."""
    check_run(data.run, resume=data.resume)
    job = open_job(network, settings, data, sample)
    with current_device(job.device), torch.random.fork_rng(_devices(job.device)):
        torch.manual_seed(data.seed % 2**63)
        started = start(job)
        running, earlier = started.running, started.running.state.seconds
        _Loop(job, started).run()
    state, last = running.state, weights_of(network)
    assert running.best is not None  # there is a validation after the last step
    if (note := worse_than_guessing(state.best_loss, data.tokenizer.vocab_size, settings.rate)) is not None:
        data.progress.note(note)
    network.load_state_dict(running.best)
    network.eval()
    return Trained(
        running.best,
        last,
        state.best_loss,
        state.history,
        state.step,
        state.tokens,
        state.seconds,
        earlier,
        asdict(state.decisions),
    )


class _Loop:
    """Steps, and what is done between them."""

    def __init__(self, job: Job, started: Started) -> None:
        self.job, self.started = job, started
        self.running, self.stepper, self.state = started.running, started.stepper, started.running.state
        self.watcher = Watcher(job.network, job.device, job.data.progress)
        self.losses = Losses()
        self.epoch = self.state.epoch, job.train[0].epoch(self.state.epoch)
        now = time.perf_counter()
        self.began, self.read_at, self.saved_at = now - self.state.seconds, now, now

    def run(self) -> None:
        """To the end."""
        state, job = self.state, self.job
        job.network.train()
        try:
            self._open_watcher()
            with (
                job.data.progress.task("training", state.total, "steps") as task,
                Interrupts(on=job.checkpoints is not None) as interrupts,
            ):
                task.advance(state.step)
                while not state.is_finished:
                    self._step()
                    self._between_steps(task, interrupts)
                if not state.history or state.history[-1]["step"] < state.step:
                    self._validate()  # a run that was stopped, and then told to end there
                self._save_the_end()
        finally:
            self.watcher.close()

    def _open_watcher(self) -> None:
        state, job = self.state, self.job
        self.watcher.open(job.data.run, tensorboard=job.settings.tensorboard, step=state.step, tokens=state.tokens)
        if self.started.is_decided:
            self.watcher.record("decisions", {"step": state.step, **asdict(state.decisions)})

    # -- a step -------------------------------------------------------------------------------------------

    def _step(self) -> None:
        state, running, settings = self.state, self.running, self.job.settings
        layout, source = self.job.train
        if self.epoch[0] != state.epoch:
            self.epoch = state.epoch, layout.epoch(state.epoch)
        steps = self.epoch[1]
        step = self.stepper.filled(steps[state.batch], layout)
        place = Place(state.step + 1, state.epoch, state.batch)
        rate = factor(settings.schedule, state.step, state.total, settings.warmup) * step.scale
        loss, norm, after = take_step(self.stepper, running.optimiser, source, step, running.memories, rate, place)
        self.losses.add(place, loss, norm)
        state.advance(step.targets, len(steps))
        running.average.update(state.step, state.stalled)
        # an epoch begins at the beginning of each stream, where nothing is remembered
        running.memories = after if layout.carries and state.batch > 0 else []

    # -- between steps ------------------------------------------------------------------------------------

    def _between_steps(self, task: Task, interrupts: Interrupts) -> None:
        now, state = time.perf_counter(), self.state
        is_time_to_save = now - self.saved_at >= 60 * self.job.settings.checkpoint_minutes
        received = interrupts.received  # looked at once: a signal may come at any moment
        is_pause = state.is_validation_due or is_time_to_save or received is not None
        if is_pause or now - self.read_at >= READ_SECONDS:
            self._read(task)
        if state.is_validation_due:
            self._validate()
        if received is not None:
            raise Interrupted(self._farewell(), received)
        if is_time_to_save:
            self._save()

    def _read(self, task: Task) -> None:
        """Look at the losses since the last time."""
        state = self.state
        losses, norm = self.losses.read()
        for loss in losses:  # one by one: however often somebody looks, the sum is the same to the last bit
            state.loss_sum += loss
        state.loss_count += len(losses)
        self.read_at = time.perf_counter()
        state.seconds = self.read_at - self.began
        task.advance(len(losses))
        figures = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 3),
            "loss": sum(losses) / len(losses),
            "learning_rate": self.running.optimiser.rate,
            "grad_norm": norm,
        }
        self.watcher.steps(task, figures)

    def _validate(self) -> None:
        """Measure the weights, averaged if they are, on the held-out text; keep the best."""
        state, job = self.state, self.job
        with self.running.average.applied(), torch.random.fork_rng(_devices(job.device)):
            loss = None if job.valid is None else validate(self.stepper, *job.valid)
            if loss is not None and not math.isfinite(loss):
                raise TrainingError(
                    f"step {state.step}: the loss on the held-out text is not a finite number; set a lower "
                    "learning_rate or a smaller clip"
                )
            if state.note_validation(loss, job.settings.patience):
                self.running.best = weights_of(job.network)
            self.watcher.record("validation", state.history[-1])
            every = job.settings.sample_every
            if job.sample is not None and every and len(state.history) % every == 0:
                self._sample(job.sample)
        state.seconds = time.perf_counter() - self.began
        self.watcher.ignore_time()

    def _sample(self, sample: Callable[[], str]) -> None:
        self.job.network.eval()
        text = sample()
        self.job.network.train()
        self.watcher.record("sample", {"step": self.state.step, "text": text})
        self.job.data.progress.note(f"step {self.state.step} writes: {text}")

    def _farewell(self) -> str:
        """Save where the run stands, and say how to go on."""
        where = f"stopped after step {self.state.step} of {self.state.total}"
        try:
            self._save(is_last=True)
        except TrainingError as error:
            return f"{where}; {error}"
        return f"{where}; go on with --resume (resume=True): {self.job.data.run}"

    def _save_the_end(self) -> None:
        """For whoever cannot write the model; that the checkpoint cannot be written is no reason to lose that."""
        try:
            self._save(is_last=True)
        except TrainingError as error:
            self.job.data.progress.note(f"{error}; the training is finished, and the model is there")

    def _save(self, *, is_last: bool = False) -> None:
        """Write a checkpoint. What fails on the way is tried again later; there is no later for the last one."""
        checkpoints = self.job.checkpoints
        if checkpoints is None:
            return
        try:
            checkpoints.write(self.state.step, self.running.snapshot())
        except OSError as error:
            message = f"the checkpoint of step {self.state.step} could not be written: {error}"
            if is_last:
                raise TrainingError(message) from error
            self.job.data.progress.note(f"{message}; training goes on and tries again later")
        self.saved_at = time.perf_counter()
        self.watcher.ignore_time()


def weights_of(network: Trainable) -> Weights:
    """A copy of the weights, on the CPU, in float32."""
    return {
        name: tensor.detach().to("cpu", torch.float32 if tensor.is_floating_point() else tensor.dtype, copy=True)
        for name, tensor in network.state_dict().items()
    }


def _devices(device: torch.device) -> list[torch.device]:
    """Where chance is kept beside the CPU."""
    return [device] if device.type == "cuda" else []
