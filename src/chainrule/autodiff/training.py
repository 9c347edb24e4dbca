"""The training loop of a network on the tape: forward, backward, a step, and validations between.

It takes the batches that the torch loop takes (training/loop.py), in the same order, and stops as that does.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from chainrule.autodiff import weights
from chainrule.autodiff.gradients import Array
from chainrule.autodiff.model import TapeModel, make_network
from chainrule.autodiff.network import Chance, TapeNetwork
from chainrule.autodiff.optim import Optimiser
from chainrule.autodiff.tape import Tape, no_grad
from chainrule.decode.generate import generate
from chainrule.decode.strategies import TopP
from chainrule.errors import NotANumberError, SettingsError, TrainingError
from chainrule.kinds import TrainingData
from chainrule.neural.designs import count_parameters
from chainrule.neural.vectors import load_vectors
from chainrule.progress import Task
from chainrule.tokens.ids import Encoded
from chainrule.training.gathering import Text
from chainrule.training.layouts import Epoch, Layout, Size, Step, choose_layout
from chainrule.training.notes import before_training, worse_than_guessing
from chainrule.training.pace import Times, pace
from chainrule.training.plan import TrainingSettings
from chainrule.training.schedule import factor
from chainrule.training.state import Decisions, Place, State

SHOW_SECONDS = 1.0
"""Between two looks at the figures beside the bar."""

OFFERED: dict[str, tuple[Any, ...]] = {
    "optimiser": ("sgd", "momentum", "rmsprop", "adam", "adamw"),
    "precision": ("auto", "float32"),
    "compile": ("auto", "no"),
    "average": ("none",),
    "tensorboard": (False,),
}
"""What a setting can be on the tape, where that is not all that torch offers."""

_TIMED_SECONDS, _TIMED_STEPS = 1.0, 20


def train_on_tape(kind: str, settings: Any, data: TrainingData) -> TapeModel:
    """A model of one of the tape's kinds, by its settings."""
    settings = replace(settings, engine="tape")  # what was chosen is what the folder says
    chance = np.random.default_rng(data.seed % 2**64)
    tensors = weights.initial(settings, data.tokenizer.vocab_size, chance)
    network = make_network(settings, data.tokenizer, tensors)
    lm = TapeModel(network, data.tokenizer, data.context, kind=kind, settings=settings)
    coverage = _begin_with_vectors(network, settings.vectors, data) if settings.vectors else {}
    state = Trainer(network, settings, data, chance).run(lambda: _sample(lm, data.seed))
    lm.metrics = {
        **coverage,
        "parameters": count_parameters(
            {name: tensor.shape for name, tensor in tensors.items()}, data.tokenizer.vocab_size
        ),
        "steps": state.step,
        "tokens_seen": state.tokens,
        "validation_nats": state.best_loss,
        "tokens_per_second_in_training": round(state.tokens / max(state.seconds, 1e-9), 1),
    }
    return lm


def check_offered(settings: TrainingSettings, device: str, keeps: bool) -> None:
    """Refuse what only torch offers; whatever the device, if it may be chosen, the tape computes on the CPU."""
    for name, values in OFFERED.items():
        value = getattr(settings, name)
        if value not in values:
            offered = " or ".join(str(one).lower() for one in values)
            raise SettingsError(
                f"{name}={str(value).lower()} is not for engine=tape, which has {offered}; engine=torch has it"
            )
    if device not in ("cpu", "auto"):
        raise SettingsError(f"engine=tape computes on the CPU, not on {device}: engine=torch can")
    if keeps:
        raise SettingsError(
            "engine=tape keeps no checkpoints: leave out the run folder (--run, --resume), or use engine=torch"
        )


@dataclass(frozen=True)
class _Source:
    """A text, and how it is cut into batches."""

    layout: Layout
    text: Text


class Trainer:
    """Takes steps with a network, and keeps its best weights."""

    def __init__(
        self, network: TapeNetwork, settings: TrainingSettings, data: TrainingData, chance: Chance
    ) -> None:
        self.network, self.settings, self.data, self.chance = network, settings, data, chance
        self.train = self._opened(data.train)
        self.valid = None if data.valid is None else self._opened(data.valid)
        if settings.vary_length and not self.train.layout.carries:
            raise SettingsError("vary_length is for a network that carries its memory on, and for --context stream")
        self.tape = Tape(reuse=True)
        self.optimiser = Optimiser(network.parameters.values(), settings)
        self.memories: list[Any] = []
        self.best: dict[str, Array] = {}

    def _opened(self, text: Encoded) -> _Source:
        data, settings = self.data, self.settings
        length = settings.row_length(None, data.context)
        size = Size(length, settings.batch, settings.device_batch or settings.batch)
        layout = choose_layout(
            text.ids, data.tokenizer.eos, data.context, None, size, data.seed, vary=settings.vary_length
        )
        return _Source(layout, Text(text.ids, data.tokenizer, data.context))

    # -- the run ------------------------------------------------------------------------------------------

    def run(self, sample: Callable[[], str] | None = None) -> State:
        """To the end; the network then has its best weights. `sample` gives some text of the network as it is."""
        state = State(self._decide())
        began = time.perf_counter()
        epoch: tuple[int, Epoch] = (0, self.train.layout.epoch(0))
        with self.data.progress.task("training", state.total, "steps") as task:
            shown = _Shown(task, began)
            while not state.is_finished:
                if epoch[0] != state.epoch:
                    epoch = state.epoch, self.train.layout.epoch(state.epoch)
                loss = self._next(state, epoch[1])
                shown.step(loss, state)
                if state.is_validation_due:
                    self._validate(state, sample)
                    shown.ignore_time()
        state.seconds = time.perf_counter() - began
        note = worse_than_guessing(state.best_loss, self.data.tokenizer.vocab_size, self.settings.rate)
        if note is not None:
            self.data.progress.note(note)
        for name, tensor in self.best.items():
            self.network.parameters[name].out_tensor[...] = tensor
        return state

    def _next(self, state: State, epoch: Epoch) -> float:
        settings = self.settings
        step, place = epoch[state.batch], Place(state.step + 1, state.epoch, state.batch)
        rate = factor(settings.schedule, state.step, state.total, settings.warmup) * step.scale
        loss = self.take_step(step, rate, place)
        state.advance(step.targets, len(epoch))
        state.loss_sum += loss
        state.loss_count += 1
        if not self.train.layout.carries or state.batch == 0:
            # an epoch begins at the beginning of each stream, where nothing is remembered
            self.memories = []
        return loss

    def take_step(self, step: Step, rate: float, place: Place) -> float:
        """One step: its mean loss. What is remembered after it goes on into the next."""
        try:
            loss = self._gradients(step)
        except NotANumberError as error:
            raise TrainingError(f"{place}: {error}; set a lower learning_rate or a smaller clip") from None
        except MemoryError:
            tokens = max(len(rows.starts_B) * rows.width for rows in step.parts)
            raise TrainingError(
                f"{place}: {tokens:,} tokens at once do not fit into memory; set device_batch={tokens // 2 or 1}, "
                "a smaller length, or make the network smaller"
            ) from None
        norm = self.optimiser.step(rate)
        if not math.isfinite(loss + norm):
            raise TrainingError(
                f"{place}: the {'gradient' if math.isfinite(loss) else 'loss'} is not a finite number; set a lower "
                "learning_rate or a smaller clip"
            )
        return loss

    def _gradients(self, step: Step) -> float:
        """Add the gradients of the mean loss of a step, part by part. The mean."""
        mean, after = 0.0, []
        for number, rows in enumerate(step.parts):
            memory = self.memories[number] if self.memories else None
            with self.tape:
                # L = 1/n Σ -ln p over the n targets of the whole step, so that parts give what one batch would
                found = self.network.loss(
                    *self.train.text.batch(rows), memory, count=step.targets, chance=self.chance
                )
                self.tape.backward()
            mean += found.mean
            after.append(found.memory)
        self.memories = after
        return mean

    # -- validations --------------------------------------------------------------------------------------

    def _validate(self, state: State, sample: Callable[[], str] | None) -> None:
        """Measure the weights on the held-out text; keep the best."""
        try:
            loss = None if self.valid is None else self.validation_loss()
        except NotANumberError as error:
            raise TrainingError(f"step {state.step}: the held-out text: {error}") from None
        if loss is not None and not math.isfinite(loss):
            raise TrainingError(
                f"step {state.step}: the loss on the held-out text is not a finite number; set a lower "
                "learning_rate or a smaller clip"
            )
        if state.note_validation(loss, self.settings.patience):
            self.best = {name: one.out_tensor.copy() for name, one in self.network.parameters.items()}
        every = self.settings.sample_every
        if sample is not None and every and len(state.history) % every == 0:
            self.data.progress.note(f"step {state.step} writes: {sample()}")

    def validation_loss(self, most_steps: int | None = None) -> float:
        """Mean nats per token of the held-out text, or of its first steps."""
        assert self.valid is not None
        layout, nats, tokens = self.valid.layout, 0.0, 0
        epoch = layout.epoch(None)
        memories: list[Any] = []
        for number in range(len(epoch) if most_steps is None else min(most_steps, len(epoch))):
            step, after = epoch[number], []
            for part, rows in enumerate(step.parts):
                memory = memories[part] if memories else None
                with no_grad():
                    batch = self.valid.text.batch(rows)
                    found = self.network.loss(*batch, memory, count=1, is_measured=True)
                nats += found.mean
                after.append(found.memory)
            memories = after if layout.carries else []
            tokens += step.targets
        return nats / tokens

    # -- before the first step ----------------------------------------------------------------------------

    def _decide(self) -> Decisions:
        times = None if self.settings.minutes is None else self._times(60 * self.settings.minutes)
        total, every = pace(self.settings, self.train.layout, times)
        for note in before_training(self.settings, total, self.train.layout.size.length, self.data.context):
            self.data.progress.note(note)
        measured = {} if times is None else {"step_seconds": times.step, "validation_seconds": times.validation}
        return Decisions(False, False, False, total, every, measured)

    def _times(self, budget: float) -> Times:
        """What a step and a validation take; the weights, and chance, are as before afterwards."""
        began = time.perf_counter()
        rehearsal = Trainer(self.network, self.settings, self.data, np.random.default_rng(0))
        epoch = self.train.layout.epoch(0)
        first = 0.0
        for number in range(1 + _TIMED_STEPS):
            batch = number % len(epoch)
            # at a learning rate of 0 no weight changes
            rehearsal.take_step(epoch[batch], 0.0, Place(number + 1, 0, batch))
            if not self.train.layout.carries or batch + 1 == len(epoch):
                rehearsal.memories = []
            if number == 0:  # in which memory is laid out
                first = time.perf_counter()
            elif time.perf_counter() - first > _TIMED_SECONDS:
                break
        step = (time.perf_counter() - first) / max(number, 1)
        return Times(step, self._validation_seconds(), began + budget - time.perf_counter())

    def _validation_seconds(self) -> float:
        """What a validation takes, told from its first steps."""
        if self.valid is None:
            return 0.0
        steps = self.valid.layout.count(None)
        timed, began = min(steps, 5), time.perf_counter()
        self.validation_loss(timed)
        return (time.perf_counter() - began) * steps / timed


class _Shown:
    """The bar and the figures beside it."""

    def __init__(self, task: Task, now: float) -> None:
        self.task, self.since = task, now
        self.losses: list[float] = []
        self.tokens = 0

    def step(self, loss: float, state: State) -> None:
        """A step is done."""
        self.task.advance(1)
        self.losses.append(loss)
        now = time.perf_counter()
        if now - self.since < SHOW_SECONDS and not state.is_validation_due:
            return
        speed = (state.tokens - self.tokens) / max(now - self.since, 1e-9)
        parts = [f"loss {sum(self.losses) / len(self.losses):.3f}"]
        validation = state.history[-1]["validation_loss"] if state.history else None
        if validation is not None:
            parts.append(f"validation {validation:.3f}")
        self.task.show("  ".join([*parts, f"{speed:,.0f} tokens/s"]))
        self.losses, self.tokens, self.since = [], state.tokens, now

    def ignore_time(self) -> None:
        """What was done since is not training."""
        self.since = time.perf_counter()


def _begin_with_vectors(network: TapeNetwork, path: str, data: TrainingData) -> dict[str, float]:
    vectors = load_vectors(path, data.tokenizer)
    table_VD = network.table.out_tensor
    vectors.check_width(table_VD.shape[1], "embedding")
    table_VD[vectors.ids_N] = vectors.matrix_ND / network.scale
    data.progress.note(str(vectors))
    return {"vectors_coverage": round(vectors.coverage, 4)}


def _sample(lm: TapeModel, seed: int) -> str:
    return generate(lm, "", TopP(0.9), max_tokens=60, seed=seed)
