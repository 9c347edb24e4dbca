"""`chainrule.train`: a corpus in, a model out."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from chainrule import settings as settings_of
from chainrule.devices import choose_device
from chainrule.disk import scratch_folder
from chainrule.errors import Interrupted, SettingsError
from chainrule.kinds import Kind, TrainingData, find_kind
from chainrule.lm import Context, LanguageModel
from chainrule.pipeline.prepare import TokenizerChoice, encode_parts, split_off
from chainrule.pipeline.run_record import (
    RunRecord,
    describe_corpus,
    describe_tokenizer,
    working_folder,
    write_record,
)
from chainrule.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.corpus import Corpus
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer
from chainrule.training.checkpoints.run_folder import EARLIER, using_run

SHARES = {"train": 0.95, "valid": 0.05}
"""How much is held out where a kind tunes on held-out text and none was given."""


def train(
    kind: str,
    corpus: Text,
    /,
    *,
    valid: Text | None = None,
    tokenizer: Tokenizer | TokenizerChoice | str = "word",
    context: Context = "line",
    seed: int = 0,
    progress: Reports = False,
    device: str = "cpu",
    run: str | Path | None = None,
    resume: bool = False,
    **settings: Any,
) -> LanguageModel:
    """Train a model of a kind on a corpus; the settings of the kind are keyword arguments.

    A string is a text, a list of strings is several, each a document; a `Path` is a file, and a list of them files.
    Without `valid`, a kind that tunes on held-out text gets 5 % of the documents for that; others train on all.
    Kinds that train for long keep checkpoints and measurements in the folder `run`, and can `resume` from there.
    """
    the_kind = find_kind(kind)
    own = {name for field in fields(the_kind.settings) for name in (field.name, field.metadata.get("formerly"))}
    for name in {"vocab_size", "min_count", "vocabulary"} & settings.keys() - own:
        raise SettingsError(f"{name} is the tokenizer's: tokenizer=TokenizerChoice('word', {name}=...)")
    return train_kind(
        the_kind,
        settings_of.parse(the_kind.settings, settings),
        as_corpus(corpus),
        valid=valid,
        tokenizer=tokenizer,
        context=context,
        seed=seed,
        progress=as_progress(progress),
        device=device,
        run=None if run is None else Path(run),
        resume=resume,
    )


def train_kind(
    kind: Kind,
    settings: Any,
    corpus: Corpus,
    *,
    valid: Text | None = None,
    tokenizer: Tokenizer | TokenizerChoice | str = "word",
    context: Context = "line",
    seed: int = 0,
    progress: Progress = SILENT,
    device: str = "cpu",
    run: Path | None = None,
    resume: bool = False,
) -> LanguageModel:
    """The same as `train`, but with the kind and its settings as values."""
    started = time.perf_counter()
    kind.check(settings, device)
    device = choose_device(device)
    valid = None if valid is None else as_corpus(valid)  # once: what is iterated over cannot be read again
    if resume and not kind.keeps_run:
        raise SettingsError(f"training of the kind {kind.name!r} is not kept, so it cannot be resumed: begin anew")
    with using_run(run, resume=resume) if kind.keeps_run else nullcontext(), scratch_folder() as folder:
        parts = {"train": corpus}
        if valid is not None or (kind.tunes_on_held_out(settings) and _has_two_documents(corpus)):
            parts = split_off(corpus, {"valid": valid}, SHARES, folder, seed=seed, progress=progress)
        if isinstance(tokenizer, str):
            tokenizer = TokenizerChoice(tokenizer)
        the_tokenizer, encoded = encode_parts(parts, tokenizer, folder, progress)
        texts = encoded["train"], encoded.get("valid")
        data = TrainingData(the_tokenizer, *texts, context, seed, progress, device, run, resume)
        began = time.perf_counter()
        with _recorded(kind, corpus, valid, tokenizer, settings, data):
            lm = kind.train(settings, data)
        lm.provenance = data.provenance()
        ended, earlier = time.perf_counter(), lm.metrics.get(EARLIER, 0.0)
        seconds = {
            "training_seconds": round(ended - began + earlier, 3),
            "seconds": round(ended - started + earlier, 3),
        }
        lm.metrics = {**seconds, **lm.metrics}
    return lm


@contextmanager
def _recorded(
    kind: Kind,
    corpus: Corpus,
    valid: Corpus | None,
    tokenizer: Tokenizer | TokenizerChoice,
    settings: Any,
    data: TrainingData,
) -> Iterator[None]:
    """A block that trains; what is trained is written down, so that it can be resumed from its run folder alone.

    A training that is resumed writes it only at its end: before, it may turn out to be another one than was begun.
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
        context=data.context,
        seed=data.seed,
        device=data.device,
        begun_in=working_folder(),
    )
    if not data.resume:
        write_record(data.run, record, tokenizer)
    try:
        yield
    except Interrupted:
        write_record(data.run, record, tokenizer)
        raise
    write_record(data.run, record, tokenizer)


def _has_two_documents(corpus: Corpus) -> bool:
    first = None
    for document in corpus.documents():
        if first is None:
            first = document.strip()
        elif document.strip() != first:
            return True
    return False
