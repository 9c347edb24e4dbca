"""Every figure of a comparison's report: what the page shows, and report.json keeps."""

from __future__ import annotations

import json
import math
import shlex
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import settings as settings_of
from chainrule.comparison.advice import NEAR, sentences
from chainrule.comparison.results import RESULTS, Comparison, Result, read_comparison
from chainrule.comparison.surprisals import (
    SURPRISALS,
    TEXT,
    Surprisals,
    read_sizes,
    read_surprisals,
    read_text,
    record_surprisals,
)
from chainrule.contract.kinds import find_kind
from chainrule.errors import ChainruleError, FolderError
from chainrule.folder import METRICS
from chainrule.report import surprise
from chainrule.report.samples import Samples, samples_of
from chainrule.report.surprise import KINDS, Bins, Ints, Span, Words
from chainrule.system.progress import SILENT, Progress
from chainrule.text.given import Text
from chainrule.training.checkpoints.run_folder import HISTORY

FORMAT, VERSION = "chainrule-report", 1
MOST_DRAWN = 10
"""Models in one chart: a reader cannot distinguish more lines."""
ANALYSED_BYTES = 4_000_000
"""The part of the held-out text that is analysed word by word."""
MAP_BYTES = 32_000
"""The part of it that the map shows."""
SPANS = 6
"""Spans that are listed for each pair of models."""
_KEPT = ("tokens", "loss", "validation_loss", "learning_rate", "tokens_per_second", "grad_norm", "seconds")
_AROUND = 40  # characters of the line that are shown before and after a span


@dataclass(frozen=True)
class SurprisalMap:
    """A text, and the surprisal of each word under each model, in tenths of a bit."""

    words: list[str]
    tenths: dict[str, list[int]]
    analysed_words: int
    spans: list[dict[str, Any]]
    """For each ordered pair of models: where the first gains most over the second."""


@dataclass(frozen=True)
class ComparisonDetails:
    """A comparison, and the figures that its report adds to it."""

    title: str
    comparison: Comparison
    curves: dict[str, list[dict[str, float]]]
    """The losses of each network in training and in validation, in bits per token."""
    position: Bins | None
    frequency: Bins | None
    kinds: Bins | None
    samples: Samples
    map: SurprisalMap | None
    missing: list[str]
    """What the report lacks, and how to get it."""

    @cached_property
    def drawn(self) -> list[Result]:
        """The models in the charts of lines and in the map, the best first."""
        return drawn_models(self.comparison)

    @cached_property
    def answer(self) -> list[str]:
        """Which model to take, and which for less: a sentence each."""
        found = sentences(self.comparison)
        if not found:
            return ["No model gives every token a probability, so none can be recommended."]
        near = f"No model at half its cost or less comes within {NEAR:.0%} of its {self.comparison.loss_name}."
        return found if len(found) > 1 else [*found, near]

    @cached_property
    def frontiers(self) -> dict[str, set[str]]:
        """For each cost, the names of the models that no other beats."""
        return {cost.key: self.comparison.frontier(cost.key) for cost in self.comparison.costs}

    @cached_property
    def best_at(self) -> dict[str, list[str]]:
        """For each kind of word, its models, the best first."""
        kinds = self.kinds
        if kinds is None:
            return {}
        return {
            kind: sorted(kinds.means, key=lambda name, i=i: kinds.means[name][i])  # type: ignore[misc]
            for i, kind in enumerate(kinds.labels)
        }

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        found, best, costs = self.comparison, self.comparison.best, self.comparison.costs
        shared = ("task", "tokenizer", "vocab_size", "context", "parts", "is_finished")
        of_model = ("name", "kind", "folder", "settings", "loss", "figures", "interval", "behind", "note", "steps")
        of_point = ("name", "share", "tokens", "bytes", "bits_per_byte", "perplexity", "training_seconds")
        models = [
            {
                **{key: getattr(one, key) for key in (*of_model, "tokens_seen")},
                "is_told_from_best": None if one.behind is None else one.differs_from_best,
                "costs": {cost.key: cost.of(one) for cost in costs},
                "frontier": [key for key, names in self.frontiers.items() if one.name in names],
                "is_best": one is best,
                "is_drawn": one in self.drawn,
            }
            for one in found.results
        ]
        bins, kinds = {"position": self.position, "frequency": self.frequency}, None
        if self.kinds is not None:
            what = {kind: KINDS[kind] for kind in self.kinds.labels}
            best_at = {kind: names[0] for kind, names in self.best_at.items()}
            kinds = {**asdict(self.kinds), "what": what, "best": best_at}
        return {
            "format": FORMAT,
            "version": VERSION,
            "what": "comparison",
            "title": self.title,
            **{key: getattr(found, key) for key in shared},
            "loss": found.loss_name,
            "advice": " ".join(self.answer),
            "costs": [asdict(cost) for cost in costs],
            "models": models,
            "curves": [{"name": name, "points": points} for name, points in self.curves.items()],
            "learning": [{key: getattr(point, key) for key in of_point} for point in found.curve],
            **{name: None if one is None else asdict(one) for name, one in bins.items()},
            "kinds": kinds,
            "samples": asdict(self.samples),
            "map": None if self.map is None else asdict(self.map),
            "missing": self.missing,
        }


def comparison_details(
    folder: Path, *, test: Text | None = None, prompts: Sequence[str] | None = None, progress: Progress = SILENT
) -> ComparisonDetails:
    """Compute the figures of a comparison folder; with `test`, first the surprisals of every model on it."""
    comparison = read_finished(folder)
    if test is not None:
        if not comparison.is_of_text:
            raise ChainruleError(f"{folder}: a comparison for {comparison.task} has no surprisals of a text")
        record_surprisals(folder, comparison, test, progress=progress)
    drawn = drawn_models(comparison)
    found, block, sizes = _surprisals(folder, comparison)
    words = surprise.words_of(block.decode()) if block else None
    missing = []
    if comparison.is_of_text and (words is None or not found):
        what = f"{SURPRISALS}/*.npz" if words is not None else TEXT
        missing.append(
            f"Loss by position, loss by word frequency and the surprisal map need {what}, which this folder does "
            f"not have: chainrule report {shlex.quote(str(folder))} --test FILE makes it from the held-out text."
        )
    in_order = sorted(drawn, key=comparison.results.index)
    fair = [one for one in in_order if one not in comparison.apart]
    finite = {one.name: found[one.name] for one in fair if one.name in found and one.has_finite_loss}
    return ComparisonDetails(
        title=f"Comparison {folder.resolve().name}",
        comparison=comparison,
        curves=_curves(folder, comparison.results),
        position=surprise.by_position(block, finite, lines=comparison.context == "line") if finite else None,
        frequency=None if words is None or not finite else _frequency(comparison, found, finite, words, block),
        kinds=surprise.by_kind(words, finite, sizes) if words is not None and finite else None,
        samples=samples_of(folder, comparison, drawn, words, prompts, progress),
        map=None if words is None or not found else _map(words, [one for one in drawn if one in fair], found),
        missing=missing,
    )


def read_finished(folder: Path) -> Comparison:
    """Read the comparison of a folder, with at least one model; otherwise the error says what is wrong."""
    comparison = read_comparison(folder)
    if comparison is None:
        raise FolderError(f"{folder / RESULTS}: not the results of a comparison, or damaged")
    if not comparison.results:
        raise FolderError(
            f"{folder}: no model of this comparison is finished yet; the command that began it goes on with it"
        )
    return comparison


def drawn_models(comparison: Comparison) -> list[Result]:
    """Return the models to draw, best first: the best of each kind, then of the others; those apart come last."""
    apart, order = comparison.apart, comparison.ranked
    firsts: dict[str, Result] = {}
    for one in order:
        firsts.setdefault(one.kind, one)
    chosen = sorted(order, key=lambda one: (one in apart or not one.has_finite_loss, firsts[one.kind] is not one))
    chosen = chosen[:MOST_DRAWN]
    return [one for one in order if one in chosen]


def _curves(folder: Path, results: Sequence[Result]) -> dict[str, list[dict[str, float]]]:
    """Read the curves of the models that were trained in steps."""
    found = {}
    for one in results:
        # one that was moved away, or is of an earlier version, has none: the table has it all the same
        with suppress(OSError, ValueError, TypeError, AttributeError, RecursionError):
            metrics = json.loads((folder / Path(one.folder).name / METRICS).read_text(encoding="utf-8"))
            if points := [point for point in points_of(metrics.get(HISTORY) or []) if "tokens" in point]:
                found[one.name] = points
    return found


def points_of(records: Iterable[dict[str, Any]]) -> list[dict[str, float]]:
    """Return the figures of the measurements that have a step, with losses in bits per token."""
    points: list[dict[str, float]] = []
    for record in records:
        if isinstance(record.get("step"), int):
            numbers = {key: one for key in _KEPT if isinstance(one := record.get(key), int | float)}
            finite = {key: one for key, one in numbers.items() if math.isfinite(one)}
            in_bits = {key: one / math.log(2) for key, one in finite.items() if key in ("loss", "validation_loss")}
            found = {"step": record["step"], **finite, **in_bits}
            if points and points[-1]["step"] == found["step"] and "loss" in points[-1]:
                # a validation has the mean loss since the one before, and the curve that since the last reading
                points[-1] = {**found, **points[-1]}
            else:
                points.append(found)
    return points


def _surprisals(folder: Path, comparison: Comparison) -> tuple[dict[str, Surprisals], bytes, Ints]:
    """Read the surprisals of all models, the text and the sizes of its documents; of a long text its start."""
    block = read_text(folder) if comparison.is_of_text else None
    if not block:
        return {}, b"", np.zeros(0, np.int64)
    part = block
    if len(block) > ANALYSED_BYTES:
        part = block[: block.find(b"\n", ANALYSED_BYTES) + 1] or block
    found = {}
    for result in comparison.results:
        surprisals = read_surprisals(folder, result.folder, len(block))
        if surprisals is not None:
            tokens = int((surprisals.ends <= len(part)).sum())
            found[result.name] = Surprisals(surprisals.nats[:tokens], surprisals.ends[:tokens])
    sizes = read_sizes(folder, block)
    return found, part, sizes[np.cumsum(sizes) - sizes < len(part)]


def _frequency(
    comparison: Comparison, found: dict[str, Surprisals], finite: dict[str, Surprisals], words: Words, block: bytes
) -> Bins:
    """Group by counts in the training text if a model gives the frequency of tokens there, otherwise by rank."""
    for result in comparison.results:
        settings: Any = None
        with suppress(ChainruleError):  # a kind of a plug-in that is not installed, or of an earlier version
            settings = settings_of.parse(find_kind(result.kind).settings, result.settings)
        if result.name in found and getattr(settings, "is_token_frequency", False):
            tokens = comparison.parts["train"]["tokens"]
            return surprise.by_training_count(found[result.name], tokens, block, finite)
    return surprise.by_rank(words, finite)


def _map(words: Words, drawn: Sequence[Result], found: dict[str, Surprisals]) -> SurprisalMap:
    bits = {one.name: words.bits(found[one.name]) for one in drawn if one.name in found}
    size = int((words.edges[1:] <= MAP_BYTES).sum()) or len(words.words)
    lines = words.line
    size = int(np.searchsorted(lines, lines[size - 1], side="right"))  # to the end of the line
    pairs = []
    for (better, bits_of_better), (other, bits_of_other) in permutations(bits.items(), 2):
        spans = [
            {**_place(words, lines, one), "bits": round(one.bits, 1), "other": round(one.bits_of_other, 1)}
            for one in surprise.best_spans(bits_of_better, bits_of_other, lines, SPANS)
            if round(one.bits, 1) < round(one.bits_of_other, 1)  # a difference that can be seen
        ]
        pairs.append({"better": better, "than": other, "spans": spans})
    tenths = {name: [round(10 * value) for value in values[:size].tolist()] for name, values in bits.items()}
    return SurprisalMap(words.words[:size], tenths, len(words.words), pairs)


def _place(words: Words, lines: Ints, span: Span) -> dict[str, Any]:
    """Return the position of a span, and the text around it in its line."""
    begin, end = np.searchsorted(lines, lines[span.first] + np.arange(2))
    before = "".join(words.words[begin : span.first])
    after = "".join(words.words[span.last : end]).rstrip("\n")
    return {
        "first": span.first,
        "last": span.last,
        "before": before if len(before) <= _AROUND else "…" + before[-_AROUND:],
        "text": "".join(words.words[span.first : span.last]),
        "after": after if len(after) <= _AROUND else after[:_AROUND] + "…",
    }
