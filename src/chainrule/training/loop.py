"""The training loop, for any network and any engine: from the first step, or a checkpoint, to the best weights."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from chainrule.contract.data import TrainingData
from chainrule.errors import Interrupted, SettingsError, TrainingError
from chainrule.networks.config import regularisers
from chainrule.networks.training_settings import TrainingSettings
from chainrule.system.progress import Task
from chainrule.system.signals import Interrupts
from chainrule.system.threads import ThreadChoice
from chainrule.training.checkpoints.checkpoint import Checkpoint, Checkpoints, changes, identity
from chainrule.training.checkpoints.run_folder import check_run
from chainrule.training.engines.base import Engine, Snapshot, Weights
from chainrule.training.examples import Texts, texts_of
from chainrule.training.objectives import Feed
from chainrule.training.planning import Autotune, Pace, after_training, before_training, long_run
from chainrule.training.regularisation import Overfitting
from chainrule.training.run_state import Place, RunState
from chainrule.training.schedule import factor
from chainrule.training.tracking import MetricsLog, Run

READ_SECONDS = 1.0
"""Seconds between two reads of the losses, each of which waits for the device."""
BEST = "best/"
"""The prefix of the names of the best weights in a checkpoint."""
_SECONDS_TO_JUDGE = 5.0  # of steps, before their speed says how long the run takes


class Job:
    """Everything about a run that does not change while it trains, such as its texts, cut into batches."""

    def __init__(
        self,
        engine: Engine,
        settings: TrainingSettings,
        data: TrainingData,
        texts: Texts,
        sample: Callable[[], str] | None = None,
    ) -> None:
        self.engine, self.settings, self.data, self.texts, self.sample = engine, settings, data, texts, sample
        self.train = texts.train.feed(engine, settings, data.seed)
        self.valid = None if texts.valid is None else texts.valid.feed(engine, settings, data.seed)
        """All of the held-out text."""
        if settings.vary_length and not self.train.layout.carries:
            raise SettingsError("vary_length is for a network that carries its memory on, and for --context stream")
        self.checkpoints = None if data.run is None else Checkpoints(data.run, data.progress)
        self.identity = identity(engine.shapes(), settings, data, texts.train.objective)
        """Settings, network, objective and data, which resuming compares with those of the checkpoint."""
        self.is_kept = engine.team.agree(self.checkpoints is not None)
        """True if there are checkpoints, which only the first of many processes writes."""

    @property
    def watches_overfitting(self) -> bool:
        """True if the strength of regularisation follows the overfitting that is measured."""
        settings = self.settings
        is_any = any(getattr(settings, name) for name in regularisers(settings))
        return settings.regularise == "as-needed" and is_any and self.valid is not None

    @property
    def autotune(self) -> Autotune:
        return Autotune(self.engine, self.settings, self.train, self.valid)

    def held_out(self, tokens: int | None) -> Feed | None:
        """Return the held-out text, or a sample of about `tokens` tokens."""
        if tokens is None or self.texts.valid is None:
            return self.valid
        return self.texts.valid.sampled(tokens).feed(self.engine, self.settings, self.data.seed)


class Loop:
    """A run in progress: steps, and between them logging, validations and checkpoints."""

    def __init__(
        self, job: Job, state: RunState, began: float, best: Weights | None = None, *, is_decided: bool
    ) -> None:
        self.job, self.state, self.best, self.is_decided = job, state, best, is_decided
        self.valid = job.held_out(state.decisions.validation_tokens)
        self.seen: Feed | None = None
        """A sample of the training text as large as the held-out one, if overfitting is measured."""
        if job.watches_overfitting and self.valid is not None:
            sampled = job.texts.train.sampled(self.valid.layout.tokens)
            self.seen = sampled.feed(job.engine, job.settings, job.data.seed)
        job.engine.regularise(state.overfitting.strength)
        self.pace = Pace.of(state.total, job.settings.minutes)
        self.log = MetricsLog(job.engine, job.data.progress)
        # a run of a given number of steps keeps its threads, and so its sums bit for bit
        by_clock = job.settings.minutes is not None and job.data.device == "cpu" and job.engine.team.size == 1
        self.threads = ThreadChoice() if by_clock else None
        self.epoch = state.epoch, job.train.layout.epoch(state.epoch)
        self.interrupts = Interrupts(on=job.is_kept)
        self.received: int | None = None
        now = self._tick()
        self.began, self.read_at, self.saved_at = began - state.seconds, now, now
        # the seconds of a validation, as they were measured before the first step
        rate = state.decisions.measured.get("validation_tokens_per_second")
        self.validation_seconds = 0.0 if self.valid is None or rate is None else self.valid.layout.tokens / rate
        if state.step == 0 or self._share() < state.validated:  # the run begins, or was made longer
            state.validated = self._share()
        self.is_over, self.is_warned = self._is_over(), False
        self.first, self.stepping = state.step, now  # the step and the time at which this process started

    def run(self) -> None:
        """Take all steps that are left."""
        state, job = self.state, self.job
        try:
            self._open_log()
            seconds = self.pace.seconds
            length, unit = (self.pace.steps, "steps") if seconds is None else (round(seconds, 1), "s")
            with job.data.progress.task("training", length, unit) as task, self.interrupts:
                self.shown = 0.0
                self._show_progress(task)
                while not (self.is_over or state.stopped):
                    began = self.now
                    self._step()
                    self._tick()
                    if self.threads is not None:
                        self.threads.step_took(self.now - began)
                    self.is_over = self._is_over()
                    self._between_steps(task)
                if not state.history or state.history[-1]["step"] < state.step:
                    self._validate()  # interrupted between validations, then resumed with no step left
                try:  # in case the model cannot be written
                    self._save(is_last=True)
                except TrainingError as error:
                    note = f"{error}; the training has finished, and the model is complete"
                    job.data.progress.note(note)
        finally:
            job.engine.regularise(1.0)
            self.log.close()

    def _open_log(self) -> None:
        state, job = self.state, self.job
        loggers = {job.settings.logger, "tensorboard" if job.settings.tensorboard else "none"} - {"none"}
        if job.data.run is None and job.is_kept:
            loggers = set()  # the first of many processes, which alone has a run folder, logs for all
        self.log.open(Run(job.data.run, asdict(job.settings), state.step), state.tokens, loggers)
        if self.is_decided:
            decided = {"step": state.step, **asdict(state.decisions), "settings": asdict(job.settings)}
            self.log.record("decisions", decided)

    # -- the length of the run ----------------------------------------------------------------------------

    def _tick(self) -> float:
        """Read the clock and the signals; many processes do so together."""
        # the signal is read only once: it may arrive at any moment
        self.now, self.received = self.job.engine.team.tick(time.perf_counter(), self.interrupts.received)
        return self.now

    def _elapsed(self) -> float:
        """Return the seconds of the run so far, including those before it was resumed."""
        return self.now - self.began

    def _is_over(self) -> bool:
        """Return True if no step is left, or no time for another one and the last validation."""
        state, limit = self.state, self.pace.seconds
        if state.is_finished or limit is None or state.step == 0:
            return state.is_finished
        return self._elapsed() + self.validation_seconds >= limit

    def _share(self) -> float:
        """Return how much of the run is done, from 0 to 1."""
        done, whole = self.pace.place(self.state.step, self._elapsed())
        return done / whole

    def _show_progress(self, task: Task) -> None:
        now = float(self.state.step) if self.pace.seconds is None else min(self._elapsed(), self.pace.seconds)
        task.advance(now - self.shown)
        self.shown = now

    # -- a step -------------------------------------------------------------------------------------------

    def _step(self) -> None:
        state, job = self.state, self.job
        if self.epoch[0] != state.epoch:
            self.epoch = state.epoch, job.train.layout.epoch(state.epoch)
        steps = self.epoch[1]
        step, place = steps[state.batch], Place(state.step + 1, state.epoch, state.batch)
        elapsed = self._elapsed()
        done, whole = self.pace.place(state.step, elapsed)
        rate = factor(job.settings.schedule, done, whole, job.settings.warmup) * step.scale
        job.engine.take_step(job.train, step, rate, place)
        state.advance(step.targets, len(steps))
        job.engine.average_weights(state.step, self.pace.expected_steps(state.step, elapsed), state.stalled)
        if state.batch == 0:
            # an epoch starts at the beginning of each stream, with an empty memory
            job.engine.forget()

    # -- between steps ------------------------------------------------------------------------------------

    def _between_steps(self, task: Task) -> None:
        now, received = self.now, self.received
        is_time_to_save = now - self.saved_at >= 60 * self.job.settings.checkpoint_minutes
        is_validation_due = self._is_validation_due()
        is_pause = is_validation_due or is_time_to_save or received is not None
        if is_pause or now - self.read_at >= self._between_reads():
            self._read(task)
        if is_validation_due:
            self._validate()
        elif self.seen is not None and self.state.epoch >= self.state.overfitting.next_epoch:
            self._adapt_regularisation()
        if received is not None:
            raise Interrupted(self._save_before_stopping(), received)
        if is_time_to_save:
            self._save()

    def _is_validation_due(self) -> bool:
        """Return True if a validation follows the step that was just done; always after the last one."""
        every = self.state.decisions.validate_every
        if self.is_over:
            return True
        if every is not None:
            return self.state.step % every == 0
        share, interval = self._share(), 1 / self.state.decisions.validations
        # none shortly before the last one
        return share - self.state.validated >= interval and 1 - share >= interval / 2

    def _between_reads(self) -> float:
        """Return the seconds between two reads of the losses; fewer near the end, so that the device keeps up."""
        limit = self.pace.seconds
        is_near = limit is not None and limit - self._elapsed() < 3 * READ_SECONDS
        return READ_SECONDS / 10 if is_near else READ_SECONDS

    def _read(self, task: Task) -> None:
        """Read and log the losses of the steps since the last call."""
        state, figures = self.state, self.job.engine.read_figures()
        for one in figures:  # one by one: however often losses are read, the sum is the same to the last bit
            state.loss_sum += one.loss
        state.loss_count += len(figures)
        self.read_at = self._tick()
        state.seconds = self.read_at - self.began
        self._show_progress(task)
        record = {
            "step": state.step,
            "tokens": state.tokens,
            "seconds": round(state.seconds, 3),
            "loss": sum(one.loss for one in figures) / len(figures),
            "learning_rate": self.job.engine.learning_rate,
            "grad_norm": figures[-1].norm,
        }
        self.log.steps(task, record)
        self._warn_of_hours()

    def _warn_of_hours(self) -> None:
        """Say once, after the first seconds, that a run of steps will take hours."""
        seconds = self.now - self.stepping
        if self.is_warned or seconds < _SECONDS_TO_JUDGE or self.pace.steps is None:
            return
        self.is_warned = True
        left = (self.pace.steps - self.first) * seconds / max(1, self.state.step - self.first)
        if (note := long_run(left, self.job.settings.minutes)) is not None:
            self.job.data.progress.note(note)

    def _validate(self) -> None:
        """Measure the loss on the held-out text, of averaged weights if there are any; keep the best weights."""
        state, job, engine = self.state, self.job, self.job.engine
        began = self._tick()
        with engine.measuring():
            try:
                loss = None if self.valid is None else engine.mean_nats(self.valid)
            except TrainingError as error:
                raise TrainingError(f"step {state.step}: {error}") from error
            if loss is not None and not math.isfinite(loss):
                raise TrainingError(
                    f"step {state.step}: the loss on the held-out text is not a finite number; set a lower "
                    "learning_rate or a smaller clip"
                )
            if state.note_validation(loss, job.settings.patience):
                self.best = engine.weights()
            self.validation_seconds = self._tick() - began
            state.validated = self._share()
            self.log.record("validation", state.history[-1])
            every = job.settings.sample_every
            if job.sample is not None and every and len(state.history) % every == 0:
                text = job.sample()
                self.log.record("sample", {"step": state.step, "text": text})
                job.data.progress.note(f"step {state.step} writes: {text}")
        if self.seen is not None and state.epoch > 0 and not self.is_over:
            self._adapt_regularisation(loss)
        state.seconds = self._tick() - self.began
        self.log.ignore_time()

    def _adapt_regularisation(self, held_out: float | None = None) -> None:
        """Measure overfitting, and set the strength of regularisation; `held_out` is a loss that is known."""
        assert self.seen is not None and self.valid is not None
        state, engine = self.state, self.job.engine
        with engine.measuring():
            held_out = engine.mean_nats(self.valid) if held_out is None else held_out
            gap = held_out - engine.mean_nats(self.seen)
        before, strength = state.overfitting.strength, state.overfitting.measured(gap, state.epoch)
        if strength != before:
            engine.regularise(strength)
        figures = {"step": state.step, "epoch": state.epoch, "gap": gap, "strength": strength}
        self.log.record("regularisation", figures)
        self._tick()
        self.log.ignore_time()

    def _save_before_stopping(self) -> str:
        """Write a last checkpoint; returns a message that says how to resume."""
        of = "" if self.state.total is None else f" of {self.state.total}"
        where = f"stopped after step {self.state.step}{of}"
        try:
            self._save(is_last=True)
        except TrainingError as error:
            return f"{where}; {error}"
        run = self.job.data.run
        return f"{where}; go on with: chainrule resume {run} (in Python, resume({str(run)!r}))"

    def _save(self, *, is_last: bool = False) -> None:
        """Write a checkpoint. A failure is noted and retried later, unless this is the last checkpoint."""
        if not self.job.is_kept:
            return
        try:
            self.job.engine.team.write(self.job.checkpoints, self.state.step, self._checkpoint())
        except OSError as error:
            message = f"the checkpoint of step {self.state.step} could not be written: {error}"
            if is_last:
                raise TrainingError(message) from error
            self.job.data.progress.note(f"{message}; training goes on and tries again later")
        self.saved_at = self._tick()
        self.log.ignore_time()

    def _checkpoint(self) -> Checkpoint:
        snapshot = self.job.engine.snapshot()
        best = {BEST + name: array for name, array in (self.best or {}).items()}
        state = {
            "identity": self.job.identity,
            "counts": snapshot.counts,
            "state": self.state.to_json(),
            "processes": self.job.engine.team.size,
        }
        return Checkpoint({**snapshot.arrays, **best}, state)


# -- a whole run ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Trained:
    """The result of a training run; the network itself holds the best weights."""

    best: Weights
    """The weights with the lowest validation loss; without held-out text, the last (or averaged) weights."""
    last: Weights
    state: RunState
    """Steps, tokens, seconds and losses at the end of the run, and the decisions before its first step."""
    earlier: float
    """The part of the seconds that was spent before the run was resumed."""
    validation_tokens: int | None
    """The number of held-out tokens that validations read; None: there was no held-out text."""


def train_network(
    engine: Engine,
    settings: TrainingSettings,
    data: TrainingData,
    *,
    texts: Texts | None = None,
    sample: Callable[[], str] | None = None,
    began: float | None = None,
) -> Trained:
    """Train the network of an engine on examples; `sample` returns text generated by the network, for the log.

    `texts` are the examples; None: those of a language model. The time of the run counts from `began`, a value of
    `time.perf_counter`, or from now.
    """
    check_run(data.run, resume=data.resume)
    began = engine.team.agree(time.perf_counter() if began is None else began)
    job = Job(engine, settings, data, texts or texts_of(data), sample)
    with engine.running(data.seed):
        loop = _begin(job, began)
        earlier = loop.state.seconds
        loop.run()
    state = loop.state
    assert loop.best is not None  # there is a validation after the last step
    last, best = engine.gathered(engine.weights()), engine.gathered(loop.best)
    for note in after_training(settings, state.step, state.best_loss, data.tokenizer.vocab_size):
        data.progress.note(note)
    engine.load_weights(best)
    return Trained(best, last, state, earlier, None if loop.valid is None else loop.valid.layout.tokens)


def _begin(job: Job, began: float) -> Loop:
    """Return the loop at its first step, or resumed from the newest checkpoint; its time counts from `began`."""
    found = job.engine.team.newest(job.checkpoints if job.data.resume else None)
    if found is not None:
        return _resume(job, found, began)
    if job.data.resume:
        job.data.progress.note(f"{job.data.run}: there is no checkpoint: training begins anew")
    state = RunState(job.autotune.decide(), overfitting=Overfitting(0.0 if job.watches_overfitting else 1.0))
    if job.valid is None:
        job.data.progress.note("there is no held-out text: the last weights are kept, not the best ones")
    length, window = job.train.layout.size.length, job.engine.window
    for note in before_training(job.settings, length, job.data.context, window):
        job.data.progress.note(note)
    job.engine.start(state.decisions.mode)
    return Loop(job, state, began, is_decided=True)


def _resume(job: Job, found: Checkpoint, began: float) -> Loop:
    """Return the loop resumed from a checkpoint; settings that are allowed to change take their new values."""
    changed = changes(found.state["identity"], job.identity)
    state = RunState.from_json(found.state["state"])
    before, state.decisions = state.decisions, job.autotune.decide_anew(state, changed)
    patience, is_replanned = job.settings.patience, state.total != before.total
    state.stopped = state.is_stalled(patience)
    if state.stopped and is_replanned:
        raise SettingsError(
            f"training stopped since {state.stalled} validations in a row found nothing better: to go on, set more "
            f"patience than {patience}"
        )
    job.engine.start(state.decisions.mode)
    # compiling changes the micro-batches too: the last one is padded to the shape of the others
    is_cut_anew = "device_batch" in changed or state.decisions.compiled != before.compiled
    if job.settings.device_batch is not None and found.state.get("processes", 1) != job.engine.team.size:
        is_cut_anew = True  # the limit is for each process
    forgets = is_cut_anew and job.train.layout.carries
    # copied, since they are memory-mapped from a checkpoint that is removed once there are newer ones
    best = job.engine.copied(
        {name.removeprefix(BEST): array for name, array in found.arrays.items() if name.startswith(BEST)}
    )
    others = {name: array for name, array in found.arrays.items() if not name.startswith(BEST)}
    job.engine.restore(Snapshot(others, found.state["counts"]), None if forgets else job.train)
    # how many steps the run would have had, and how many it will have now
    minutes = found.state["identity"]["settings"].get("minutes"), job.settings.minutes
    paces = (Pace.of(total, of) for total, of in zip((before.total, state.total), minutes, strict=True))
    job.engine.replan(state.step, *(pace.expected_steps(state.step, state.seconds) for pace in paces))
    note = job.data.progress.note
    if is_replanned:
        note(f"{state.step:,} steps are done, of {_number(state.total)}; the plan was {_number(before.total)}")
    if forgets:
        note("the micro-batches have changed: the memory of the text so far is dropped")
    return Loop(job, state, began, best or None, is_decided=state.decisions != before)


def _number(steps: int | None) -> str:
    return "as many as time allows" if steps is None else f"{steps:,}"
