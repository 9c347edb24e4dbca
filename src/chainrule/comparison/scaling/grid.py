"""`scale`: a grid of Transformers, each trained in one pass over a share of the text, and the law fitted to them.

Each network reads each token once, so D is both the number of tokens that it has read and the size of its text. The
speed of each size is measured first: the sizes, and the part of the text that has the shares, are chosen so that
all networks can be trained in the time. N-gram models of the same shares show what counting gives.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from chainrule import settings as settings_of
from chainrule.comparison.learning_curve import CurveTexts
from chainrule.comparison.measured_training import going_on
from chainrule.comparison.results import another_error, identity_of, is_unused
from chainrule.comparison.scaling.law import (
    FARTHEST,
    FLOPS,
    Law,
    Prediction,
    fit_law,
    interval,
    predict_larger,
    refit,
)
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import find_kind
from chainrule.errors import ChainruleError, DamagedFileError, FolderError, SettingsError
from chainrule.evaluation.measure import measure
from chainrule.folder import ContextChoice, to_json
from chainrule.networks.defaults import PARAMETERS_PER_TOKEN, RunEstimate, batch_size
from chainrule.runs.prepare import TokenizerChoice, context_for, encode_parts, split_off
from chainrule.system.devices import choose_device
from chainrule.system.disk import holding, replaced_file, scratch_folder
from chainrule.system.progress import SILENT, Reports, as_progress
from chainrule.system.threads import paying_threads
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded

RECORD = "scale.json"
FORMAT = "chainrule-scale-2"
MINUTES = 6.0
PARTS = {"train": 0.9, "valid": 0.1}
SIZES = ("1x16", "1x32", "2x48", "2x64", "3x96", "4x128", "5x192", "6x256", "8x384", "8x512", "12x768")
"""The sizes to choose from, from small to large."""
SHARES = ("1/8", "1/4", "1/2", "1")
NGRAMS = {"bigram": 2, "5-gram": 5}
"""The orders of the n-gram models, by their names."""

_HEAD = 32  # features of an attention head, about
_HELD_OUT_BYTES = 1 << 15  # of the held-out text: every network is measured on them
_ENOUGH_CELLS = 12  # for a law, and for a test of it: then networks may be left out
_SPENT = 0.8  # the share of the time that is planned; the rest is for the page, and a reserve
_OVERDUE = 1.1  # of the time: networks that would end later are left out, if the machine is slower than measured
_LEAST_BATCH, _LEAST_TOKENS = 128, 1 << 13  # of the smallest share: 64 steps; less is too little to learn from
_PROBE_STEPS = 32

T = TypeVar("T")


@dataclass(frozen=True)
class Size:
    """The size of a Transformer: its layers, and the features of a token."""

    layers: int
    width: int

    @property
    def name(self) -> str:
        return f"{self.layers}x{self.width}"

    @property
    def heads(self) -> int:
        """The number of attention heads, of about 32 features each: it divides the width."""
        return max(n for n in range(1, max(self.width // _HEAD, 1) + 1) if self.width % (2 * n) == 0)


def parse_sizes(names: Sequence[str]) -> list[Size]:
    """Parse sizes such as 2x64, and sort them by width and layers.

    >>> parse_sizes(["4x128", "2x64", "2x32"])
    [Size(layers=2, width=32), Size(layers=2, width=64), Size(layers=4, width=128)]
    """
    found = []
    for name in names:
        layers, cross, width = name.strip().lower().partition("x")
        if not (cross and layers.isdecimal() and width.isdecimal() and int(layers) and int(width)):
            raise SettingsError(f"a size is layers x width, such as 4x128, not {name!r}")
        if int(width) % 2:
            raise SettingsError(f"the width of a size should be even, not {width}")
        found.append(Size(int(layers), int(width)))
    return sorted(_distinct(found, "sizes"), key=lambda size: (size.width, size.layers))


def parse_shares(names: Sequence[str]) -> list[float]:
    """Parse shares of a text such as 1/4 or 0.5, and sort them.

    >>> parse_shares(["1", "1/4", "0.5"])
    [0.25, 0.5, 1.0]
    """
    shares = []
    for name in names:
        try:
            share = float(Fraction(name.strip()))
        except (ValueError, ZeroDivisionError):
            share = -1.0
        if not 0 < share <= 1:
            raise SettingsError(f"a share of the text is a number above 0 and at most 1, such as 1/4, not {name!r}")
        shares.append(share)
    return sorted(_distinct(shares, "shares"))


def _distinct(found: list[T], what: str) -> list[T]:
    if len(set(found)) < 3:
        raise SettingsError(f"a scaling law needs at least three {what}, and here are {len(set(found))}")
    return list(dict.fromkeys(found))


@dataclass(frozen=True)
class Cell:
    """A network of the grid, or an n-gram model: its size, its text, and its loss on held-out text."""

    size: str
    """Layers and width, or the name of an n-gram model."""
    share: float
    parameters: int
    tokens: int
    nats: float
    """Cross-entropy per token of the held-out text."""
    bits_per_byte: float
    seconds: float


@dataclass
class Scaling:
    """The grid, the law fitted to it, and what it advises."""

    identity: dict[str, Any]
    """The texts, the tokenizer and the settings: an earlier run is continued only if they are the same."""
    sizes: list[str]
    of_text: float
    """The part of the training text from which the shares are taken: as much as fits into the time."""
    batch: int
    """The tokens of a step, the same in all networks."""
    cells: list[Cell] = field(default_factory=list)
    ngrams: list[Cell] = field(default_factory=list)
    law: Law | None = None
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The 95 % interval of each constant of the law."""
    prediction: Prediction | None = None
    """The test of the law: fitted to the smaller networks, it predicts the larger ones."""
    advice: list[dict[str, Any]] = field(default_factory=list)
    """For budgets of floating-point operations: the size, the tokens and the loss of the best network."""
    warnings: list[str] = field(default_factory=list)
    is_finished: bool = False

    @property
    def flops(self) -> float:
        """Floating-point operations of all networks, 6 N D each."""
        return sum(FLOPS * cell.parameters * cell.tokens for cell in self.cells)

    def to_json(self) -> dict[str, Any]:
        """Return the record as plain values."""
        return {"format": FORMAT, **asdict(self), "flops": self.flops}

    def write(self, out: Path) -> None:
        """Write the record into a folder."""
        with replaced_file(out / RECORD) as file:
            file.write(to_json(self.to_json(), indent=1).encode() + b"\n")


def scale(
    corpus: Text,
    out: str | Path,
    *,
    sizes: Sequence[str] | None = None,
    shares: Sequence[str] = SHARES,
    minutes: float = MINUTES,
    budgets: Sequence[float] = (),
    tokenizer: Tokenizer | TokenizerChoice | None = None,
    context: ContextChoice = "stream",
    device: str = "cpu",
    seed: int = 0,
    overwrite: bool = False,
    progress: Reports = False,
) -> Scaling:
    """Train Transformers of some sizes on shares of a corpus, and fit L(N, D) = E + A/N^a + B/D^b to their losses.

    Without `sizes`, as many are chosen as fit into the time. The same call continues a run that was stopped.
    `budgets` are numbers of floating-point operations for which to compute the best size; if there are none, those
    of the largest network, and ten times as many.
    """
    began = time.perf_counter()
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    named, grid_shares = None if sizes is None else parse_sizes(sizes), parse_shares(shares)
    if any(not 0 < one < float("inf") for one in budgets):
        raise ChainruleError("a budget is a number of floating-point operations above 0, such as 1e18")
    earlier = _earlier(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        corpus = as_corpus(corpus)
        its_context = context_for(corpus, context)
        parts = split_off(corpus, {}, PARTS, scratch, seed=seed, progress=progress)
        parts["valid"] = _beginning(parts["valid"], scratch / "held-out.txt")
        chosen = tokenizer or TokenizerChoice("bpe")
        the_tokenizer, encoded, _ = encode_parts(parts, chosen, scratch, progress)
        data = TrainingData(the_tokenizer, encoded["train"], None, its_context, seed, progress, device)
        identity = identity_of(data, encoded, minutes)
        identity["sizes"] = None if named is None else [size.name for size in named]
        identity["shares"] = grid_shares
        if earlier is None:
            planned = _plan(data, encoded["valid"].tokens, named, grid_shares, minutes, began)
            found = Scaling(identity, *planned, batch=_batch(data, grid_shares))
        elif earlier.identity == json.loads(to_json(identity)):
            found, networks = earlier, len(earlier.sizes) * len(grid_shares)
            progress.note(f"{out}: {len(found.cells)} of {networks} networks are there from before")
        else:
            raise another_error(out, "grid")
        out.mkdir(exist_ok=True)
        found.write(out)
        kept = [share * found.of_text for share in grid_shares]
        texts = CurveTexts(
            parts["train"], the_tokenizer, scratch, seed, progress, tuple(share for share in kept if share < 1)
        )
        texts_of = {share: encoded["train"] if share >= 1 else texts.encoded[share] for share in kept}
        _count_all(found, data, encoded["valid"], texts_of)
        _train_all(found, data, encoded["valid"], texts_of, out, 60 * minutes - (time.perf_counter() - began))
        _conclude(found, budgets, seed)
        found.write(out)
    return found


def _beginning(corpus: Corpus, path: Path) -> Corpus:
    """Return the first lines of a part, written to a file: more would take longer to measure than to train."""
    (whole,) = corpus.paths
    with whole.open("rb") as file:
        path.write_bytes(b"".join(file.readlines(_HELD_OUT_BYTES)))
    return Corpus(paths=(path,))


def _count_all(found: Scaling, data: TrainingData, valid: Encoded, texts: dict[float, Encoded]) -> None:
    """Estimate and measure the n-gram models that have no result yet, by modified Kneser-Ney smoothing."""
    kind, done = find_kind("ngram"), {(cell.size, cell.share) for cell in found.ngrams}
    for name, order in NGRAMS.items():
        settings: Any = settings_of.parse(kind.settings, {"order": order})
        for share, text in texts.items():
            if (name, share) in done:
                continue
            try:
                part = replace(data, train=text, progress=SILENT)
                train = partial(kind.train, settings, part)
                found.ngrams.append(_measured(train, (name, share, text.tokens), valid))
            except ChainruleError as error:
                data.progress.note(f"the {name} model of {text.tokens:,} tokens is left out: {error}")


def _train_all(
    found: Scaling, data: TrainingData, valid: Encoded, texts: dict[float, Encoded], out: Path, seconds: float
) -> None:
    """Train and measure the networks that have no result yet, cheap ones first, while the time suffices."""
    done = {(cell.size, cell.share) for cell in found.cells}
    jobs = [(size, share) for share in texts for size in parse_sizes(found.sizes)]
    with data.progress.task("networks", len(jobs), "networks") as task:
        for size, share in jobs:
            if (size.name, share) not in done and _is_too_late(found, size, share, seconds):
                data.progress.note(f"{size.name} on {share:.1%} of the text is left out: the time is up")
            elif (size.name, share) not in done:
                with going_on() as errors:
                    part = replace(data, train=texts[share])
                    found.cells.append(_trained(part, valid, size, share, found.batch))
                for error in errors:
                    data.progress.note(f"{size.name} failed, and the others go on: {error}")
                found.write(out)
            task.advance(1)


def _is_too_late(found: Scaling, size: Size, share: float, seconds: float) -> bool:
    """Return True if a network would end well after the time, by the speed of its size so far.

    No network is too late while there are too few to fit a law and to test it.
    """
    like = [cell for cell in found.cells if cell.size == size.name and cell.share < share]
    sizes, shares = {cell.size for cell in found.cells}, {cell.share for cell in found.cells}
    if not like or len(found.cells) < _ENOUGH_CELLS or min(len(sizes), len(shares)) < 3:
        return False
    largest = max(like, key=lambda cell: cell.share)
    spent = sum(cell.seconds for cell in (*found.cells, *found.ngrams))
    return spent + largest.seconds * share / largest.share > _OVERDUE * seconds


def _trained(data: TrainingData, valid: Encoded, size: Size, share: float, batch: int) -> Cell:
    """Train a network in one pass over its text, and measure it."""
    with paying_threads(on=data.device == "cpu"):
        train = partial(_train, data, size, epochs=1.0, batch=batch)
        return _measured(train, (size.name, share, data.train.tokens), valid)


def _measured(train: Callable[[], Any], of: tuple[str, float, int], valid: Encoded) -> Cell:
    """Train a model and measure it; `of` are its name, its share of the text, and the tokens of that."""
    began = time.perf_counter()
    lm = train()
    found = measure(lm, valid)
    name, share, tokens = of
    return Cell(
        size=name,
        share=share,
        parameters=int(lm.metrics.get("parameters") or sum(array.size for array in lm.tensors().values())),
        tokens=tokens,
        nats=found.nats,
        bits_per_byte=found.bits_per_byte,
        seconds=time.perf_counter() - began,
    )


def _train(data: TrainingData, size: Size, **how_long: Any) -> Any:
    kind = find_kind("transformer")
    values = {"layers": size.layers, "width": size.width, "heads": size.heads, "optimiser": "adamw", **how_long}
    if data.device == "cpu":  # short runs of small networks: nothing is tried out first, and all compute alike
        values |= {"precision": "float32", "compile": "no"}
    settings: Any = settings_of.parse(kind.settings, values)
    kind.check(settings, data.device)
    return kind.train(settings, replace(data, progress=SILENT))


@dataclass(frozen=True)
class Speed:
    """The parameters of a size, and its speed on this machine now."""

    parameters: int
    per_token: float
    """The seconds of a token."""


def _batch(data: TrainingData, shares: Sequence[float]) -> int:
    """Return the tokens of a step: those that suit the smallest share, and few on a CPU, where texts are small.

    With fewer than some hundred steps, a network has hardly begun to learn, and the law does not hold.
    """
    smallest = int(shares[0] * data.train.tokens)
    batch = batch_size(RunEstimate(smallest, smallest), _LEAST_BATCH)
    return min(batch, _LEAST_BATCH) if data.device == "cpu" else batch


def _speed(data: TrainingData, size: Size, batch: int) -> Speed:
    """Time a few steps of a size."""
    _train(data, size, steps=1, batch=batch)  # not timed: it loads the library whose threads are chosen next
    with paying_threads(on=data.device == "cpu"):
        began = time.perf_counter()
        lm = _train(data, size, steps=_PROBE_STEPS, batch=batch)
        return Speed(int(lm.metrics["parameters"]), (time.perf_counter() - began) / (_PROBE_STEPS * batch))


def _plan(
    data: TrainingData,
    held_out: int,
    named: Sequence[Size] | None,
    shares: Sequence[float],
    minutes: float,
    began: float,
) -> tuple[list[str], float]:
    """Return the sizes of the grid, and the part of the text whose shares all networks can read in the time.

    If no sizes are named, there are four, or three if the time is short. A larger one is added as long as all
    networks can read the whole text, or a token for each parameter of the largest; but none has far more parameters
    than the text has tokens.
    """
    text, least = data.train.tokens, min(1.0, _LEAST_TOKENS / (shares[0] * data.train.tokens))
    read, batch = text * sum(shares), _batch(data, shares)
    measured = len(shares) * held_out * 2 / 3  # each token is read twice, but only forward, a third of the work
    per_token, part, chosen = 0.0, 0.0, list[str]()
    with data.progress.task("measuring speeds"):
        for size in named or parse_sizes(SIZES):
            speed = _speed(data, size, batch)
            left = _SPENT * 60 * minutes - (time.perf_counter() - began)
            new_part = min(1.0, (left / (per_token + speed.per_token) - measured) / read)
            is_too_slow = new_part * text < min(text, speed.parameters)
            is_too_large = speed.parameters > PARAMETERS_PER_TOKEN * text
            is_the_fourth_too_much = len(chosen) == 3 and new_part < least
            if named is None and (is_the_fourth_too_much or (len(chosen) > 3 and (is_too_slow or is_too_large))):
                break
            chosen, per_token, part = [*chosen, size.name], per_token + speed.per_token, new_part
    if part < least:
        needed = (time.perf_counter() - began + (least * read + measured) * per_token) / (_SPENT * 60)
        raise ChainruleError(
            f"{minutes:g} minutes are too few for networks of {', '.join(chosen)} on this text: this machine, "
            f"as busy as it is now, needs about {math.ceil(needed)}"
        )
    return chosen, part


def _conclude(found: Scaling, budgets: Sequence[float], seed: int) -> None:
    """Fit the law to the networks, test it, and compute the best size for each budget."""
    N, D, L = ([float(getattr(cell, name)) for cell in found.cells] for name in ("parameters", "tokens", "nats"))
    law = fit_law(N, D, L)
    refits = refit(law, N, D, L, seed)
    found.law, found.prediction = law, predict_larger(N, D, L)
    found.intervals = {name: interval(law, refits, attrgetter(name)) for name in ("E", "A", "a", "B", "b")}
    found.advice = [
        _advice(law, refits, flops) for flops in budgets or (law.largest_flops, FARTHEST * law.largest_flops)
    ]
    found.warnings = []
    if law.at_bound:
        found.warnings.append(
            f"The grid does not determine {', '.join(law.at_bound)}, which a bound of the fit sets: more time, or "
            "sizes and shares that differ more, would help."
        )
    if found.prediction is None:
        found.warnings.append("The law is not tested: the smaller networks alone are too few to fit it.")
    found.is_finished = True


def _advice(law: Law, refits: Sequence[Law], flops: float) -> dict[str, Any]:
    """Return the best network of a budget, with 95 % intervals of its size and its loss."""
    size, tokens = law.best_size(flops)
    smallest, largest = interval(law, refits, lambda one: one.best_size(flops)[0])
    lowest, highest = interval(law, refits, lambda one: float(one.loss(*one.best_size(flops))))
    return {
        "flops": flops,
        "parameters": size,
        "tokens": tokens,
        "nats": float(law.loss(size, tokens)),
        "least_parameters": smallest,
        "most_parameters": largest,
        "least_nats": lowest,
        "most_nats": highest,
        "warning": law.warning(size, tokens),
    }


def _earlier(out: Path, overwrite: bool) -> Scaling | None:
    """Read the record of an earlier run in the folder; refuse a folder with anything else in it."""
    if is_unused(out):
        return None
    if not (out / RECORD).is_file():
        raise FolderError(f"{out} exists, is not empty and holds no {RECORD}; choose another folder")
    if overwrite:
        return None
    try:
        content: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        if content["format"] == "chainrule-scale-1":
            raise FolderError(
                f"{out} holds a grid of an earlier version; choose another folder, or overwrite it (--overwrite)"
            )
        if content["format"] != FORMAT:
            raise ValueError(f"not {FORMAT}")
        cells, ngrams = ([Cell(**cell) for cell in content[name]] for name in ("cells", "ngrams"))
        of_text, batch = float(content["of_text"]), int(content["batch"])
        return Scaling(content["identity"], list(content["sizes"]), of_text, batch, cells, ngrams)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise DamagedFileError(f"{out / RECORD}: damaged: {error}") from None
