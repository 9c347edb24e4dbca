"""Comparison: a ladder of models, trained on the same split with the same tokenizer, measured on one scale."""

from __future__ import annotations

import json
import platform
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from chainrule import settings as settings_of
from chainrule.comparison.advice import advise
from chainrule.comparison.budget import MINUTES, EqualBudget, TimeBudget
from chainrule.comparison.ladder import Ladder, find_ladder, folder_name
from chainrule.comparison.learning_curve import CurveTexts, Job, add_whole_text, curve_jobs, on_part, timed_as
from chainrule.comparison.measured_training import MeasuredTraining, going_on
from chainrule.comparison.results import (
    FORMAT,
    RESULTS,
    Comparison,
    Failure,
    Result,
    another_error,
    identity_of,
    is_unused,
    read_comparison,
)
from chainrule.comparison.surprisals import SURPRISALS, read_sizes, read_surprisals, write_text
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import HeldOut, LadderEntry, is_for_accelerators
from chainrule.errors import ChainruleError, FolderError
from chainrule.evaluation.intervals import FEWEST, among, drawn_bits_per_byte, drawn_means, middle_of, per_document
from chainrule.folder import MANIFEST, ContextChoice, to_json
from chainrule.runs.prepare import TokenizerChoice, context_for, split_off
from chainrule.runs.train import Given, as_examples, encode_examples, lines_of
from chainrule.system.devices import choose_device, has_torch, load_torch_whole
from chainrule.system.disk import holding, remove_folder, scratch_folder, sweep
from chainrule.system.parallel import cores
from chainrule.system.progress import Gathered, Progress, Reports, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.overlap import repeated_bytes
from chainrule.text.split import By
from chainrule.tokens.ids import Encoded

SHARES = {"train": 0.8, "valid": 0.1, "test": 0.1}

_HELD_OUT = 64 << 10
"""Bytes that tune, and as many that measure, for each minute: of more, networks would be measured longer than
trained."""
OWN = ("tokenizer", "vocab_size")
"""The fields of a ladder's entry that give a model a tokenizer of its own."""
_SCORED_PER_SECOND = 20_000
"""Tokens that a small network may score on two cores: a first guess at how long measuring takes."""


def compare(
    corpus: Given,
    out: str | Path,
    *,
    task: str = "language",
    ladder: str | Path | None = None,
    valid: Given | None = None,
    test: Given | None = None,
    kinds: Sequence[str] | None = None,
    tokenizer: TokenizerChoice | None = None,
    source_tokenizer: TokenizerChoice | None = None,
    context: ContextChoice = "auto",
    device: str = "cpu",
    minutes: float | None = None,
    budget: str | None = None,
    seeds: int = 1,
    curve: bool = False,
    split: By = "auto",
    include: Sequence[str | Path] = (),
    seed: int = 0,
    overwrite: bool = False,
    progress: Reports = False,
) -> Comparison:
    """Train a ladder of models and measure each on the same held-out text; the models stay in folders of `out`.

    If `valid` or `test` is not given, it is split off the corpus; `split` says what is kept together in a part: a
    file, a paragraph or a line; by "time" the end of the text is held out. compare.json grows with every model; the
    same call continues a comparison that was stopped, with the models that are there. A model that fails is noted,
    and the others go on.

    `ladder` is quick, standard (each family at its best), full (every smoothing method too), a table of the
    lectures (`ladder_names`), or a file that lists models [standard; full with `kinds`]. A `task` other than
    language has a ladder and a measure of its own: translation takes pairs. Context flows across lines
    ("stream"), or each line is a sequence ("line"), as suits the text if not given (`context_for`). `include` are
    folders of models that stand already, which are measured with their own tokenizers.

    `minutes` is the time of the whole comparison, which its networks share [4; other tasks: a minute for each
    network]. With a `budget` every network gets the same instead: tokens=2M, steps=1000 or flops=1e15 of training,
    or parameters=1M. Networks are trained `seeds` times, each time from another seed, and share the time for it;
    their figures are then means. With `curve`, the models of the short ladder (of a file all) are trained on parts
    of the training text too, in the same time.

    >>> import tempfile
    >>> texts = [f"{who} {what}" for who in ("cats", "dogs", "mice", "ants") for what in ("run", "eat", "nap")]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     found = compare(texts, f"{folder}/out", ladder="lecture-ngrams", tokenizer=TokenizerChoice("char"))
    >>> [result.name for result in found.results]
    ['unigram', 'bigram', 'trigram']
    """
    out, device, progress = Path(out), choose_device(device), as_progress(progress)
    entries = find_ladder(ladder, kinds, task, progress)
    first = entries[0][0]
    is_of_text = first.measure is None
    equal = None if budget is None else EqualBudget.parse(budget)
    _check_options(is_of_text, equal, minutes is not None, seeds, curve, bool(include))
    minutes = MINUTES if minutes is None and is_of_text else minutes
    if any(entry.tokenizer is not None for _, entry in entries) and (curve or not is_of_text):
        raise ChainruleError("tokenizers of models are for models of text without learning curves: leave them out")
    _check_trainable(entries, device)
    if has_torch() and any(is_for_accelerators(kind, entry.settings) for kind, entry in entries):
        load_torch_whole()
    began = time.perf_counter()
    on_parts = curve_jobs(entries) if curve else []
    earlier = _check_destination(out, overwrite)
    with holding(out), scratch_folder() as scratch:
        examples, *given = (None if one is None else as_examples(first, one) for one in (corpus, valid, test))
        of_own: Any = dict(zip(("valid", "test"), given, strict=True))
        shares = shares_within(minutes, examples.size() if isinstance(examples, Corpus) else None)
        parts: dict[str, Any] = split_off(examples, of_own, shares, scratch, by=split, seed=seed, progress=progress)
        chosen = tokenizer or TokenizerChoice(first.tokenizer)
        the_tokenizer, encoded, sources = encode_examples(first, parts, chosen, source_tokenizer, scratch, progress)
        data = TrainingData(
            the_tokenizer,
            encoded["train"],
            encoded["valid"],
            context_for(examples, context, split),
            seed,
            progress,
            device,
            sources=sources,
        )
        own = _own_tokens(entries, parts, data, scratch)
        if equal is not None:
            entries = [(kind, equal.within(kind, entry, own[entry.name][0])) for kind, entry in entries]
        jobs = [*(Job(kind, entry) for kind, entry in entries), *on_parts]
        identity = identity_of(data, encoded, minutes) | _asked(jobs, seeds, budget)
        comparison = _begun(task, data, encoded, identity)
        texts = CurveTexts(lines_of(parts["train"]), the_tokenizer, scratch, seed, progress)
        there = {(one.name, one.share) for one in earlier.curve} if earlier is not None else set()
        if any((job.entry.name, job.share) not in there for job in on_parts):
            _ = texts.encoded  # a text of too few documents is refused before anything is written
        _take_up(earlier, comparison, out, progress)
        out.mkdir(exist_ok=True)
        test_lines = lines_of(parts["test"])
        text = write_text(out, test_lines)
        if is_of_text:
            comparison.parts["test"]["repeated"] = repeated_bytes(test_lines, lines_of(parts["train"]))
        comparison.write(out)
        training = MeasuredTraining(data, HeldOut(parts["test"], encoded["test"]), out, text, seeds)
        spent = sum(one.seconds for one in comparison.results)
        spent += sum(one.seconds for one in comparison.curve if one.share < 1)
        spent += time.perf_counter() - began  # to read the text and to make tokens of it
        each = seeds * encoded["test"].tokens / _SCORED_PER_SECOND
        _train_all(training, jobs, texts, own, comparison, TimeBudget(minutes, spent, each, seeds))
        if is_of_text:
            _add_mixture(training, comparison, parts["valid"], scratch)
            _add_included(training, comparison, [Path(folder) for folder in include], scratch)
        finished = _with_intervals(comparison, text, out, seed)
        finished.write(out)
    return finished


def shares_within(minutes: float | None, size: int | None) -> dict[str, float]:
    """Return the shares of a text of `size` bytes: a tenth tunes and a tenth measures; less of a large text.

    >>> shares_within(4, 1_000_000) == SHARES
    True
    >>> {name: round(share, 3) for name, share in shares_within(4, 20_000_000).items()}
    {'train': 0.974, 'valid': 0.013, 'test': 0.013}
    """
    if minutes is None or not size:
        return SHARES
    share = min(SHARES["test"], _HELD_OUT * max(minutes, 2.0) / size)
    return {"train": 1 - 2 * share, "valid": share, "test": share}


def _check_options(
    is_of_text: bool, equal: EqualBudget | None, is_timed: bool, seeds: int, curve: bool, includes: bool
) -> None:
    """Refuse options that do not go together, before anything is read."""
    if includes and not is_of_text:
        raise ChainruleError("models that stand already are compared if they predict text: leave out include")
    if curve and not is_of_text:
        raise ChainruleError("learning curves are of language models: leave out the curve")
    if equal is not None and equal.limits_time and is_timed:
        raise ChainruleError(f"a budget of {equal.unit} decides how long networks train: leave out the minutes")
    if equal is not None and equal.limits_time and curve:
        raise ChainruleError("on a learning curve networks have equal times: leave out the curve or the budget")
    if seeds < 1 or (seeds > 1 and not is_of_text):
        raise ChainruleError("seeds is 1 or more for models that predict text, and 1 for others")


def _asked(jobs: Sequence[Job], seeds: int, budget: str | None) -> dict[str, Any]:
    """Return the models and options of a comparison: only a call with the same ones continues it."""
    ladder = [
        {"kind": job.kind.name, "name": job.entry.name, "settings": dict(job.entry.settings)}
        | {key: value for key in OWN if (value := getattr(job.entry, key)) is not None}
        for job in jobs
        if job.share == 1
    ]
    found: dict[str, Any] = {"ladder": ladder}
    found["curve"] = [[job.entry.name, job.share] for job in jobs if job.share < 1]
    return found | ({} if seeds == 1 else {"seeds": seeds}) | ({} if budget is None else {"budget": budget})


def _own_tokens(
    entries: Ladder, parts: Mapping[str, Any], data: TrainingData, scratch: Path
) -> dict[str, tuple[TrainingData, Encoded | None]]:
    """Return the data of each model by its name; with its own tokenizer, also the test text in its tokens."""
    found: dict[str, tuple[TrainingData, Encoded | None]] = {}
    made: dict[tuple[Any, ...], tuple[TrainingData, Encoded | None]] = {(None, None): (data, None)}
    for kind, entry in entries:
        key = tuple(getattr(entry, name) for name in OWN)
        if key not in made:
            folder = scratch / f"tokens-{len(made)}"
            folder.mkdir()
            choice = TokenizerChoice(*key)
            tokenizer, encoded, _ = encode_examples(kind, parts, choice, None, folder, data.progress)
            own = replace(data, tokenizer=tokenizer, train=encoded["train"], valid=encoded["valid"])
            made[key] = own, encoded["test"]
        found[entry.name] = made[key]
    return found


def _begun(task: str, data: TrainingData, encoded: Mapping[str, Encoded], identity: dict[str, Any]) -> Comparison:
    """Return a comparison without results."""
    return Comparison(
        format=FORMAT,
        tokenizer=data.tokenizer.name,
        vocab_size=data.tokenizer.vocab_size,
        context=data.context,
        parts={n: {"lines": e.lines, "tokens": e.tokens, "bytes": e.bytes} for n, e in encoded.items()},
        results=[],
        identity=identity,
        task=task,
        machine=f"{cores()} cores ({platform.machine()}){'' if data.device == 'cpu' else f' and {data.device}'}",
    )


def _check_trainable(entries: Ladder, device: str) -> None:
    """Raise an error if the device can train no model; if it can train some, the others fail at their turn."""
    errors = []
    for kind, entry in entries:
        try:
            kind.check(settings_of.parse(kind.settings, entry.settings), device)
        except ChainruleError as error:
            errors.append(error)
    if len(errors) == len(entries):
        raise errors[0]


def _train_all(
    training: MeasuredTraining,
    jobs: Iterable[Job],
    texts: CurveTexts,
    own: Mapping[str, tuple[TrainingData, Encoded | None]],
    comparison: Comparison,
    budget: TimeBudget,
) -> None:
    """Train and measure the models that have no result yet."""
    progress = training.data.progress
    gathered = Gathered(progress)
    jobs = sorted(jobs, key=lambda job: job.order)
    drawn = [job.entry.name for job in jobs if job.share < 1]
    add_whole_text(comparison, drawn)
    done = {(one.name, 1.0) for one in comparison.results} | {(one.name, one.share) for one in comparison.curve}
    waiting = [job for job in jobs if (job.entry.name, job.share) not in done]
    with progress.task("models", len(jobs), "models") as task:
        task.advance(len(jobs) - len(waiting))
        while waiting:
            job = waiting.pop(0)
            data, encoded = own[job.entry.name]
            test = training.test if encoded is None else replace(training.test, encoded=encoded)
            one = replace(training, data=replace(data, progress=gathered), test=test)
            with going_on() as errors:
                _train(job, one, texts, comparison, budget, [other.entry for other in waiting])
            notes = gathered.take()
            for error in errors:
                comparison.failures.append(Failure(job.entry.name, job.kind.name, error, job.share))
                notes = f"{on_part(job.entry.name, job.share)} failed, and the others go on: {error}"
            if notes:  # a line for each model at most
                progress.note(notes)
            add_whole_text(comparison, drawn)
            comparison.write(training.out)
            task.advance(1)
    if not comparison.results:
        raise ChainruleError(f"no model could be trained; the first error: {comparison.failures[0].error}")


def _train(
    job: Job,
    training: MeasuredTraining,
    texts: CurveTexts,
    comparison: Comparison,
    budget: TimeBudget,
    waiting: Sequence[LadderEntry],
) -> None:
    """Add the result of one job; a part of the text is skipped if the model has no result on all of it."""
    name = job.entry.name
    if job.share == 1:
        order = [entry["name"] for entry in comparison.identity["ladder"]]
        entry = budget.within(job.entry, waiting)
        began = time.perf_counter()
        try:
            comparison.results.append(training.train(job.kind, entry))
        finally:
            budget.took(entry, time.perf_counter() - began)
        comparison.results.sort(key=lambda one: order.index(one.name))
    elif any(one.name == name for one in comparison.curve):
        whole = next(one for one in comparison.results if one.name == name)
        entry = timed_as(job.entry, whole)
        comparison.curve.append(training.train_on_part(job.kind, entry, job.share, texts.encoded[job.share]))


def _add_mixture(training: MeasuredTraining, comparison: Comparison, valid: Corpus, scratch: Path) -> None:
    """Add the mixture of the best network and the best counted model, if there are both."""
    with going_on() as errors, training.data.progress.task("mixing"):
        comparison.results.extend(training.mix(comparison.results, valid, scratch))
    for error in errors:
        training.data.progress.note(f"the mixture failed: {error}")


def _add_included(
    training: MeasuredTraining, comparison: Comparison, folders: Sequence[Path], scratch: Path
) -> None:
    """Add the models that stand already; one that cannot be measured is noted."""
    for folder in folders:
        taken = {folder_name(one.name) for one in comparison.results}
        name = folder.resolve().name
        name = f"{name} (included)" if folder_name(name) in taken else name
        with going_on() as errors:
            comparison.results.append(training.include(folder, name, scratch))
        comparison.failures.extend(Failure(name, "included", error) for error in errors)


def _with_intervals(comparison: Comparison, text: bytes, out: Path, seed: int) -> Comparison:
    """Return the comparison with its advice, and with intervals over documents of the test text and over seeds."""
    results, best, comparable = list(comparison.results), comparison.best, comparison.comparable
    bytes_D = read_sizes(out, text)
    ends_D, nats_D = np.cumsum(bytes_D), list[np.ndarray]()
    models: dict[int, list[int]] = {}  # the rows of nats_D that belong to a result: one for each of its trainings
    for number, one in enumerate(results):
        if one.loss is None:
            continue
        kept = [read_surprisals(out, name, int(bytes_D.sum())) for name in one.surprisals]
        found = [
            # no token belongs to two documents, since each document ends with a line
            per_document(one.nats, np.diff(np.searchsorted(one.ends, ends_D, side="right"), prepend=0))
            for one in kept
            if one is not None
        ]
        if found and np.isfinite(found).all():
            models[number] = list(range(len(nats_D), len(nats_D) + len(found)))
            nats_D += found
    draws_of: dict[int, np.ndarray] = {}
    if len(bytes_D) >= FEWEST and nats_D:
        drawn = drawn_means(drawn_bits_per_byte(np.stack(nats_D), bytes_D, seed), list(models.values()), seed)
        draws_of = dict(zip(models, drawn.T, strict=True))
        of_best = next((draws for number, draws in draws_of.items() if results[number] is best), None)
        for number, draws in draws_of.items():
            one, behind = results[number], None
            if of_best is not None and one is not best and best is not None and one in comparable:
                behind = (one.rank - best.rank, *among(draws - of_best, len(draws_of) - 1))
            results[number] = replace(one, interval=middle_of(draws), behind=behind)
    by_name = {results[number].name: draws for number, draws in draws_of.items()}
    found_now = replace(comparison, results=results, draws=by_name)
    return replace(found_now, advice=advise(found_now))


# -- comparisons that are continued -----------------------------------------------------------------------


def _take_up(earlier: Comparison | None, now: Comparison, out: Path, progress: Progress) -> None:
    """Add the results of an earlier comparison, if there is one to continue; otherwise remove its models."""
    if earlier is None:
        _clear(out)
        return
    now.results.extend(_reused(earlier, now, out, progress))
    kept = {one.name for one in now.results}
    now.curve.extend(one for one in earlier.curve if one.name in kept)


def _reused(earlier: Comparison, now: Comparison, out: Path, progress: Progress) -> list[Result]:
    """Return the results of an earlier comparison of the same texts that this one asks for too."""
    wanted = json.loads(to_json(now.identity))
    common = {*wanted, *earlier.identity} - {"ladder", "minutes", "curve"}
    if any(earlier.identity.get(name) != wanted.get(name) for name in common):
        raise another_error(out, "comparison")
    same_time = earlier.identity.get("minutes") == wanted["minutes"]
    listed = {entry["name"]: entry for entry in earlier.identity.get("ladder", [])}
    asked = {entry["name"]: entry for entry in wanted["ladder"]}
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
    """Refuse a folder with anything but an earlier comparison; return the one to continue, if any."""
    sweep(out / RESULTS)
    if is_unused(out):
        return None
    found = read_comparison(out) if out.is_dir() else None
    if found is None:
        raise FolderError(f"{out} exists, is not empty and is no comparison; choose another folder")
    return None if overwrite else found


def _clear(out: Path) -> None:
    """Remove an earlier comparison's models; other files in the folder stay."""
    found = read_comparison(out)
    if found is None:
        return
    for result in found.results:
        folder = out / Path(result.folder).name
        sweep(folder)
        if (folder / MANIFEST).is_file():
            remove_folder(folder)
    if (out / SURPRISALS).is_dir():
        shutil.rmtree(out / SURPRISALS)
