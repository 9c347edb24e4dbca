"""The results of a comparison: how good each model is and what it costs, and how they are stored in a file.

A comparison, or a grid of networks, that was stopped is continued only if its identity is the same.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np
from numpy.typing import NDArray

from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Figures
from chainrule.contract.lm import Context
from chainrule.errors import ChainruleError, FolderError
from chainrule.evaluation.intervals import among
from chainrule.evaluation.measure import Measured
from chainrule.folder import to_json
from chainrule.system.disk import LOCK, replaced_file
from chainrule.system.display import to_html
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer

RESULTS = "compare.json"
FORMAT = "chainrule-comparison"


@dataclass(frozen=True)
class Result:
    """The result of one model: how good it is and what it costs."""

    name: str
    kind: str
    settings: dict[str, Any]
    folder: str
    test: Measured | Figures
    training_seconds: float
    megabytes: float
    sample: str
    steps: int | None = None
    """The steps of a network's training; None for models that are counted."""
    tokens_seen: int | None = None
    """The tokens that it learned from; a token counts each time."""
    epochs: float | None = None
    """How often it read the training text."""
    training_flops: float | None = None
    """Floating-point operations of its training; of n-grams, an addition for each order and token."""
    tokens: str | None = None
    """Its tokens and the size of their vocabulary, if they are not those of the comparison."""
    seeds: list[float] = field(default_factory=list)
    """The losses of a network that was trained from several seeds; `test` has their mean, and the first is kept."""
    second_half: float | None = None
    """By how many bits per byte the second half of a network's training lowered its loss in validation."""
    loading_seconds: float | None = None
    """From opening the folder to the first prediction, in a process that has loaded another model before."""
    memory_megabytes: float | None = None
    """The size of its arrays in memory."""
    seconds: float = 0.0
    """Training and measuring together."""
    training_tokens_per_second: float | None = None
    writing_tokens_per_second: float | None = None
    """Tokens that it samples per second, one text at a time; None for models that generate no text."""
    peak_megabytes: float | None = None
    """The most memory in use while it was trained: that of the GPU, or of the whole process."""
    parameters: int | None = None
    flops_per_token: float | None = None
    """Floating-point operations to predict a token; None: it is looked up."""
    interval: tuple[float, float] | None = None
    """Bits per byte: 95 % of draws of the test documents lie between these."""
    behind: tuple[float, float, float] | None = None
    """By how many bits per byte it is worse than the best on the same documents, and the interval of that.

    With many models one of them would look different by chance: the interval is as much wider as Bonferroni's
    correction for their number asks for.
    """

    @property
    def loss(self) -> float | None:
        """The figure that ranks models, lowest first: bits per byte of a text; None if it is no probability."""
        if isinstance(self.test, Figures):
            return self.test.loss
        return self.test.bits_per_byte if self.test.normalised else None

    @property
    def surprisals(self) -> list[str]:
        """The names of its surprisals in the comparison's folder: one for each training."""
        return [self.folder, *(seed_name(self.folder, number) for number in range(1, len(self.seeds)))]

    @property
    def rank(self) -> float:
        """The loss to sort models by: infinite if there is none."""
        return math.inf if self.loss is None else self.loss

    @property
    def has_finite_loss(self) -> bool:
        """Return True if the model has a loss, and gave no token probability 0."""
        return math.isfinite(self.rank)

    @property
    def figures(self) -> dict[str, float]:
        """How good the model is, by the names that a table shows."""
        if isinstance(self.test, Measured):
            return {"bits per byte": self.test.bits_per_byte, "perplexity": self.test.perplexity}
        return dict(self.test.values)

    @property
    def note(self) -> str:
        """What a reader has to know to compare the figures."""
        if not isinstance(self.test, Measured):
            return self.test.note
        notes = []
        if not self.test.normalised:
            notes.append("scores, not probabilities")
        if not self.test.lossless:
            notes.append("a lower bound: the tokens do not spell out all of the text")
        if self.test.impossible:
            notes.append(f"{self.test.impossible / self.test.tokens:.1%} of the tokens had probability 0")
        if self.tokens is not None:
            notes.append(f"tokens of its own {self.tokens}, so that perplexity does not compare")
        if self.has_seen_test:
            notes.append(f"trained on about {self.test.trained_on:.0%} of the test text's long lines")
        return "; ".join(notes)

    @property
    def has_seen_test(self) -> bool:
        """Return True if the model was trained on more of the test text than those of the comparison were."""
        return isinstance(self.test, Measured) and bool(self.test.trained_on)

    @property
    def differs_from_best(self) -> bool:
        """Return True if it is worse than the best model on the same documents, whatever documents are drawn."""
        return self.behind is None or self.behind[1] > 0


def seed_name(folder: str, number: int) -> str:
    """Return the name of the surprisals of a model that was trained once more, from another seed.

    >>> seed_name("lstm", 2)
    'lstm@2'
    """
    return f"{folder}@{number}"


@dataclass(frozen=True)
class Failure:
    """A model that could not be trained or measured."""

    name: str
    kind: str
    error: str
    share: float = 1.0
    """The share of the training text: less than 1 for a point of a learning curve."""


@dataclass(frozen=True)
class Point:
    """A point of a learning curve: a model trained on a part of the training text; the model is not kept."""

    name: str
    kind: str
    settings: dict[str, Any]
    share: float
    """The share of the training text; 1 for all of it."""
    tokens: int
    """The number of tokens in that part."""
    bytes: int
    bits_per_byte: float
    """On the test text."""
    perplexity: float
    training_seconds: float
    seconds: float
    """Training and measuring together."""


@dataclass(frozen=True)
class Cost:
    """Something that a model costs, or the speed at which it works."""

    key: str
    """Its name in compare.json."""
    name: str
    unit: str
    more_is_better: bool = False
    is_large: bool = False
    """True if thousands and millions are usual, which an axis writes as 1k and 1M."""

    @property
    def title(self) -> str:
        """Its name and unit, for the head of a column."""
        return f"{self.name}, {self.unit}" if self.unit else self.name

    def of(self, result: Result) -> float | None:
        """Return the cost of a model; None if it was not measured."""
        value = getattr(result, self.key, None)
        value = getattr(result.test, self.key, None) if value is None else value
        return float(value) if value is not None and math.isfinite(value) else None

    def gain(self, result: Result, than: Result) -> float:
        """Return how many times as cheap as another model one is; 0 if that is not known."""
        ours, other = self.of(result), self.of(than)
        if not ours or not other:
            return 0.0
        return ours / other if self.more_is_better else other / ours


COSTS = {
    cost.key: cost
    for cost in (
        Cost("training_seconds", "training", "s"),
        Cost("megabytes", "size", "MB"),
        Cost("memory_megabytes", "size in memory", "MB"),
        Cost("tokens_per_second", "scoring speed", "tokens/s", True, True),
        Cost("writing_tokens_per_second", "writing speed", "tokens/s", True, True),
        Cost("loading_seconds", "cold start", "s"),
        Cost("peak_megabytes", "peak memory", "MB", is_large=True),
        Cost("parameters", "parameters", "", is_large=True),
        Cost("flops_per_token", "arithmetic", "FLOPs/token", is_large=True),
    )
}
"""In the order of the table."""


@dataclass(frozen=True, repr=False)
class Comparison:
    """The results of all models, and the text and tokenizer they share."""

    format: str
    tokenizer: str
    vocab_size: int
    context: Context
    parts: dict[str, dict[str, int]]
    """Lines, tokens and bytes of train, valid and test; of test also the bytes of long lines that train has too."""
    results: list[Result]
    identity: dict[str, Any]
    """The texts, the tokenizer, the seed and the ladder: a comparison is continued only if these are the same."""
    task: str = "language"
    failures: list[Failure] = field(default_factory=list)
    advice: str | None = None
    """Which model to take for what."""
    machine: str | None = None
    """Where it was measured: the device, and the cores of the process."""
    curve: list[Point] = field(default_factory=list)
    """The learning curves, if they were asked for: model by model, from little text to all of it."""
    draws: Mapping[str, NDArray[np.float64]] = field(default_factory=dict, compare=False, repr=False)
    """Bits per byte of each model on draws of the test documents, which all models share; they are not stored."""

    @property
    def is_finished(self) -> bool:
        """Return True if every model of the ladder, and every point of its curves, has a result or failed."""
        ladder = self.identity.get("ladder")  # comparisons of earlier versions do not have it
        if ladder is None:
            return True
        done = {(one.name, 1.0) for one in self.results} | {(one.name, one.share) for one in self.curve}
        done |= {(one.name, one.share) for one in self.failures}
        drawn = {one.name for one in self.curve}  # a model that failed, or has no finite figure, has no curve
        points = [(name, share) for name, share in self.identity.get("curve", ()) if name in drawn]
        return all(one in done for one in [*((entry["name"], 1.0) for entry in ladder), *points])

    @property
    def is_of_text(self) -> bool:
        """Return True if the models predict text, so that they share bits per byte and the surprisals of tokens."""
        return all(isinstance(one.test, Measured) for one in self.results)

    @property
    def loss_name(self) -> str:
        """The name of the figure that ranks the models."""
        return "bits per byte" if self.is_of_text else "loss"

    @property
    def comparable(self) -> list[Result]:
        """The models whose losses can be compared.

        Models that were trained on the test text stand apart, and where some models spell out all of the text,
        those for which bits per byte are a lower bound.
        """
        every = [one for one in self.results if one.loss is not None]
        fair = [one for one in every if not one.has_seen_test] or every
        exact = [one for one in fair if not isinstance(one.test, Measured) or one.test.lossless]
        return exact or fair

    @property
    def apart(self) -> list[Result]:
        """The models whose figures do not compare with those of the others."""
        comparable = self.comparable
        return [one for one in self.results if one not in comparable]

    @property
    def ranked(self) -> list[Result]:
        """All models, the best first; those whose figures do not compare come last."""
        apart = self.apart
        return sorted(self.results, key=lambda one: (one in apart, one.rank))

    @property
    def best(self) -> Result | None:
        """The model with the lowest loss; None if no model has one."""
        return min(self.comparable, key=lambda one: one.rank, default=None)

    @property
    def equal_to_best(self) -> list[Result]:
        """The other models that the test text cannot tell from the best."""
        return [one for one in self.comparable if one is not self.best and not one.differs_from_best]

    @property
    def costs(self) -> list[Cost]:
        """The costs that were measured of at least one model."""
        return [cost for cost in COSTS.values() if any(cost.of(one) is not None for one in self.results)]

    @property
    def curves(self) -> dict[str, dict[float, float]]:
        """The learning curves: bits per byte by the model, and then by the share of the training text."""
        found: dict[str, dict[float, float]] = {}
        for one in self.curve:
            found.setdefault(one.name, {})[one.share] = one.bits_per_byte
        return found

    def difference(self, name: str, other: str) -> tuple[float, float, float] | None:
        """Return by how many bits per byte a model is worse than another on the same documents, and the interval.

        None if there is no interval: the test text has few documents, a model gave a token probability 0, or the
        comparison was read from its folder. `Result.behind` is wider, since it is about all models at once.
        """
        rank = {one.name: one.rank for one in self.results}
        for one in (name, other):
            if one not in rank:
                raise ChainruleError(f"there is no model {one} in the comparison: it has {', '.join(rank)}")
        if name not in self.draws or other not in self.draws:
            return None
        return (rank[name] - rank[other], *among(self.draws[name] - self.draws[other], 1))

    def frontier(self, key: str) -> set[str]:
        """Return the names of the models that no other beats, by loss and by the cost of that key.

        One model beats another if it is at least as good and as cheap, and better in one of the two.
        """
        cost = COSTS[key]
        sign = -1 if cost.more_is_better else 1
        points = {
            one.name: (one.rank, sign * price)
            for one in self.comparable
            if one.has_finite_loss and (price := cost.of(one)) is not None
        }
        return {
            name
            for name, point in points.items()
            if not any(o[0] <= point[0] and o[1] <= point[1] and o != point for o in points.values())
        }

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as plain values."""
        found = asdict(replace(self, draws={}))
        del found["draws"]
        for one in found["results"]:
            # what was not measured is left out
            one["test"] = {name: value for name, value in one["test"].items() if value is not None}
        return found

    def __repr__(self) -> str:
        best = "" if self.best is None else f"; the best is {self.best.name}"
        return f"<Comparison of {len(self.results):,} model{'s' * (len(self.results) != 1)}{best}>"

    def _repr_html_(self) -> str:
        """Return the tables, for a notebook: how good each model is and what it costs, and what each wrote."""
        from chainrule.comparison.tables import comparison_parts, samples_table

        return to_html([*comparison_parts(self), *filter(None, [self.advice]), samples_table(self)])

    def write(self, out: Path) -> None:
        """Write the comparison into its folder."""
        with replaced_file(out / RESULTS) as file:
            file.write(to_json(self.to_json(), indent=2).encode() + b"\n")


# -- a folder in which results are, or will be ------------------------------------------------------------


def identity_of(data: TrainingData, encoded: Mapping[str, Encoded], minutes: float | None) -> dict[str, Any]:
    """Return the texts, the tokenizer and the settings that all models share, as plain values."""
    return {
        **({} if data.sources is None else {"sources": data.sources.train.fingerprint}),
        "texts": {name: part.fingerprint for name, part in encoded.items()},
        "tokenizer": hashlib.sha256(dump_tokenizer(data.tokenizer).encode()).hexdigest(),
        "context": data.context,
        "seed": data.seed,
        "minutes": minutes,
    }


def is_unused(out: Path) -> bool:
    """Return True if the folder does not exist, or is empty."""
    return not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir()))


def another_error(out: Path, what: str) -> FolderError:
    """Return the error of a folder that holds results of another identity."""
    return FolderError(
        f"{out} holds another {what}, of other texts or settings; choose another folder, or overwrite it "
        "(--overwrite)"
    )


def read_comparison(out: Path) -> Comparison | None:
    """Read the comparison of a folder; None if there is none, or none that can be read."""
    try:
        values = json.loads((out / RESULTS).read_text(encoding="utf-8"))
        if values["format"] != FORMAT:
            return None
        found: Comparison = _read(Comparison, {"identity": {}, **values})
        ladder = _read(list[dict[str, Any]], found.identity.get("ladder") or [])
        _read(list[tuple[str, float]], found.identity.get("curve") or [])
        _read(int, found.identity.get("seed", 0))
        return found if all(type(one.get("name")) is str for one in ladder) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _read(hint: Any, value: Any) -> Any:
    """Return plain values, with all that is in them, as a type; a TypeError if they are not of that type.

    A later version may write fields of dataclasses that this one does not know.

    >>> _read(tuple[float, float] | None, [1, 2.5]), _read(tuple[float, float] | None, None)
    ((1, 2.5), None)
    """
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is Any:
        return value
    if origin in (Union, UnionType):
        for one in arguments:
            with suppress(TypeError):
                return _read(one, value)
    elif is_dataclass(hint) and isinstance(value, dict):
        hints = get_type_hints(hint)
        known = (one.name for one in fields(hint) if one.name in value)
        return hint(**{name: _read(hints[name], value[name]) for name in known})  # type: ignore[operator]
    elif origin is tuple and isinstance(value, list) and len(value) == len(arguments):
        return tuple(map(_read, arguments, value))
    elif origin is list and isinstance(value, list):
        return [_read(arguments[0], one) for one in value]
    elif origin in (dict, Mapping) and isinstance(value, dict):
        return {key: _read(arguments[1], one) for key, one in value.items()}
    elif origin is Literal and value in arguments:
        return value
    elif hint in (int, float) and isinstance(value, bool):
        pass  # it is an int of Python too
    elif origin is None and isinstance(value, (int, float) if hint is float else hint):
        return value
    raise TypeError(f"{value!r} is not of the type {hint}")
