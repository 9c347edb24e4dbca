"""The budget of a comparison: time that its networks share, or something else that each of them gets alike."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias, get_args

from chainrule import settings as settings_of
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind, LadderEntry
from chainrule.errors import ModelError, SettingsError
from chainrule.networks.defaults import of_flops, of_parameters
from chainrule.networks.settings import NeuralSettings
from chainrule.networks.training_settings import HOW_LONG

MINUTES = 4.0
"""The default time of a comparison of language models."""

Unit: TypeAlias = Literal["tokens", "steps", "parameters", "flops"]

_MIXING = 4.0  # the time to mix and measure a mixture, in that to measure a network
_LEAST_SECONDS = 1.0  # a network whose turn comes in time gets at least that much
LATE_SECONDS = 10.0
"""After the end of the time, in which a network may still begin: a short comparison has a network too."""
_TELLING_SECONDS, _MOST_SLOWNESS = 0.5, 8.0  # least seconds of work to measure a slowdown by; the largest slowdown
_MULTIPLES = {"": 1.0, "k": 1e3, "m": 1e6, "b": 1e9}


@dataclass(frozen=True)
class EqualBudget:
    """What each network of a comparison gets: a number of tokens, steps or floating-point operations of training.

    A budget of parameters decides the size instead; the networks then share the time as they do without a budget.
    """

    unit: Unit
    amount: float

    @classmethod
    def parse(cls, text: str) -> EqualBudget:
        """Parse a budget.

        >>> EqualBudget.parse("tokens=200K"), EqualBudget.parse("flops=1e15")
        (EqualBudget(unit='tokens', amount=200000.0), EqualBudget(unit='flops', amount=1000000000000000.0))
        """
        unit, _, amount = text.partition("=")
        found = re.fullmatch(r"(\d+\.?\d*(?:e\+?\d+)?)([kmb]?)", amount.lower())
        if unit not in get_args(Unit) or not found:
            units = ", ".join(f"{one}=N" for one in get_args(Unit))
            raise SettingsError(f"a budget is {units} (a number such as 500, 2M or 1e15), not {text!r}")
        value = float(found[1]) * _MULTIPLES[found[2]]
        if not 1 <= value < math.inf:
            raise SettingsError(f"a budget should be at least 1, not {amount}")
        return cls(unit, value)  # type: ignore[arg-type]

    @property
    def limits_time(self) -> bool:
        """Return True if the budget decides how long a network trains."""
        return self.unit != "parameters"

    def within(self, kind: Kind, entry: LadderEntry, data: TrainingData) -> LadderEntry:
        """Return the entry with the settings that keep a network within the budget; others stay as they are."""
        if not issubclass(kind.settings, NeuralSettings):
            return entry
        kept = {name: value for name, value in entry.settings.items() if name not in HOW_LONG}
        settings: Any = settings_of.parse(kind.settings, kept)
        if self.unit == "parameters":
            return replace(entry, settings={**of_parameters(settings, data, self.amount), **entry.settings})
        chosen: dict[str, Any]
        if self.unit == "tokens":
            chosen = {"epochs": self.amount / data.train.tokens}
        elif self.unit == "steps":
            chosen = {"steps": round(self.amount)}
        else:
            chosen = of_flops(settings, data, self.amount)
        return replace(entry, settings={**kept, **chosen})


@dataclass
class TimeBudget:
    """The time of a comparison: models that are counted take what they need, and networks share the rest.

    A network gets its share of what is left when its turn comes, less the time to measure the networks and their
    mixture; if its turn comes too late, it is not trained. How long it takes to measure one is not known before the
    first is measured: `each` is a guess for a quiet machine, taken times the share of the processor that other work
    left to the models that were counted before. Every network that was measured corrects it.
    """

    minutes: float | None
    """All of the time; None: every network has the minutes of its own settings."""
    spent: float = 0.0
    """Seconds that the comparison took before: to read the text, and for models that are there already."""
    each: float = 0.0
    """Seconds that a network takes beside its trainings."""
    trainings: int = 1
    """How often each network is trained."""
    began: float = field(default_factory=time.perf_counter)
    computed: float = field(default_factory=time.process_time)
    """The processor's seconds at the beginning."""
    _measured: list[float] = field(default_factory=list)
    _guess: float | None = None

    def within(self, entry: LadderEntry, waiting: Sequence[LadderEntry]) -> LadderEntry:
        """Return the entry with the minutes of each training; `waiting` are the entries after it.

        If the time was over long before, that is an error.
        """
        if self.minutes is None or "minutes" not in entry.settings:
            return entry
        networks = [entry, *(other for other in waiting if "minutes" in other.settings)]
        left = 60 * self.minutes - self.spent - (time.perf_counter() - self.began)
        if left < -LATE_SECONDS:
            raise ModelError(
                f"the {self.minutes:g} minutes were over before its turn: give the comparison more, or fewer models"
            )
        if self._guess is None:
            self._guess = self.each * self._slowness()
        expected = sum([self._guess, *self._measured]) / (1 + len(self._measured))
        left -= expected * (len(networks) + _MIXING)
        seconds = max(_LEAST_SECONDS, left * entry.share / sum(one.share for one in networks) / self.trainings)
        return replace(entry, settings={**entry.settings, "minutes": round(seconds / 60, 4)})

    def _slowness(self) -> float:
        """Return how many times as long as on a quiet machine the work so far took."""
        passed, computed = time.perf_counter() - self.began, time.process_time() - self.computed
        return 1.0 if passed < _TELLING_SECONDS else min(_MOST_SLOWNESS, max(1.0, passed / max(computed, 1e-9)))

    def took(self, entry: LadderEntry, seconds: float) -> None:
        """Note how long an entry took in all, to plan for the next ones."""
        if "minutes" in entry.settings:
            self._measured.append(max(0.0, seconds - 60 * entry.settings["minutes"] * self.trainings))
