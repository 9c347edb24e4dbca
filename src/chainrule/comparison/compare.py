"""Comparison: a ladder of models, trained on the same split with the same tokenizer, measured on one scale."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import settings as settings_of
from chainrule.comparison.advice import advice
from chainrule.comparison.ladder import FULL, MINUTES, Budget, Ladder, find_ladder
from chainrule.comparison.learning_curve import CurveTexts, add_whole_text, on_part, points_of, timed_as
from chainrule.comparison.measured_training import Climb
from chainrule.comparison.results import FORMAT, RESULTS, Comparison, Failure, Result, loss_of, read_comparison
from chainrule.comparison.surprisals import SURPRISALS, Surprisals, read_surprisals, write_text
from chainrule.contract.kinds import HeldOut, Kind, Rung, Sources, TaggedSources, Task, TrainingData
from chainrule.contract.lm import Context
from chainrule.errors import ChainruleError, FolderError, Interrupted
from chainrule.evaluation.intervals import FEWEST, Interval, drawn_bits_per_byte, per_document
from chainrule.folder import MANIFEST, to_json
from chainrule.runs.prepare import TokenizerChoice, split_off
from chainrule.runs.train import as_examples, encode_examples, lines_of
from chainrule.system.devices import choose_device
from chainrule.system.disk import LOCK, holding, remove_folder, scratch_folder, sweep
from chainrule.system.progress import Progress, Reports, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text
from chainrule.text.pairs import GivenPairs
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}


def compare(
    corpus: Text | GivenPairs,
    out: str | Path,
    *,
    task: Task = "language",
    ladder: str | Path = FULL,
    valid: Text | GivenPairs | None = None,
    test: Text | GivenPairs | None = None,
    kinds: Sequence[str] | None = None,
    tokenizer: TokenizerChoice | None = None,
    source_tokenizer: TokenizerChoice | None = None,
    context: Context = "line",
    device: str = "cpu",
    minutes: float | None = None,
    curve: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    progress: Reports = False,
) -> Comparison:
    """Train the ladder and measure every rung on the same held-out text; the models stay in folders of `out`.

    Where `valid` or `test` is not given, it is split off the corpus. compare.json grows with every rung; a
    comparison that was stopped goes on when it is asked for again, and takes up the models that are there. A rung
    that fails is noted, and the others go on. `minutes` is the time of the whole comparison, which its networks
    share [4; other tasks: a minute for each network]. A `task` other than language has a ladder and a measure of
    its own: translation takes pairs. `ladder` is quick, full, a table of the lectures
    (`ladder_names`), or a file that lists rungs. With `curve`, the rungs of the short ladder (of a file all) are
    trained on parts of the training text too, within the same time.
    """
    if curve and task != "language":
        raise ChainruleError("learning curves are of language models: leave out the curve")
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    rungs = find_ladder(ladder, kinds, task, progress)
    minutes = MINUTES if minutes is None and task == "language" else minutes
    _check_some(rungs, device)
    points = points_of(rungs) if curve else []
    first = rungs[0][0]
    earlier = _check_destination(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        lines, *given = (
            None if one is None else lines_of(as_examples(first, one)) for one in (corpus, valid, test)
        )
        assert lines is not None
        of_own = dict(zip(("valid", "test"), given, strict=True))
        parts = split_off(lines, of_own, SHARES, scratch, seed=seed, progress=progress)
        chosen = tokenizer or TokenizerChoice("bpe" if task == "language" else first.tokenizer)
        the_tokenizer, encoded, sources = encode_examples(first, parts, chosen, source_tokenizer, scratch, progress)
        data = TrainingData(
            the_tokenizer, encoded["train"], encoded["valid"], context, seed, progress, device, sources=sources
        )
        comparison = Comparison(
            format=FORMAT,
            tokenizer=the_tokenizer.name,
            vocab_size=the_tokenizer.vocab_size,
            context=context,
            parts={n: {"lines": e.lines, "tokens": e.tokens, "bytes": e.bytes} for n, e in encoded.items()},
            results=[],
            identity=_identity(the_tokenizer, encoded, sources, context, seed, rungs, minutes)
            | {"curve": [[rung.name, share] for _, rung, share in points]},
            task=task,
        )
        texts = CurveTexts(parts["train"], the_tokenizer, scratch, seed, progress)
        there = {(one.name, one.share) for one in earlier.curve} if earlier is not None else set()
        if any((rung.name, share) not in there for _, rung, share in points):
            _ = texts.encoded  # a text of too few documents is refused before anything is written
        if earlier is not None:
            comparison.results.extend(_taken_up(earlier, comparison, out, progress))
            kept = {one.name for one in comparison.results}
            comparison.curve.extend(one for one in earlier.curve if one.name in kept)
        else:
            _clear(out)
        out.mkdir(exist_ok=True)
        text = write_text(out, parts["test"])
        comparison.write(out)
        climb = Climb(data, HeldOut(parts["test"], encoded["test"]), out, text)
        spent = sum(one.seconds for one in comparison.results)
        spent += sum(one.seconds for one in comparison.curve if one.share < 1)
        _climb_all(climb, _jobs(rungs, points), texts, comparison, Budget(minutes, spent))
        _add_mixture(climb, comparison, parts["valid"])
        finished = _with_intervals(comparison, parts["test"], out, seed)
        finished.write(out)
    return finished


def _check_some(rungs: Ladder, device: str) -> None:
    """Refuse a ladder of which no rung can be trained on the device; a single one that cannot fails at its turn."""
    errors = []
    for kind, rung in rungs:
        try:
            kind.check(settings_of.parse(kind.settings, rung.settings), device)
        except ChainruleError as error:
            errors.append(error)
    if len(errors) == len(rungs):
        raise errors[0]


@dataclass(frozen=True)
class _Job:
    """A rung to climb, on all of the training text or, for its learning curve, on a part."""

    kind: Kind
    rung: Rung
    share: float = 1.0

    @property
    def order(self) -> tuple[bool, bool]:
        """Counted models first, which need no time of the budget; the whole text before its parts."""
        return "minutes" in self.rung.settings, self.share < 1


def _jobs(rungs: Ladder, points: Sequence[tuple[Kind, Rung, float]]) -> list[_Job]:
    """What there is to train, in order."""
    jobs = [*(_Job(kind, rung) for kind, rung in rungs), *(_Job(*point) for point in points)]
    return sorted(jobs, key=lambda job: job.order)


def _climb_all(
    climb: Climb, jobs: Sequence[_Job], texts: CurveTexts, comparison: Comparison, budget: Budget
) -> None:
    """Train and measure what has no result yet."""
    progress = climb.data.progress
    drawn = [job.rung.name for job in jobs if job.share < 1]
    add_whole_text(comparison, drawn)
    done = {(one.name, 1.0) for one in comparison.results} | {(one.name, one.share) for one in comparison.curve}
    waiting = [job for job in jobs if (job.rung.name, job.share) not in done]
    with progress.task("models", len(jobs), "models") as climbing:
        climbing.advance(len(jobs) - len(waiting))
        while waiting:
            job = waiting.pop(0)
            try:
                _do(job, climb, texts, comparison, budget, [other.rung for other in waiting])
            except Interrupted:
                raise
            except (ChainruleError, RuntimeError, MemoryError) as error:
                message = str(error) or type(error).__name__
                comparison.failures.append(Failure(job.rung.name, job.kind.name, message, job.share))
                name = on_part(job.rung.name, job.share)
                progress.note(f"{name} failed, and the others go on: {error}")
            add_whole_text(comparison, drawn)
            comparison.write(climb.out)
            climbing.advance(1)
    if not comparison.results:
        raise ChainruleError(f"no model could be trained; the first error: {comparison.failures[0].error}")


def _do(
    job: _Job,
    climb: Climb,
    texts: CurveTexts,
    comparison: Comparison,
    budget: Budget,
    waiting: Sequence[Rung],
) -> None:
    """Add the result of one job, or nothing for a part of the text where all of it gave nothing to compare with."""
    if job.share == 1:
        order = [rung["name"] for rung in comparison.identity["ladder"]]
        comparison.results.append(climb.up(job.kind, budget.within(job.rung, waiting)))
        comparison.results.sort(key=lambda one: order.index(one.name))
    elif any(one.name == job.rung.name for one in comparison.curve):
        whole = next(one for one in comparison.results if one.name == job.rung.name)
        comparison.curve.append(
            climb.point(job.kind, timed_as(job.rung, whole), job.share, texts.encoded[job.share])
        )


def _add_mixture(climb: Climb, comparison: Comparison, valid: Corpus) -> None:
    """Add the mixture of the best network and the best model that counts, where there are both."""
    if comparison.task != "language":
        return
    try:
        with climb.data.progress.task("mixing"):
            mixed = climb.mixture(comparison.results, valid)
    except Interrupted:
        raise
    except (ChainruleError, RuntimeError, MemoryError) as error:
        climb.data.progress.note(f"the mixture failed: {error}")
    else:
        comparison.results.extend([] if mixed is None else [mixed])


# -- intervals --------------------------------------------------------------------------------------------


def _with_intervals(comparison: Comparison, test: Corpus, out: Path, seed: int) -> Comparison:
    """The comparison with intervals of its figures, by the documents of the test text, and with its advice."""
    found = comparison
    bytes_D = np.asarray([len(one) + (not one.endswith(b"\n")) for one in test.documents()], np.int64)
    fitting = [
        (number, nats_D)
        for number, one in enumerate(comparison.results)
        if loss_of(one) is not None
        and (kept := read_surprisals(out, one.folder, int(bytes_D.sum()))) is not None
        and np.isfinite(nats_D := _per_document(kept, bytes_D)).all()
    ]
    if len(bytes_D) >= FEWEST and fitting:
        drawn = drawn_bits_per_byte(np.stack([nats for _, nats in fitting]), bytes_D, seed)
        results = list(comparison.results)
        best = next((i for i, (number, _) in enumerate(fitting) if results[number] is comparison.best), None)
        for i, (number, _) in enumerate(fitting):
            interval, behind = Interval.of(drawn[:, i]), None
            if best is not None and i != best:
                apart = Interval.of(drawn[:, i] - drawn[:, best])
                mean = _bits(results[number]) - _bits(results[fitting[best][0]])
                behind = (mean, apart.low, apart.high)
            results[number] = replace(results[number], interval=(interval.low, interval.high), behind=behind)
        found = replace(comparison, results=results)
    return replace(found, advice=advice(found))


def _bits(result: Result) -> float:
    loss = loss_of(result)
    assert loss is not None
    return loss


def _per_document(kept: Surprisals, bytes_D: np.ndarray) -> np.ndarray:
    """-ln p of each document: no token goes from one to the next, since each ends with a line."""
    tokens_D = np.diff(np.searchsorted(kept.ends, np.cumsum(bytes_D), side="right"), prepend=0)
    return per_document(kept.nats.astype(np.float64), tokens_D)


# -- comparisons that go on -------------------------------------------------------------------------------


def _identity(
    tokenizer: Tokenizer,
    encoded: Mapping[str, Encoded],
    sources: Sources | TaggedSources | None,
    context: Context,
    seed: int,
    rungs: Ladder,
    minutes: float | None,
) -> dict[str, Any]:
    """What must be the same for a model to be taken up again, as plain values."""
    of_sources = {} if sources is None else {"sources": sources.train.fingerprint}
    return {
        **of_sources,
        "texts": {name: part.fingerprint for name, part in encoded.items()},
        "tokenizer": hashlib.sha256(dump_tokenizer(tokenizer).encode()).hexdigest(),
        "context": context,
        "seed": seed,
        "minutes": minutes,
        "ladder": [_as_listed(kind, rung) for kind, rung in rungs],
    }


def _as_listed(kind: Kind, rung: Rung) -> dict[str, Any]:
    return {"kind": kind.name, "name": rung.name, "settings": dict(rung.settings)}


def _taken_up(earlier: Comparison, now: Comparison, out: Path, progress: Progress) -> list[Result]:
    """The results of an earlier comparison of the same texts that this one asks for too."""
    wanted = json.loads(to_json(now.identity))
    common = {*wanted, *earlier.identity} - {"ladder", "minutes", "curve"}
    if any(earlier.identity.get(name) != wanted.get(name) for name in common):
        raise FolderError(
            f"{out} holds another comparison, of other texts or settings; choose another folder, or overwrite it "
            "(--overwrite)"
        )
    same_time = earlier.identity.get("minutes") == wanted["minutes"]
    listed = {rung["name"]: rung for rung in earlier.identity.get("ladder", [])}
    asked = {rung["name"]: rung for rung in wanted["ladder"]}
    kept = [
        replace(one, interval=None, behind=None)
        for one in earlier.results
        if one.name in asked
        and listed.get(one.name) == asked[one.name]
        and (same_time or "minutes" not in asked[one.name]["settings"])
        and (out / Path(one.folder).name / MANIFEST).is_file()
    ]
    going_on = "" if len(kept) == len(asked) else "; going on with the others"
    progress.note(f"{out}: {len(kept)} of {len(asked)} models are there from before{going_on}")
    return kept


def _check_destination(out: Path, overwrite: bool) -> Comparison | None:
    """Refuse a folder with anything but an earlier comparison; returns one whose models can be taken up."""
    sweep(out / RESULTS)
    if not out.exists() or (out.is_dir() and all(path.name == LOCK for path in out.iterdir())):
        return None
    found = read_comparison(out) if out.is_dir() else None
    if found is None:
        raise FolderError(f"{out} exists, is not empty and is no comparison; choose another folder")
    return None if overwrite else found


def _clear(out: Path) -> None:
    """Remove an earlier comparison's models, and nothing else that may lie beside them."""
    found = read_comparison(out)
    for result in found.results if found is not None else ():
        folder = out / Path(result.folder).name
        sweep(folder)
        if (folder / MANIFEST).is_file():
            remove_folder(folder)
    if found is not None and (out / SURPRISALS).is_dir():
        shutil.rmtree(out / SURPRISALS)
