"""The rule for settings that are left open: sizes, batch, learning rate and regularisation.

A run of some minutes reads as many tokens as the machine allows, and a larger network reads fewer. So the speed of
the machine is measured, on a few steps of a network that looks right, and the largest network is chosen that still
reads three tokens for each parameter of its hidden layers. What else is left open follows from the size and from
how often the text is read. docs/defaults.md has the measurements behind the numbers.

Where steps or epochs are set, nothing is measured: an assumed speed makes the choice the same on every machine.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from chainrule.contract.kinds import TrainingData
from chainrule.errors import TrainingError
from chainrule.networks.defaults import (
    MINUTES,
    MOST_EPOCHS,
    PARAMETERS_PER_TOKEN,
    TOKENS_PER_PARAMETER,
    RunEstimate,
    Values,
    batch_size,
)
from chainrule.networks.settings import NeuralSettings
from chainrule.networks.training_settings import HOW_LONG
from chainrule.settings import open_names
from chainrule.training.backends import Backend
from chainrule.training.examples import Texts
from chainrule.training.planning.advice import costly_vocabulary
from chainrule.training.planning.autotune import Autotune
from chainrule.training.run_state import Mode
from chainrule.training.team import current_team

S = TypeVar("S", bound=NeuralSettings)

ASSUMED_FLOPS = {"cpu": 3e10, "gpu": 1e14}
"""Floating-point operations per second that two cores of a CPU, and a GPU, reach about."""
ASSUMED_SECONDS = 600.0
"""The time for which sizes are chosen where steps or epochs are set."""

_TIMED_STEPS = 3  # on a CPU, after one that does not count
_PROBES = 3  # the most networks that are timed before one is chosen
_SPENT_LEARNING = 0.9  # of the time; the rest goes to timing and validations
_EXCERPT = 1 << 16  # the tokens on which steps are timed
_LARGER, _GAIN = 4, 2.0  # a batch so many times as large is taken if it reads so many times as many tokens
_FEW_EPOCHS = 8.0  # below that, tokens count for more than steps
_TRIAL_SHARE = 0.02  # of the time, for the trial of a larger batch


def with_time(settings: S) -> S:
    """The settings with a limit of time where they have no limit at all."""
    if any(getattr(settings, name) is not None for name in HOW_LONG):
        return settings
    return replace(settings, minutes=MINUTES)


def complete(settings: S, data: TrainingData, texts: Texts, backend: Backend, began: float) -> S:
    """The settings with a value for everything left open, and for the length of the run; `began` is its start."""
    if not open_names(settings):
        return settings
    flops = ASSUMED_FLOPS["cpu" if data.device == "cpu" else "gpu"]
    chosen: S
    if settings.minutes is None:
        chosen = _by_counts(settings, data, flops)
    else:
        left = current_team().agree(60 * settings.minutes - (time.perf_counter() - began))
        chosen = _by_speed(_Search(settings, data, max(0.0, left)), texts, backend, flops)
    return chosen


def remembered(settings: S, then: Values) -> S:
    """The settings with the values that a checkpoint has for those left open, and for an unchanged length."""
    names = set(open_names(settings))
    limits = {name: getattr(settings, name) for name in HOW_LONG}
    if all(value is None or value == then[name] for name, value in limits.items()):
        names |= limits.keys()
    return replace(settings, **{name: then[name] for name in names if name in then})


# -- the choice -------------------------------------------------------------------------------------------


@dataclass
class _Search:
    """The search for a size, for a run that has `seconds` left."""

    settings: Any
    data: TrainingData
    seconds: float
    rates: dict[int, float] = field(default_factory=dict)
    """The tokens per second of the sizes that were timed."""

    def __post_init__(self) -> None:
        tokens, vocab_size = self.data.train.tokens, self.data.tokenizer.vocab_size
        sizes = _candidates(self.settings)
        self.filled = [_filled(self.settings, values, RunEstimate(tokens, tokens, vocab_size)) for values in sizes]
        self.costs = [one.cost(vocab_size) for one in self.filled]
        most = PARAMETERS_PER_TOKEN * tokens
        self.fitting = [i for i, cost in enumerate(self.costs) if i == 0 or cost.hidden <= most]

    def best(self, flops: float) -> int:
        """The largest size that reads enough tokens at this speed; the smallest if none does."""
        enough = [
            i
            for i in self.fitting
            if flops * self.seconds >= TOKENS_PER_PARAMETER * self.costs[i].hidden * self.costs[i].flops
        ]
        return max(enough, key=lambda i: self.costs[i].hidden, default=0)

    def prospect(self, rate: float) -> RunEstimate:
        """What a run reads at so many tokens per second."""
        tokens, seen = self.data.train.tokens, max(1.0, rate * self.seconds * _SPENT_LEARNING)
        if self.settings.epochs is not None:
            seen = min(seen, self.settings.epochs * tokens)
        return RunEstimate(tokens, seen, self.data.tokenizer.vocab_size)

    def complete(self, index: int, rate: float) -> Any:
        """The settings with this size, at so many tokens per second."""
        settings, prospect = self.settings, self.prospect(rate)
        if settings.epochs is None and settings.steps is None and prospect.epochs > MOST_EPOCHS:
            settings = replace(settings, epochs=float(MOST_EPOCHS))
            prospect = replace(prospect, seen=float(MOST_EPOCHS * prospect.tokens))
        return _filled(settings, _candidates(settings)[index], prospect)


def _by_speed(search: _Search, texts: Texts, backend: Backend, flops: float) -> Any:
    """The choice for a limit of time: sizes are timed, beginning with one that an assumed speed suggests."""
    index = search.best(flops)
    with search.data.progress.task("choosing sizes"):
        for _ in range(_PROBES):
            cost = search.costs[index].flops
            guess = search.complete(index, flops / cost if cost else 1e4)
            search.rates[index] = _tokens_per_second(guess, search.data, texts, backend)
            flops = search.rates[index] * cost
            if (better := search.best(flops)) in search.rates:
                break
            index = better
    index = max((i for i in search.rates if _reads_enough(search, i)), default=min(search.rates))
    data, prospect = search.data, search.prospect(search.rates[index])
    size, minutes = data.tokenizer.vocab_size, search.settings.minutes
    if (note := costly_vocabulary(search.costs[index], prospect, size, minutes)) is not None:
        data.progress.note(note)
    return _with_larger_batch(search, index, texts, backend)


def _with_larger_batch(search: _Search, index: int, texts: Texts, backend: Backend) -> Any:
    """The settings of a size, with a larger batch as long as that pays.

    Part of the time of a step does not depend on its batch: a GPU waits for its kernels to be started, and the
    optimiser updates every parameter. Where that is most of the time, a larger batch reads far more tokens. Not so
    where the text is read many times: there it would learn by heart in fewer steps.
    """
    rate, data = search.rates[index], search.data
    chosen = search.complete(index, rate)
    while "batch" in open_names(search.settings) and search.prospect(rate).epochs < _FEW_EPOCHS:
        larger = replace(chosen, batch=_LARGER * chosen.batch)
        takes_long = (1 + _TIMED_STEPS) * larger.batch / rate > _TRIAL_SHARE * search.seconds
        if takes_long or larger.batch > min(_EXCERPT, data.train.tokens // 8):
            break
        faster = _tokens_per_second(larger, data, texts, backend)
        if faster < _GAIN * rate:
            break
        rate, chosen = faster, replace(search.complete(index, faster), batch=larger.batch)
    return chosen


def _reads_enough(search: _Search, index: int) -> bool:
    """Whether a size that was timed reads enough tokens, or nearly so: timing is not exact."""
    wanted = TOKENS_PER_PARAMETER * search.costs[index].hidden
    return bool(search.rates[index] * search.seconds >= 0.8 * wanted)


def _by_counts(settings: Any, data: TrainingData, flops: float) -> Any:
    """The choice for a number of steps or epochs, from the tokens that they read."""
    tokens = data.train.tokens
    seen = (settings.epochs or 1.0) * tokens
    if settings.steps is not None:
        # the batch is the square root of what is read: so are the steps
        seen = float(settings.steps * (settings.batch or batch_size(RunEstimate(tokens, settings.steps**2))))
    search = _Search(settings, data, ASSUMED_SECONDS)
    enough = [
        i
        for i in search.fitting
        if seen >= TOKENS_PER_PARAMETER * search.costs[i].hidden
        and seen * search.costs[i].flops <= flops * ASSUMED_SECONDS
    ]
    index = max(enough, key=lambda i: search.costs[i].hidden, default=0)
    prospect = RunEstimate(tokens, seen, data.tokenizer.vocab_size)
    return _filled(settings, _candidates(settings)[index], prospect)


def _candidates(settings: Any) -> list[Values]:
    """The sizes to choose from, without those that are set."""
    names = set(open_names(settings))
    every = [{name: value for name, value in sizes.items() if name in names} for sizes in settings.sizes()]
    return [sizes for i, sizes in enumerate(every) if sizes not in every[:i]]


def _filled(settings: Any, sizes: Values, prospect: RunEstimate) -> Any:
    """The settings with these sizes, and all that goes with them."""
    names = set(open_names(settings))
    sized = replace(settings, **sizes)
    habits = {name: value for name, value in sized.values_for(prospect).items() if name in names - set(sizes)}
    return replace(sized, **habits)


def in_words(settings: Any, chosen: Any) -> str:
    """The values that were chosen, as they would be set; what is 0, such as dropout, is left out."""
    values = {name: getattr(chosen, name) for name in open_names(settings)}
    shown = {
        name: f"{value:g}" if isinstance(value, float) else str(value).lower() for name, value in values.items()
    }
    return " ".join(f"{name}={shown[name]}" for name, value in values.items() if value)


# -- timing -----------------------------------------------------------------------------------------------


def _tokens_per_second(settings: Any, data: TrainingData, texts: Texts, backend: Backend) -> float:
    """The tokens that a network of these settings learns from in a second, by a few steps on an excerpt."""
    engine = backend.engine(backend.build(settings, data), settings, data)
    feed = texts.train.beginning(_EXCERPT).feed(engine, settings, data.seed)
    with engine.running(data.seed):
        timer = Autotune(engine, settings, feed, None)
        layout = timer.train.layout
        seconds = (
            _seconds_on_gpu(timer)
            if data.device.startswith("cuda")
            else timer.seconds(Mode(), at_most=_TIMED_STEPS)
        )
    return layout.read / layout.count(0) / seconds


def _seconds_on_gpu(timer: Autotune) -> float:
    """The seconds of a step as a GPU will take it: as a captured graph if possible, twice as fast at best."""
    layout, mode = timer.train.layout, Mode(bfloat16=True)
    if layout.one_shape and layout.size.rows <= layout.size.rows_at_once and timer.processes == 1:
        try:
            return timer.seconds(mode._replace(recorded=True))
        except (RuntimeError, TrainingError):  # code that cannot be captured, or too little memory
            pass
    return timer.seconds(mode, warm=5)  # the first steps on a GPU are slow
