"""The rule for settings that are left open: sizes, batch, learning rate and regularisation.

A run of some minutes reads as many tokens as the machine allows, and a larger network reads fewer. So the speed of
the machine is measured, on a few steps of a network that looks right, and the largest network is chosen that still
reads three tokens for each parameter of its hidden layers. The other settings follow from the size and from how
often the text is read, as each settings class says. docs/defaults.md has the measurements behind the numbers.

Where steps or epochs are set, nothing is measured: an assumed speed makes the choice the same on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from chainrule.contract.data import TrainingData
from chainrule.networks.training_settings import HOW_LONG, TrainingSettings
from chainrule.settings import open_names

S = TypeVar("S", bound=TrainingSettings)

Values: TypeAlias = dict[str, Any]
"""Values of settings by name."""

MINUTES = 5.0
"""The time of a run where neither minutes nor steps nor epochs are set."""

MOST_EPOCHS = 200
"""The most passes over a text, however much time there is."""

TOKENS_PER_PARAMETER = 3.0
"""A network is worth its cost if it reads at least this many tokens for each parameter of its hidden layers."""

PARAMETERS_PER_TOKEN = 10.0
"""The most parameters in hidden layers for each token of the text: more would learn it by heart."""

ASSUMED_FLOPS = {"cpu": 3e10, "gpu": 1e14}
"""Floating-point operations per second that two cores of a CPU, and a GPU, reach about."""

ASSUMED_SECONDS = 600.0
"""The time for which sizes are chosen where steps or epochs are set."""

TIMED_STEPS, TIMED_TOKENS = 3, 1 << 16
"""The steps that are timed on a CPU, after one that does not count, and the tokens of the text for them."""

SUBWORDS, COSTLY = 8192, 0.8
"""The usual size of a vocabulary of subwords, and the share of the time from which on a larger one is costly."""

_MULTIPLE = 64
_WIDTHS = 16  # a width that is chosen for a number of parameters is a multiple of this
_PROBES = 3  # the most networks that are timed before one is chosen
_SPENT_LEARNING = 0.9  # of the time; the rest goes to timing and validations
_LARGER, _GAIN = 4, 2.0  # a batch that is _LARGER times as large is taken if it reads _GAIN times the tokens
_FEW_EPOCHS = 8.0  # below that, tokens count for more than steps
_TRIAL_SHARE = 0.02  # of the time, for the trial of a larger batch
_FEWEST_STEPS = 40  # of a run by the clock: one that is too short for them takes smaller steps


@dataclass(frozen=True)
class RunEstimate:
    """What is known about the length of a run before its first step."""

    tokens: int
    """The number of tokens in the text."""
    seen: float
    """The number of tokens that the run will read, roughly; a token that is read twice counts twice."""
    vocab_size: int = 0

    @property
    def epochs(self) -> float:
        """The number of passes over the text."""
        return self.seen / max(1, self.tokens)


@dataclass(frozen=True)
class Cost:
    """The parameters that one token is multiplied by, on its way through a network."""

    hidden: int
    """In hidden layers."""
    head: int
    """In the output layer, which grows with the vocabulary."""
    tokens_per_parameter: float = TOKENS_PER_PARAMETER
    """The tokens that the network has to read for each parameter of its hidden layers."""

    @property
    def wanted_tokens(self) -> float:
        """The tokens that the network has to read to be worth its cost."""
        return self.tokens_per_parameter * self.hidden

    @property
    def flops(self) -> float:
        """Floating-point operations to train on a token: a product and a sum, once forward and twice backward."""
        return 6.0 * (self.hidden + self.head)


def batch_size(run: RunEstimate, least: int = 256) -> int:
    """Return the tokens of a step: the power of two below the square root of all tokens read, but at least `least`.

    So the number of steps and their size grow alike. A step takes no more than an eighth of the text, so that an
    epoch has a few steps.

    >>> batch_size(RunEstimate(tokens=10**6, seen=1.2e6))
    1024
    """
    power = 1 << int(math.log2(max(1.0, run.seen)) / 2)
    return max(_MULTIPLE, min(max(least, power), 1 << 16, run.tokens // 8 // _MULTIPLE * _MULTIPLE))


def least_batch(optimiser: str, width: int) -> int:
    """Return the fewest tokens of a step: Muon's products cost as much as reading 5 tokens for each feature."""
    return max(256, 4 * width) if optimiser == "muon" else 256


def dropout_share(run: RunEstimate) -> float:
    """Return the share to drop: nothing for up to four epochs, then more with each doubling, half at most.

    >>> [round(dropout_share(RunEstimate(100, 100 * epochs)), 2) for epochs in (1, 4, 8, 32, 200)]
    [0.0, 0.0, 0.11, 0.33, 0.5]
    """
    return round(min(0.5, max(0.0, 0.11 * math.log2(max(run.epochs, 1e-9) / 4))), 3)


def rate_of_few_steps(rate: float, run: RunEstimate, batch: int) -> float:
    """Return the learning rate of a run of few steps: higher below 3,000 of them, twice as high below 1,500.

    >>> rate_of_few_steps(0.008, RunEstimate(10**6, seen=2e6), batch=1024)
    0.012
    """
    return float(f"{rate * min(2.0, max(1.0, 3000 * batch / run.seen)):.2g}")


# -- the choice -------------------------------------------------------------------------------------------


def with_time(settings: S) -> S:
    """Return the settings with a limit of time if they have no limit at all."""
    if any(getattr(settings, name) is not None for name in HOW_LONG):
        return settings
    return replace(settings, minutes=MINUTES)


def remembered(settings: S, then: Values) -> S:
    """Return the settings with the values of a checkpoint for those left open, and for an unchanged length."""
    names = set(open_names(settings))
    limits = {name: getattr(settings, name) for name in HOW_LONG}
    if all(value is None or value == then[name] for name, value in limits.items()):
        names |= limits.keys()
    return replace(settings, **{name: then[name] for name in names if name in then})


def complete(settings: S, data: TrainingData, speed: Callable[[S], float], seconds: float | None) -> S:
    """Return the settings with a value for everything left open.

    `speed` times a network of given settings, in tokens per second. `seconds` is the time that a run by the clock
    has left; None: the run has a number of steps or epochs, and nothing is timed.
    """
    if not open_names(settings):
        return settings
    flops = ASSUMED_FLOPS["cpu" if data.device == "cpu" else "gpu"]
    search = _Search(settings, data, ASSUMED_SECONDS if seconds is None else max(0.0, seconds))
    chosen: S = _by_counts(search, flops) if seconds is None else _by_speed(search, speed, flops)
    return chosen


def of_flops(settings: TrainingSettings, data: TrainingData, flops: float) -> Values:
    """Return the sizes and the epochs of a training that takes this number of floating-point operations."""
    search = _Search(settings, data, 1.0)
    index = search.best(flops)
    return {**search.sizes[index], "epochs": flops / search.costs[index].flops / search.tokens}


def of_parameters(settings: TrainingSettings, data: TrainingData, parameters: float) -> Values:
    """Return the sizes of a network of about this number of parameters: the sizes to choose from, made wider."""
    search = _Search(settings, data, 1.0)
    once, search.sizes = RunEstimate(search.tokens, search.tokens, search.vocab_size), list(_widened(search.sizes))
    counts = [search.filled(i, once).parameters(search.vocab_size) for i in range(len(search.sizes))]
    return search.sizes[min(range(len(counts)), key=lambda i: abs(math.log(counts[i] / parameters)))]


def _widened(every: list[Values]) -> Iterator[Values]:
    """Yield sizes, each with widths up to twice as large, and the smallest with smaller ones too."""
    for place, sizes in enumerate(every):
        for sixteenths in range(16 if place else 4, 32):
            yield {
                name: value
                if name == "layers"
                else max(_WIDTHS, round(value * sixteenths / 16 / _WIDTHS) * _WIDTHS)
                for name, value in sizes.items()
            }


def in_words(settings: Any, chosen: Any) -> str:
    """Return the values that were chosen, as a user would set them; zeros, such as no dropout, are left out."""
    values = {name: getattr(chosen, name) for name in open_names(settings)}
    shown = {
        name: f"{value:g}" if isinstance(value, float) else str(value).lower() for name, value in values.items()
    }
    return " ".join(f"{name}={shown[name]}" for name, value in values.items() if value)


def reason(settings: Any, name: str) -> str:
    """Return why a setting that is left open gets its value.

    >>> from chainrule.networks.recurrent.settings import LstmSettings
    >>> reason(LstmSettings(), "batch")
    'about the square root of the tokens that are read; more if that is far faster'
    """
    if any(name in sizes for sizes in settings.sizes()):
        return "the largest network that reads enough tokens for each parameter of its hidden layers"
    if name.endswith("dropout"):
        return "none for a few passes over the text, more with each doubling of them"
    return _REASONS.get(name, "what was best in measurements (docs/defaults.md)")


_REASONS = {
    "minutes": "neither minutes nor steps nor epochs were given",
    "epochs": f"no text is read more than {MOST_EPOCHS} times",
    "batch": "about the square root of the tokens that are read; more if that is far faster",
    "learning_rate": "what was best in measurements for the optimiser and the width",
    "heads": "follows from the width",
    "tied": "one table of vectors for inputs and outputs if the vocabulary is large",
}


@dataclass
class _Search:
    """The search for a size, for a run that has `seconds` left."""

    settings: Any
    data: TrainingData
    seconds: float
    rates: dict[int, float] = field(default_factory=dict)
    """The tokens per second of the sizes that were timed."""

    def __post_init__(self) -> None:
        self.tokens, self.vocab_size = self.data.train.tokens, self.data.tokenizer.vocab_size
        names = set(open_names(self.settings))
        every = [{name: value for name, value in sizes.items() if name in names} for sizes in self.settings.sizes()]
        self.sizes = [sizes for i, sizes in enumerate(every) if sizes not in every[:i]]
        once = RunEstimate(self.tokens, self.tokens, self.vocab_size)
        self.costs = [self.filled(i, once).cost(self.vocab_size) for i in range(len(self.sizes))]
        most = self.settings.parameters_per_token * self.tokens
        self.fitting = [i for i, cost in enumerate(self.costs) if i == 0 or cost.hidden <= most]

    def filled(self, index: int, estimate: RunEstimate, **others: Any) -> Any:
        """Return the settings with this size, and with all values that follow from it."""
        sizes, names = self.sizes[index], set(open_names(self.settings))
        sized = replace(self.settings, **others, **sizes)
        values = {name: value for name, value in sized.values_for(estimate).items() if name in names - set(sizes)}
        return replace(sized, **values)

    def largest(self, is_enough: Callable[[int], bool]) -> int:
        """Return the largest size of which `is_enough` is True; the smallest size if there is none."""
        return max(filter(is_enough, self.fitting), key=lambda i: self.costs[i].hidden, default=0)

    def best(self, flops: float) -> int:
        """Return the largest size that reads enough tokens at this speed; the smallest if none does."""
        return self.largest(lambda i: flops * self.seconds >= self.costs[i].wanted_tokens * self.costs[i].flops)

    def estimate(self, rate: float) -> RunEstimate:
        """Return how much a run reads at this speed, in tokens per second."""
        seen = max(1.0, rate * self.seconds * _SPENT_LEARNING)
        if self.settings.epochs is not None:
            seen = min(seen, self.settings.epochs * self.tokens)
        return RunEstimate(self.tokens, seen, self.vocab_size)

    def complete(self, index: int, rate: float) -> Any:
        """Return the settings with this size, for this speed in tokens per second."""
        estimate = self.estimate(rate)
        if self.settings.epochs is None and self.settings.steps is None and estimate.epochs > MOST_EPOCHS:
            seen = replace(estimate, seen=float(MOST_EPOCHS * estimate.tokens))
            return self.filled(index, seen, epochs=float(MOST_EPOCHS))
        chosen, most = self.filled(index, estimate), estimate.seen / _FEWEST_STEPS
        is_open = "batch" in open_names(self.settings) and self.settings.examples is None
        if is_open and chosen.batch > max(most, _MULTIPLE):
            chosen = replace(chosen, batch=1 << int(math.log2(max(most, _MULTIPLE))))
        return chosen


def _by_counts(search: _Search, flops: float) -> Any:
    """Choose for a number of steps or epochs, from the tokens that they read."""
    settings, tokens = search.settings, search.tokens
    seen = (settings.epochs or 1.0) * tokens
    if settings.steps is not None:
        # the batch is the square root of the tokens that are read: so is the number of steps
        seen = float(settings.steps * (settings.batch or batch_size(RunEstimate(tokens, settings.steps**2))))

    def is_enough(i: int) -> bool:
        cost = search.costs[i]
        return bool(cost.wanted_tokens <= seen <= flops * ASSUMED_SECONDS / max(cost.flops, 1e-9))

    return search.filled(search.largest(is_enough), RunEstimate(tokens, seen, search.vocab_size))


def _by_speed(search: _Search, speed: Callable[[Any], float], flops: float) -> Any:
    """Choose for a limit of time: sizes are timed, beginning with one that an assumed speed suggests."""
    index = search.best(flops)
    with search.data.progress.task("choosing sizes"):
        for _ in range(_PROBES):
            cost = search.costs[index].flops
            guess = search.complete(index, flops / cost if cost else 1e4)
            search.rates[index] = speed(guess)
            flops = search.rates[index] * cost
            if (better := search.best(flops)) in search.rates:
                break
            index = better
    # those that read enough tokens, or nearly so: timing is not exact
    wanted = {i: 0.8 * search.costs[i].wanted_tokens for i in search.rates}
    enough = [i for i, rate in search.rates.items() if rate * search.seconds >= wanted[i]]
    index = max(enough, default=min(search.rates))
    estimate, minutes = search.estimate(search.rates[index]), search.settings.minutes
    if (note := costly_vocabulary(search.costs[index], estimate, minutes)) is not None:
        search.data.progress.note(note)
    return _with_larger_batch(search, index, speed)


def _with_larger_batch(search: _Search, index: int, speed: Callable[[Any], float]) -> Any:
    """Return the settings of a size, with a larger batch as long as that pays.

    Part of the time of a step does not depend on its batch: a GPU waits for its kernels to be started, and the
    optimiser updates every parameter. Where that is most of the time, a larger batch reads far more tokens. Not so
    where the text is read many times: there it would learn by heart in fewer steps.
    """
    rate = search.rates[index]
    chosen = search.complete(index, rate)
    is_open = "batch" in open_names(search.settings) and search.settings.examples is None
    while is_open and search.estimate(rate).epochs < _FEW_EPOCHS:
        larger = replace(chosen, batch=_LARGER * chosen.batch)
        takes_long = (1 + TIMED_STEPS) * larger.batch / rate > _TRIAL_SHARE * search.seconds
        if takes_long or larger.batch > min(TIMED_TOKENS, search.tokens // 8):
            break
        faster = speed(larger)
        if faster < _GAIN * rate:
            break
        rate, chosen = faster, replace(search.complete(index, faster), batch=larger.batch)
    return chosen


def costly_vocabulary(cost: Cost, estimate: RunEstimate, minutes: float) -> str | None:
    """Return a note if most of the time goes to a large vocabulary, and the text is not read even once."""
    vocab_size, share = estimate.vocab_size, cost.head / max(1, cost.head + cost.hidden)
    if vocab_size < 2 * SUBWORDS or share < COSTLY or estimate.epochs >= 1:
        return None
    faster = (cost.hidden + cost.head) / (cost.hidden + cost.head * SUBWORDS / vocab_size)
    return (
        f"a vocabulary of {vocab_size:,} takes {share:.0%} of the time, and {minutes:g} minutes are enough to read "
        f"{estimate.epochs:.1%} of the text: --tokenizer bpe is about {faster:.0f} times as fast a token, "
        f"--vocab-size {SUBWORDS} keeps the most frequent words, and --minutes {minutes / estimate.epochs:.0f} "
        "reads all of it"
    )
