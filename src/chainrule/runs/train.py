"""`chainrule.train`: a corpus in, a model out; and `chainrule.resume`, which continues it from its run folder."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, fields
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

from chainrule import settings as settings_of
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind, find_kind, is_for_accelerators, learns_as
from chainrule.contract.lm import LanguageModel
from chainrule.errors import FolderError, Interrupted, SettingsError
from chainrule.folder import ContextChoice
from chainrule.runs.prepare import Chosen, TokenizerChoice, context_for, split_off
from chainrule.runs.record import (
    SOURCES,
    Examples,
    RunRecord,
    describe_corpus,
    describe_tokenizer,
    open_corpus,
    open_tokenizer,
    read_record,
    working_folder,
    write_record,
)
from chainrule.system.disk import scratch_folder
from chainrule.system.parallel import EMBEDDED, Executor
from chainrule.system.plugins import import_object
from chainrule.system.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text
from chainrule.text.labelled import GivenLabelled
from chainrule.text.pairs import GivenPairs
from chainrule.text.tagged import CONLLU, GivenTagged
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.registry import dump_tokenizer, load_tokenizer, tokenizer_names
from chainrule.training.checkpoints.run_folder import EARLIER, checkpoint_folders, using_run
from chainrule.training.parallel import together
from chainrule.training.team import choose_own_device, processes
from chainrule.training.tuning import completed

Given: TypeAlias = "Text | GivenPairs | GivenTagged | GivenLabelled"
"""Examples as callers give them."""

SHARES = {"train": 0.95, "valid": 0.05}
"""The split of the corpus for a kind that tunes on held-out text, if none was given."""


def train(
    kind: str,
    corpus: Given,
    /,
    *,
    valid: Given | None = None,
    tokenizer: Chosen | str | None = None,
    source_tokenizer: Chosen | str | None = None,
    context: ContextChoice = "auto",
    seed: int = 0,
    progress: Reports = False,
    device: str = "cpu",
    run: str | Path | None = None,
    resume: bool = False,
    workers: Executor = EMBEDDED,
    **settings: Any,
) -> LanguageModel:
    """Train a model of a kind on a corpus; the settings of the kind are keyword arguments.

    A string is a text, a list of strings is several documents; a `Path` is a file, and a list of them files.
    Without `valid`, a kind that tunes on held-out text tunes on 5 % of the documents; others train on all of them.
    Kinds that train in steps keep checkpoints and measurements in the folder `run`, and can `resume` from there.
    Context flows across lines ("stream"), or each line is a sequence ("line"), as suits the text if not given
    (`context_for`).
    `workers`, such as those of `chainrule.ray.connection.ray_executor`, count n-grams in other processes.

    >>> import chainrule as cr
    >>> cr.train("ngram", ["i love cats", "i love dogs"], order=2, tokenizer="word")
    <NgramModel of 7 word tokens, line>
    """
    the_kind = find_kind(kind)
    own = {name for field in fields(the_kind.settings) for name in (field.name, field.metadata.get("formerly"))}
    for name in {"vocab_size", "min_count", "vocabulary", "lowercase"} & settings.keys() - own:
        raise SettingsError(f"{name} belongs to the tokenizer: tokenizer=TokenizerChoice('word', {name}=...)")
    chosen: Any = settings_of.parse(the_kind.settings, settings)
    return train_kind(
        the_kind,
        chosen,
        as_examples(the_kind, corpus, chosen),
        valid=None if valid is None else as_examples(the_kind, valid, chosen),
        tokenizer=tokenizer,
        source_tokenizer=source_tokenizer,
        context=context,
        seed=seed,
        progress=as_progress(progress),
        device=device,
        run=None if run is None else Path(run),
        resume=resume,
        executor=workers,
    )


def train_kind(
    kind: Kind,
    settings: Any,
    corpus: Examples,
    *,
    valid: Examples | None = None,
    tokenizer: Chosen | str | None = None,
    source_tokenizer: Chosen | str | None = None,
    context: ContextChoice = "auto",
    seed: int = 0,
    progress: Progress = SILENT,
    device: str = "cpu",
    run: Path | None = None,
    resume: bool = False,
    executor: Executor = EMBEDDED,
) -> LanguageModel:
    """Do the same as `train`, with the kind and its settings as values."""
    started = time.perf_counter()
    kind.check(settings, device)
    device = device_for(kind, settings, device)
    check_executor(kind, settings, executor.name, device)
    _check_run(kind, settings, context, resume=resume)
    with ExitStack() as stack:
        team = stack.enter_context(together(device, getattr(settings, "parallel", "")))
        team.check_same({"kind": kind.name, **asdict(settings), "context": context, "seed": seed})
        if team.rank > 0:
            run, resume, progress = None, False, SILENT  # the first process reads, writes and reports for all
        for path in corpus.paths if isinstance(corpus, Corpus) else ():
            if path.suffix.lower() in CONLLU:
                progress.note(f"{path} is CoNLL-U, which taggers read: {kind.name} learns its columns as text")
        if kind.keeps_run:
            stack.enter_context(using_run(run, resume=resume))
        folder = stack.enter_context(scratch_folder(executor.folder))
        its_context = context_for(corpus, context)
        parts: dict[str, Any] = {"train": corpus}
        is_tuned = kind.tunes_on_held_out(settings)
        if valid is not None or (is_tuned and _has_documents(lines_of(corpus), kind.fewest_documents(settings))):
            parts = split_off(corpus, {"valid": valid}, SHARES, folder, seed=seed, progress=progress)
        tokenizer = _tokenizer_for(kind, settings, tokenizer)
        source_tokenizer = None if source_tokenizer is None else _choice(source_tokenizer)
        made: Any = tokenizer
        is_held_out = valid is None and "valid" in parts
        if is_held_out and isinstance(corpus, Corpus) and isinstance(made, TokenizerChoice) and made.has_subwords:
            # from all of the text, as for a kind that holds nothing out: models of one text can then be mixed
            made = made.sized_for(corpus).make(corpus, progress)
        the_tokenizer, encoded, sources = encode_examples(
            kind, parts, made, source_tokenizer, folder, progress, settings, executor
        )
        texts = encoded["train"], encoded.get("valid")
        data = TrainingData(
            the_tokenizer, *texts, its_context, seed, progress, device, run, resume, sources, executor
        )
        team.check_same(data.fingerprints, "text")
        began = time.perf_counter()
        with _recorded(kind, corpus, valid, tokenizer, source_tokenizer, settings, data):
            lm = kind.train(settings, data)
        is_masked = isinstance(corpus, Corpus) and corpus.cleaning.mask
        lm.provenance = data.provenance() | ({"masked": True} if is_masked else {})
        ended, earlier = time.perf_counter(), lm.metrics.get(EARLIER, 0.0)
        spent = {"training_seconds": ended - began, "seconds": ended - started}
        lm.metrics = {**{name: round(one + earlier, 3) for name, one in spent.items()}, **lm.metrics}
    return lm


def _check_run(kind: Kind, settings: Any, context: ContextChoice, *, resume: bool) -> None:
    """Refuse what a kind cannot do: resume, train in several processes, or carry context across pairs."""
    if resume and not kind.keeps_run:
        raise SettingsError(
            f"the kind {kind.name!r} keeps no checkpoints, so its training cannot be resumed: start again"
        )
    if processes() > 1 and not hasattr(settings, "parallel"):
        raise SettingsError(f"the kind {kind.name!r} is trained by one process: leave out torchrun")
    if context == "stream" and learns_as(kind, settings).has_sources:
        raise SettingsError("pairs are lines without context across them: leave out the context")


def _tokenizer_for(kind: Kind, settings: Any, given: Chosen | str | None) -> Chosen:
    """Return the tokenizer of a training: that of the initial weights, the given one, or that of the kind."""
    folder, usual = getattr(settings, "tokenizer_folder", None), TokenizerChoice(kind.tokenizer)
    found = usual if given is None else _choice(given)
    if folder is None:
        return found
    if found != usual:  # somebody chose one
        own, other = load_tokenizer(folder), None
        if not isinstance(found, TokenizerChoice):
            other = found
        elif found.name not in tokenizer_names():
            other = load_tokenizer(found.name)
        if other is None or dump_tokenizer(other) != dump_tokenizer(own):
            raise SettingsError(f"{folder} has a tokenizer of its own, {own.name}: leave out the tokenizer")
    return _choice(folder)


def device_for(kind: Kind, settings: Any, name: str) -> str:
    """Return the device on which a kind with these settings is trained; `auto` is the CPU for what is counted."""
    is_counted = name == "auto" and not is_for_accelerators(kind, asdict(settings))
    return "cpu" if is_counted else choose_own_device(name)


def check_executor(kind: Kind, settings: Any, executor: str, device: str) -> None:
    """Refuse an executor that a kind with these settings, or this device, cannot use."""
    if executor == EMBEDDED.name:
        return
    if not kind.takes_executor(settings):
        raise SettingsError(
            f"the executor {executor} counts n-grams; {kind.name} is not trained by counting: leave it out"
        )
    if device != "cpu":
        raise SettingsError(f"the executor {executor} works on CPUs: leave out it or the device {device}")


def as_examples(kind: Kind, given: Any, settings: Any = None) -> Examples:
    """Return what was given as the examples that a kind learns from."""
    examples: Examples = import_object(learns_as(kind, settings).examples)(given)
    return examples


def lines_of(examples: Examples) -> Corpus:
    """Return examples as lines of text."""
    return examples if isinstance(examples, Corpus) else examples.lines


def encode_examples(
    kind: Kind,
    parts: Mapping[str, Any],
    tokenizer: Chosen,
    source_tokenizer: Chosen | None,
    folder: Path,
    progress: Progress = SILENT,
    settings: Any = None,
    executor: Executor = EMBEDDED,
) -> tuple[Tokenizer, dict[str, Encoded], Any]:
    """Return the tokenizer, the ids of each part, as lines, and what the task of the kind has beside them."""
    task = learns_as(kind, settings)
    if source_tokenizer is not None and (task.has_template or not task.has_sources):
        raise SettingsError(f"the kind {kind.name} has no sources: leave out the tokenizer of sources")
    of_sources: dict[str, Any] = {"source_tokenizer": source_tokenizer} if task.has_sources else {}
    if task.has_template:
        of_sources["template"] = completed(settings, kind.name).template
    encode: Callable[..., tuple[Tokenizer, dict[str, Encoded], Any]] = import_object(task.encode)
    return encode(parts, tokenizer, folder, progress, executor, **of_sources)


def _choice(tokenizer: Chosen | str) -> Chosen:
    return TokenizerChoice(tokenizer) if isinstance(tokenizer, str) else tokenizer


@contextmanager
def _recorded(
    kind: Kind,
    corpus: Examples,
    valid: Examples | None,
    tokenizer: Chosen,
    source_tokenizer: Chosen | None,
    settings: Any,
    data: TrainingData,
) -> Iterator[None]:
    """Write a record of the training in the block, so that it can be resumed from its run folder alone.

    A resumed training writes it only at its end: before, it may be refused because it is another training.
    """
    if data.run is None or not kind.keeps_run:
        yield
        return
    record = RunRecord(
        kind=kind.name,
        settings=asdict(settings),
        corpus=describe_corpus(corpus),
        valid=None if valid is None else describe_corpus(valid),
        tokenizer=describe_tokenizer(tokenizer),
        source_tokenizer=None if source_tokenizer is None else describe_tokenizer(source_tokenizer, SOURCES),
        context=data.context,
        seed=data.seed,
        device=data.device,
        begun_in=working_folder(),
    )
    write = partial(write_record, data.run, record, {"": tokenizer, SOURCES: source_tokenizer})
    if not data.resume:
        write()
    try:
        yield
    except Interrupted:
        write()
        raise
    write()


def _has_documents(corpus: Corpus, fewest: int) -> bool:
    """Return True if a corpus has at least `fewest` documents, and they are not all the same."""
    documents = (document.strip() for document in corpus.documents())
    first = next(documents, None)
    differ = False
    for number, document in enumerate(documents, start=2):
        differ = differ or document != first
        if differ and number >= fewest:
            return True
    return False


# -- trainings that were stopped --------------------------------------------------------------------------


def resume(
    run: str | Path,
    *,
    corpus: Given | None = None,
    valid: Given | None = None,
    device: str | None = None,
    progress: Reports = False,
    **settings: Any,
) -> LanguageModel:
    """Continue the training of a run folder, and return its model.

    Settings, tokenizer and corpus are those of the run. A corpus that has moved, or was in memory, must be given
    again; another text is refused. Settings that may change, such as steps or minutes, are keyword arguments.

    >>> import chainrule as cr
    >>> lm = cr.resume("model.run", steps=2000)  # doctest: +SKIP
    """
    return resume_run(Path(run), settings, corpus=corpus, valid=valid, device=device, progress=progress)


def resume_run(
    run: Path,
    settings: Mapping[str, Any],
    *,
    corpus: Given | None = None,
    valid: Given | None = None,
    device: str | None = None,
    progress: Reports = False,
) -> LanguageModel:
    """Do the same as `resume`, with the changed settings as a mapping, so that they may have any names."""
    record = read_record(run)
    if not checkpoint_folders(run):
        raise FolderError(
            f"{run}: there is no checkpoint to continue from: it has finished, or was stopped before the first"
        )
    record.check_paths()
    kind = find_kind(record.kind)
    chosen: Any = settings_of.parse(kind.settings, {**record.settings, **settings})
    if corpus is None:
        corpus = open_corpus(record.corpus, "corpus", run)
    if valid is None and record.valid is not None:
        valid = open_corpus(record.valid, "held-out text", run)
    return train_kind(
        kind,
        chosen,
        as_examples(kind, corpus, chosen),
        valid=None if valid is None else as_examples(kind, valid, chosen),
        tokenizer=open_tokenizer(record.tokenizer, run),
        source_tokenizer=open_tokenizer(record.source_tokenizer, run) if record.source_tokenizer else None,
        context=record.context,
        seed=record.seed,
        progress=as_progress(progress),
        device=record.device if device is None else device,
        run=run,
        resume=True,
    )
