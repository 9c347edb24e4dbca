"""`scale`: a grid of Transformers, each trained in one pass over a share of the text, and the law fitted to them.

Each network reads each token once, so D is both the number of tokens that it has read and the size of its text. The
shares are parts of as much text as fits into the time: the speed of each size is measured first.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

from chainrule import settings as settings_of
from chainrule.comparison.identity import another_error, identity_of, is_unused
from chainrule.comparison.learning_curve import CurveTexts
from chainrule.comparison.scaling.law import FEWEST_CELLS, FLOPS, Law, fit_law, fit_without_each
from chainrule.contract.kinds import TrainingData, find_kind
from chainrule.contract.lm import Context
from chainrule.errors import ChainruleError, DamagedFileError, FolderError, Interrupted, SettingsError
from chainrule.evaluation.measure import measure
from chainrule.folder import to_json
from chainrule.runs.prepare import TokenizerChoice, encode_parts, split_off
from chainrule.system.devices import choose_device
from chainrule.system.disk import holding, replaced_file, scratch_folder
from chainrule.system.progress import SILENT, Reports, as_progress
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded

RECORD = "scale.json"
FORMAT = "chainrule-scale-1"
MINUTES = 6.0
PARTS = {"train": 0.9, "valid": 0.1}
SIZES = ("1x32", "2x48", "2x64", "3x96", "4x128")
SHARES = ("1/8", "1/4", "1/2", "1")

_HEAD = 32  # features of an attention head, about
_SPENT = 0.85  # the share of the time that is planned for training; the rest is a reserve
_OVERDUE = 1.15  # of the time: networks that would end later are left out, if the machine is slower than measured
_LEAST_SHARE = 1 / 64  # of the text; less is too little to learn from
_PROBE_STEPS, _PROBE_BATCH = 8, 1024

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
    """A network of the grid: its size, its text, and its loss on held-out text."""

    size: str
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
    of_text: float
    """The part of the training text from which the shares are taken: as much as fits into the time."""
    cells: list[Cell] = field(default_factory=list)
    law: Law | None = None
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """The lowest and highest value of each constant of the law, if one of the networks is left out."""
    advice: list[dict[str, float]] = field(default_factory=list)
    """For budgets of floating-point operations: the size, the tokens and the loss of the best network."""
    is_finished: bool = False

    @property
    def flops(self) -> float:
        """Floating-point operations of all cells, 6 N D each."""
        return sum(FLOPS * cell.parameters * cell.tokens for cell in self.cells)

    def to_json(self) -> dict[str, Any]:
        """The record as plain values."""
        return {"format": FORMAT, **asdict(self), "flops": self.flops}

    def write(self, out: Path) -> None:
        """Write the record into a folder."""
        with replaced_file(out / RECORD) as file:
            file.write(to_json(self.to_json(), indent=1).encode() + b"\n")


def scale(
    corpus: Text,
    out: str | Path,
    *,
    sizes: Sequence[str] = SIZES,
    shares: Sequence[str] = SHARES,
    minutes: float = MINUTES,
    budgets: Sequence[float] = (),
    tokenizer: Tokenizer | TokenizerChoice | None = None,
    context: Context = "stream",
    device: str = "cpu",
    seed: int = 0,
    overwrite: bool = False,
    progress: Reports = False,
) -> Scaling:
    """Train Transformers of some sizes on shares of a corpus, and fit L(N, D) = E + A/N^a + B/D^b to their losses.

    The same call continues a run that was stopped. `budgets` are numbers of floating-point operations for which to
    compute the best size; if there are none, ten and a hundred times those of the grid.
    """
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    grid_sizes, grid_shares = parse_sizes(sizes), parse_shares(shares)
    if any(not 0 < one < float("inf") for one in budgets):
        raise ChainruleError("a budget is a number of floating-point operations above 0, such as 1e18")
    earlier = _earlier(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        parts = split_off(as_corpus(corpus), {}, PARTS, scratch, seed=seed, progress=progress)
        chosen = tokenizer or TokenizerChoice("bpe")
        the_tokenizer, encoded, _ = encode_parts(parts, chosen, scratch, progress)
        data = TrainingData(the_tokenizer, encoded["train"], None, context, seed, progress, device)
        identity = identity_of(data, encoded, minutes)
        identity |= {"sizes": [size.name for size in grid_sizes], "shares": grid_shares}
        if earlier is None:
            found = Scaling(identity, _fitting(data, grid_sizes, grid_shares, minutes))
        elif earlier.identity == json.loads(to_json(identity)):
            found, networks = earlier, len(grid_sizes) * len(grid_shares)
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
        _train_all(found, data, encoded["valid"], grid_sizes, texts_of, out, 60 * minutes)
        _conclude(found, budgets)
        found.write(out)
    return found


def _train_all(
    found: Scaling,
    data: TrainingData,
    valid: Encoded,
    sizes: Sequence[Size],
    texts: dict[float, Encoded],
    out: Path,
    seconds: float,
) -> None:
    """Train and measure the networks that have no result yet, cheap ones first, while the time suffices."""
    done = {(cell.size, cell.share) for cell in found.cells}
    jobs = [(size, share) for share in texts for size in sizes]
    with data.progress.task("networks", len(jobs), "networks") as task:
        for size, share in jobs:
            if (size.name, share) not in done and _is_too_late(found.cells, size, share, seconds):
                data.progress.note(f"{size.name} on {share:.1%} of the text is left out: the time is up")
            elif (size.name, share) not in done:
                try:
                    found.cells.append(_trained(replace(data, train=texts[share]), valid, size, share))
                except Interrupted:
                    raise
                except (ChainruleError, RuntimeError, MemoryError) as error:
                    data.progress.note(f"{size.name} failed, and the others go on: {error}")
                found.write(out)
            task.advance(1)


def _is_too_late(cells: Sequence[Cell], size: Size, share: float, seconds: float) -> bool:
    """Return True if a network would end well after the time, by the speed of its size so far.

    No network is too late while there are too few to fit a law with any one of them left out.
    """
    like = [cell for cell in cells if cell.size == size.name and cell.share < share]
    sizes, shares = {cell.size for cell in cells}, {cell.share for cell in cells}
    if not like or len(cells) <= FEWEST_CELLS or min(len(sizes), len(shares)) <= 3:
        return False
    largest = max(like, key=lambda cell: cell.share)
    spent = sum(cell.seconds for cell in cells)
    return spent + largest.seconds * share / largest.share > _OVERDUE * seconds


def _trained(data: TrainingData, valid: Encoded, size: Size, share: float) -> Cell:
    """Train a network in one pass over its text, and measure it."""
    began = time.perf_counter()
    lm = _train(data, size, epochs=1.0)
    measured = measure(lm, valid)
    return Cell(
        size=size.name,
        share=share,
        parameters=int(lm.metrics["parameters"]),
        tokens=data.train.tokens,
        nats=measured.nats,
        bits_per_byte=measured.bits_per_byte,
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


def _fitting(data: TrainingData, sizes: Sequence[Size], shares: Sequence[float], minutes: float) -> float:
    """Return the part of the text whose shares all networks together can read in the time."""
    with data.progress.task("measuring speeds", len(sizes), "sizes") as task:
        overhead, per_token = 0.0, 0.0
        for size in sizes:
            seconds = []
            for steps in (1, _PROBE_STEPS):
                began = time.perf_counter()
                _train(data, size, steps=steps, batch=_PROBE_BATCH)
                seconds.append(time.perf_counter() - began)
            overhead += seconds[0] * len(shares)
            per_token += max(seconds[1] - seconds[0], 1e-3) / ((_PROBE_STEPS - 1) * _PROBE_BATCH)
            task.advance(1)
    wanted = data.train.tokens * sum(shares) * per_token
    part = (_SPENT * 60 * minutes - overhead) / wanted
    if part < _LEAST_SHARE:
        needed = (overhead + _LEAST_SHARE * wanted) / (_SPENT * 60)
        raise ChainruleError(
            f"{minutes:g} minutes are too few for these sizes on this text: about {needed:.1f} are needed at least"
        )
    return min(1.0, part)


def _conclude(found: Scaling, budgets: Sequence[float]) -> None:
    """Fit the law to the networks, and compute the best size for each budget."""
    N, D, L = ([float(getattr(cell, name)) for cell in found.cells] for name in ("parameters", "tokens", "nats"))
    law, without = fit_law(N, D, L), fit_without_each(N, D, L)
    names = ("E", "A", "a", "B", "b")
    found.law = law
    found.ranges = {n: (min(getattr(o, n) for o in without), max(getattr(o, n) for o in without)) for n in names}
    found.advice = []
    for flops in budgets or (10 * found.flops, 100 * found.flops):
        size, tokens = law.best_size(flops)
        others = [other.best_size(flops)[0] for other in without]
        found.advice.append(
            {
                "flops": flops,
                "parameters": size,
                "tokens": tokens,
                "nats": float(law.loss(size, tokens)),
                "least_parameters": min(others),
                "most_parameters": max(others),
            }
        )
    found.is_finished = True


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
        if content["format"] != FORMAT:
            raise ValueError(f"not {FORMAT}")
        cells = [Cell(**cell) for cell in content["cells"]]
        return Scaling(content["identity"], float(content["of_text"]), cells)
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{out / RECORD}: damaged: {error}") from None
