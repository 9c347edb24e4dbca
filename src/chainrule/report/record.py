"""Every figure of a comparison's report, as plain values: what the page shows, and report.json keeps."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

from chainrule.comparison.advice import advice
from chainrule.comparison.results import RESULTS, Comparison, Point, Result, loss_of, read_comparison
from chainrule.comparison.surprisals import (
    SURPRISALS,
    TEXT,
    Surprisals,
    read_surprisals,
    read_text,
    record_surprisals,
)
from chainrule.errors import ChainruleError, FolderError
from chainrule.evaluation.measure import Measured
from chainrule.folder import MANIFEST, METRICS
from chainrule.report.costs import COSTS, Cost, frontier
from chainrule.report.samples import MAX_TOKENS, MOST_MEGABYTES, TOP_P, Samples, prompts_from, written_after
from chainrule.report.surprise import (
    Bins,
    Span,
    Words,
    best_spans,
    by_position,
    by_rank,
    by_training_count,
    words_of,
)
from chainrule.system.progress import SILENT, Progress
from chainrule.text.given import Text
from chainrule.training.checkpoints.run_folder import HISTORY

FORMAT, VERSION = "chainrule-report", 1
MOST_DRAWN = 10
"""Models in one chart: more lines cannot be told apart."""
ANALYSED_BYTES = 4_000_000
"""The part of the held-out text that is looked at word by word."""
MAP_BYTES = 32_000
"""The part of it that the map shows."""
SPANS = 6
"""Spans that are listed for each pair of models."""
_AROUND = 40  # characters of the line that are shown before and after a span


@dataclass(frozen=True)
class Row:
    """A model: how good it is, and what it costs."""

    name: str
    kind: str
    folder: str
    settings: dict[str, Any]
    loss: float | None
    """What models are ranked by; None where a model gives no probabilities."""
    figures: dict[str, float]
    interval: tuple[float, float] | None
    """The confidence interval of the loss, if the comparison has it."""
    behind: tuple[float, float, float] | None
    """By how much its loss is above the best one's on the same documents, and the interval of that."""
    is_told_from_best: bool | None
    """Whether the test text shows that it is worse than the best; None where that is not known."""
    costs: dict[str, float | None]
    frontier: list[str]
    """The costs in which no other model is both as good and as cheap."""
    is_best: bool
    is_drawn: bool
    """Whether it is one of those in the charts of lines and in the map."""
    note: str
    steps: int | None
    tokens_seen: int | None


@dataclass(frozen=True)
class Curve:
    """The losses of a network in training and in validation, in bits per token."""

    name: str
    points: list[dict[str, float]]


@dataclass(frozen=True)
class SurprisalMap:
    """A text and what each word takes under each model, in tenths of a bit."""

    words: list[str]
    tenths: dict[str, list[int]]
    analysed_words: int
    spans: list[dict[str, Any]]
    """For each ordered pair of models: where the first gains most over the second."""


@dataclass(frozen=True)
class ComparisonRecord:
    """The report of a comparison."""

    format: str
    version: int
    what: str
    title: str
    task: str
    loss: str
    """The name of what models are ranked by."""
    tokenizer: str
    vocab_size: int
    context: str
    parts: dict[str, dict[str, int]]
    is_finished: bool
    advice: str
    costs: list[dict[str, Any]]
    models: list[Row]
    curves: list[Curve]
    learning: list[dict[str, Any]]
    """The loss of models that were trained on parts of the corpus, if the comparison has it."""
    position: Bins | None
    frequency: Bins | None
    samples: Samples
    map: SurprisalMap | None
    missing: list[str]
    """What the report lacks, and how to get it."""

    @property
    def drawn(self) -> list[Row]:
        """The models in the charts of lines and in the map, the best first."""
        return sorted((row for row in self.models if row.is_drawn), key=lambda row: _order(row.loss))

    def to_json(self) -> dict[str, Any]:
        """The record as plain values."""
        return asdict(self)


def comparison_record(
    folder: Path,
    *,
    test: Text | None = None,
    prompts: Sequence[str] | None = None,
    progress: Progress = SILENT,
) -> ComparisonRecord:
    """The record of a comparison folder; with `test`, the surprisals of every model on it are computed first."""
    comparison, raw = _read(folder)
    if test is not None:
        if comparison.task != "language":
            raise ChainruleError(f"{folder}: a comparison for {comparison.task} has no surprisals of a text")
        record_surprisals(folder, comparison, test, progress=progress)
    rows, costs = _rows(comparison, raw["results"])
    drawn = [row for row in rows if row.is_drawn]
    found, block = _surprisals(folder, comparison)
    words = words_of(block.decode()) if block else None
    missing = []
    if comparison.task == "language" and (words is None or not found):
        what = f"{SURPRISALS}/*.npz" if words is not None else TEXT
        missing.append(
            f"Loss by position, loss by word frequency and the surprisal map need {what}, which this folder does "
            f"not have: chainrule report {folder} --test FILE makes it from the held-out text."
        )
    finite = {row.name: found[row.name] for row in drawn if row.name in found and _is_finite(row.loss)}
    return ComparisonRecord(
        format=FORMAT,
        version=VERSION,
        what="comparison",
        title=f"Comparison {folder.resolve().name}",
        task=comparison.task,
        loss="bits per byte" if comparison.task == "language" else "loss",
        tokenizer=comparison.tokenizer,
        vocab_size=comparison.vocab_size,
        context=comparison.context,
        parts=comparison.parts,
        is_finished=comparison.is_finished,
        advice=advice(comparison) or "No model gives every token a probability, so none can be recommended.",
        costs=[asdict(cost) for cost in costs],
        models=rows,
        curves=_curves(folder, rows),
        learning=[_learning(point) for point in comparison.curve],
        position=by_position(block, finite, lines=comparison.context == "line") if finite else None,
        frequency=None if words is None or not finite else _frequency(comparison, found, finite, words, block),
        samples=_samples(folder, comparison, drawn, words, prompts, progress),
        map=None if words is None or not found else _map(words, drawn, found),
        missing=missing,
    )


def _read(folder: Path) -> tuple[Comparison, dict[str, Any]]:
    """The comparison of a folder, and its file as it is, which may say more than this version knows."""
    comparison = read_comparison(folder)
    if comparison is None:
        raise FolderError(f"{folder / RESULTS}: not the results of a comparison, or damaged")
    if not comparison.results:
        raise FolderError(
            f"{folder}: no model of this comparison is finished yet; the command that began it goes on with it"
        )
    return comparison, json.loads((folder / RESULTS).read_text(encoding="utf-8"))


def _is_finite(loss: float | None) -> bool:
    return loss is not None and math.isfinite(loss)


def _order(loss: float | None) -> float:
    return math.inf if loss is None else loss


# -- the table --------------------------------------------------------------------------------------------


def _rows(comparison: Comparison, raw: Sequence[dict[str, Any]]) -> tuple[list[Row], list[Cost]]:
    """A row for each model, and the costs that at least one of them has."""
    prices = {cost: [cost.of(one) for one in raw] for cost in COSTS}
    costs = [cost for cost in COSTS if any(price is not None for price in prices[cost])]
    losses = [loss_of(result) for result in comparison.results]
    on_frontier = {cost.key: frontier(losses, prices[cost], cost) for cost in costs}
    drawn = _drawn(comparison.results, losses)
    return [
        Row(
            name=result.name,
            kind=result.kind,
            folder=result.folder,
            settings=dict(result.settings),
            loss=losses[i],
            figures=_figures(result),
            interval=_interval(raw[i]),
            behind=result.behind,
            is_told_from_best=None if result.behind is None else result.is_told_from_best,
            costs={cost.key: prices[cost][i] for cost in costs},
            frontier=[key for key, holds in on_frontier.items() if holds[i]],
            is_best=result is comparison.best,
            is_drawn=i in drawn,
            note=_note(result),
            steps=result.steps,
            tokens_seen=result.tokens_seen,
        )
        for i, result in enumerate(comparison.results)
    ], costs


def _drawn(results: Sequence[Result], losses: Sequence[float | None]) -> set[int]:
    """The models to draw: the best of each kind first, then the best of the others."""
    order = sorted(range(len(results)), key=lambda i: _order(losses[i]))
    of_kind: dict[str, int] = {}
    for i in order:
        of_kind.setdefault(results[i].kind, i)
    firsts = set(of_kind.values())
    return set(sorted(order, key=lambda i: (not _is_finite(losses[i]), i not in firsts))[:MOST_DRAWN])


def _figures(result: Result) -> dict[str, float]:
    if isinstance(result.test, Measured):
        return {"bits per byte": result.test.bits_per_byte, "perplexity": result.test.perplexity}
    return dict(result.test.values)


def _interval(raw: dict[str, Any]) -> tuple[float, float] | None:
    found = raw.get("interval") or raw["test"].get("interval")
    return (float(found[0]), float(found[1])) if found and len(found) == 2 else None


def _note(result: Result) -> str:
    if not isinstance(result.test, Measured):
        return result.test.note
    notes = []
    if not result.test.normalised:
        notes.append("scores, not probabilities")
    if not result.test.lossless:
        notes.append("a lower bound: the tokens do not spell out all of the text")
    if result.test.impossible:
        notes.append(f"{result.test.impossible / result.test.tokens:.1%} of the tokens had probability 0")
    return "; ".join(notes)


# -- what is drawn ----------------------------------------------------------------------------------------


def _curves(folder: Path, rows: Sequence[Row]) -> list[Curve]:
    """The curves of the models that were trained in steps."""
    found = []
    for row in rows:
        try:
            metrics = json.loads((folder / Path(row.folder).name / METRICS).read_text(encoding="utf-8"))
            history = metrics.get(HISTORY) or []
            points = [
                {"step": one["step"], "tokens": one["tokens"], **_in_bits(one, ("loss", "validation_loss"))}
                for one in history
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            continue  # a model that was moved away, or of an earlier version: the table has it all the same
        if points:
            found.append(Curve(row.name, points))
    return found


def _in_bits(measurement: dict[str, Any], names: Sequence[str]) -> dict[str, float]:
    return {name: measurement[name] / math.log(2) for name in names if measurement.get(name) is not None}


def _learning(point: Point) -> dict[str, Any]:
    keys = ("name", "share", "tokens", "bytes", "bits_per_byte", "perplexity", "training_seconds")
    return {key: getattr(point, key) for key in keys}


def _surprisals(folder: Path, comparison: Comparison) -> tuple[dict[str, Surprisals], bytes]:
    """The surprisals of every model that has some, and the text; of a long one whole lines of its beginning."""
    block = read_text(folder) if comparison.task == "language" else None
    if not block:
        return {}, b""
    part = _first_lines(block, ANALYSED_BYTES)
    found = {}
    for result in comparison.results:
        surprisals = read_surprisals(folder, result.folder, len(block))
        if surprisals is not None:
            tokens = int((surprisals.ends <= len(part)).sum())
            found[result.name] = Surprisals(surprisals.nats[:tokens], surprisals.ends[:tokens])
    return found, part


def _first_lines(block: bytes, size: int) -> bytes:
    """The first whole lines of a text, about `size` bytes of it."""
    return block if len(block) <= size else block[: block.find(b"\n", size) + 1] or block


def _frequency(
    comparison: Comparison,
    found: dict[str, Surprisals],
    finite: dict[str, Surprisals],
    words: Words,
    block: bytes,
) -> Bins:
    """By the counts of the training text if a model of relative frequencies tells them, otherwise by rank."""
    for result in comparison.results:
        counted = result.settings.get("order") == 1 and result.settings.get("smoothing") == "mle"
        if result.kind == "ngram" and counted and result.name in found:
            return by_training_count(found[result.name], comparison.parts["train"]["tokens"], block, finite)
    return by_rank(words, finite)


def _samples(
    folder: Path,
    comparison: Comparison,
    drawn: Sequence[Row],
    words: Words | None,
    prompts: Sequence[str] | None,
    progress: Progress,
) -> Samples:
    """The samples that the comparison took, and what models write after prompts where they load quickly."""
    taken = {result.name: result.sample for result in comparison.results}
    names = [row.name for row in sorted(drawn, key=lambda row: _order(row.loss))]
    seed = int(comparison.identity.get("seed", 0))
    if comparison.task != "language":
        return Samples("examples of the test set", [""], {name: [taken[name]] for name in names})
    how = f"top-p {TOP_P}, seed {seed}"
    folders = {row.name: folder / Path(row.folder).name for row in drawn}
    size = sum(row.costs.get("megabytes") or 0.0 for row in drawn)
    there = {name: where for name, where in folders.items() if (where / MANIFEST).is_file()}
    if prompts is None:
        prompts = prompts_from(words) if words is not None and size <= MOST_MEGABYTES else []
    written = written_after(there, prompts, seed, progress) if prompts else {}
    texts = {name: [taken[name], *written.get(name, [""] * len(prompts))] for name in names}
    return Samples(f"{how}; after a prompt at most {MAX_TOKENS} tokens", ["", *prompts], texts)


def _map(words: Words, drawn: Sequence[Row], found: dict[str, Surprisals]) -> SurprisalMap:
    rows = sorted((row for row in drawn if row.name in found), key=lambda row: _order(row.loss))
    bits = {row.name: words.bits(found[row.name]) for row in rows}
    size = int((words.edges[1:] <= MAP_BYTES).sum()) or len(words.words)
    lines = words.line
    while size < len(words.words) and lines[size] == lines[size - 1]:
        size += 1  # to the end of the line
    numbers = lines.tolist()
    pairs = []
    for (better, bits_of_better), (other, bits_of_other) in permutations(bits.items(), 2):
        spans = [
            {**_place(words, numbers, one), "bits": round(one.bits, 1), "other": round(one.bits_of_other, 1)}
            for one in best_spans(bits_of_better, bits_of_other, lines, SPANS)
            if round(one.bits, 1) < round(one.bits_of_other, 1)  # a difference that can be seen
        ]
        pairs.append({"better": better, "than": other, "spans": spans})
    tenths = {name: [round(10 * value) for value in values[:size].tolist()] for name, values in bits.items()}
    return SurprisalMap(words.words[:size], tenths, len(words.words), pairs)


def _place(words: Words, lines: Sequence[int], span: Span) -> dict[str, Any]:
    """Where a span is, and the text around it."""
    begin, end = span.first, span.last
    while begin > 0 and lines[begin - 1] == lines[span.first]:
        begin -= 1
    while end < len(lines) and lines[end] == lines[span.first]:
        end += 1
    before = "".join(words.words[begin : span.first])
    after = "".join(words.words[span.last : end]).rstrip("\n")
    return {
        "first": span.first,
        "last": span.last,
        "before": before if len(before) <= _AROUND else "…" + before[-_AROUND:],
        "text": "".join(words.words[span.first : span.last]),
        "after": after if len(after) <= _AROUND else after[:_AROUND] + "…",
    }
