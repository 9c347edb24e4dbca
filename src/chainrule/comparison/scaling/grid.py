"""`scale`: a grid of Transformers, each trained in one pass over a share of the text, and the law fitted to them.

Each network reads each token once, so that D, the number of tokens, is both what it has read and what there is to
read. The shares are of as much of the text as fits into the time: the speed of each size is measured first.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from chainrule import settings as settings_of
from chainrule.comparison.learning_curve import CurveTexts
from chainrule.comparison.scaling.law import FEWEST_CELLS, FLOPS, Law, fit_law, left_out
from chainrule.comparison.scaling.sizes import SHARES, SIZES, Size, parse_shares, parse_sizes
from chainrule.contract.kinds import TrainingData, find_kind
from chainrule.contract.lm import Context
from chainrule.errors import ChainruleError, DamagedFileError, FolderError, Interrupted
from chainrule.evaluation.measure import measure
from chainrule.folder import to_json
from chainrule.runs.prepare import TokenizerChoice, encode_parts, split_off
from chainrule.system.devices import choose_device
from chainrule.system.disk import LOCK, holding, replaced_file, scratch_folder
from chainrule.system.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer

RECORD = "scale.json"
FORMAT = "chainrule-scale-1"
MINUTES = 6.0
PARTS = {"train": 0.9, "valid": 0.1}

_SPENT = 0.85  # of the time, in training; the rest is for what cannot be foreseen
_OVERDUE = 1.15  # of the time: cells that would end later are left out, where the machine turns out to be slower
_LEAST_SHARE = 1 / 64  # of the text, below which there is too little to learn from
_PROBE_STEPS, _PROBE_BATCH = 8, 1024


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
    """What must be the same for cells of an earlier run to be taken up."""
    of_text: float
    """The part of the training text that the shares are of: as much as fits into the time."""
    cells: list[Cell] = field(default_factory=list)
    law: Law | None = None
    ranges: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Least and most of each constant of the law when one of the cells is left out."""
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

    The same call goes on with a run that was stopped. `budgets` are floating-point operations for which the best
    size is wanted; if there are none, ten and a hundred times those of the grid.
    """
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    grid_sizes, grid_shares = parse_sizes(sizes), parse_shares(shares)
    if any(not 0 < one < float("inf") for one in budgets):
        raise ChainruleError("a budget is a number of floating-point operations above 0, such as 1e18")
    earlier = _earlier(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        parts = split_off(as_corpus(corpus), {}, PARTS, scratch, seed=seed, progress=progress)
        chosen = tokenizer or TokenizerChoice("bpe")
        the_tokenizer, encoded = encode_parts(parts, chosen, scratch, progress)
        data = TrainingData(the_tokenizer, encoded["train"], None, context, seed, progress, device)
        identity = _identity(data, encoded, minutes, grid_sizes, grid_shares)
        found = _taken_up(earlier, identity, out, progress)
        if found is None:
            of_text = _fitting(data, grid_sizes, grid_shares, minutes)
            found = Scaling(identity, of_text)
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
    """Train and measure the cells that are not there yet, cheap ones first, as long as the time suffices."""
    done = {(cell.size, cell.share) for cell in found.cells}
    jobs = [(size, share) for share in texts for size in sizes]
    with data.progress.task("networks", len(jobs), "networks") as going:
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
            going.advance(1)


def _is_too_late(cells: Sequence[Cell], size: Size, share: float, seconds: float) -> bool:
    """Whether a cell would end well after the time, by the speed of its size so far.

    Never before a law can be fitted, whichever cell is left out: to three sizes and three shares.
    """
    like = [cell for cell in cells if cell.size == size.name and cell.share < share]
    sizes, shares = {cell.size for cell in cells}, {cell.share for cell in cells}
    if not like or len(cells) <= FEWEST_CELLS or min(len(sizes), len(shares)) <= 3:
        return False
    largest = max(like, key=lambda cell: cell.share)
    spent = sum(cell.seconds for cell in cells)
    return spent + largest.seconds * share / largest.share > _OVERDUE * seconds


def _trained(data: TrainingData, valid: Encoded, size: Size, share: float) -> Cell:
    """One network, trained in one pass over its text and measured."""
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
    """The part of the text of which all networks together can read their shares in the time."""
    with data.progress.task("measuring speeds", len(sizes), "sizes") as going:
        overhead, per_token = 0.0, 0.0
        for size in sizes:
            seconds = []
            for steps in (1, _PROBE_STEPS):
                began = time.perf_counter()
                _train(data, size, steps=steps, batch=_PROBE_BATCH)
                seconds.append(time.perf_counter() - began)
            overhead += seconds[0] * len(shares)
            per_token += max(seconds[1] - seconds[0], 1e-3) / ((_PROBE_STEPS - 1) * _PROBE_BATCH)
            going.advance(1)
    wanted = data.train.tokens * sum(shares) * per_token
    part = (_SPENT * 60 * minutes - overhead) / wanted
    if part < _LEAST_SHARE:
        needed = (overhead + _LEAST_SHARE * wanted) / (_SPENT * 60)
        raise ChainruleError(
            f"{minutes:g} minutes are too few for these sizes on this text: about {needed:.1f} are needed at least"
        )
    return min(1.0, part)


def _conclude(found: Scaling, budgets: Sequence[float]) -> None:
    """Fit the law to the cells, and say what it advises for the budgets."""
    N, D, L = ([float(getattr(cell, name)) for cell in found.cells] for name in ("parameters", "tokens", "nats"))
    law, without = fit_law(N, D, L), left_out(N, D, L)
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


# -- runs that go on --------------------------------------------------------------------------------------


def _identity(
    data: TrainingData, encoded: dict[str, Encoded], minutes: float, sizes: Sequence[Size], shares: Sequence[float]
) -> dict[str, Any]:
    return {
        "texts": {name: part.fingerprint for name, part in encoded.items()},
        "tokenizer": hashlib.sha256(dump_tokenizer(data.tokenizer).encode()).hexdigest(),
        "context": data.context,
        "seed": data.seed,
        "minutes": minutes,
        "sizes": [size.name for size in sizes],
        "shares": list(shares),
    }


def _earlier(out: Path, overwrite: bool) -> dict[str, Any] | None:
    """The record of an earlier run in the folder; one with anything else in it is refused."""
    if not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir())):
        return None
    if not (out / RECORD).is_file():
        raise FolderError(f"{out} exists, is not empty and holds no {RECORD}; choose another folder")
    if overwrite:
        return None
    try:
        content: dict[str, Any] = json.loads((out / RECORD).read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError(f"not {FORMAT}")
        [Cell(**cell) for cell in content["cells"]]
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(f"{out / RECORD}: damaged: {error}") from None
    return content


def _taken_up(
    earlier: dict[str, Any] | None, identity: dict[str, Any], out: Path, progress: Progress
) -> Scaling | None:
    """The cells of an earlier run of the same texts and settings; None: begin anew."""
    if earlier is None:
        return None
    if earlier["identity"] != json.loads(to_json(identity)):
        raise FolderError(
            f"{out} holds another grid, of other texts or settings; choose another folder, or overwrite it "
            "(--overwrite)"
        )
    cells = [Cell(**cell) for cell in earlier["cells"]]
    wanted = len(identity["sizes"]) * len(identity["shares"])
    progress.note(f"{out}: {len(cells)} of {wanted} networks are there from before")
    return Scaling(identity, float(earlier["of_text"]), cells)
