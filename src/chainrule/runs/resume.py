"""`chainrule.resume`: continue a stopped training from its run folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from chainrule import settings as settings_of
from chainrule.contract.kinds import find_kind
from chainrule.contract.lm import LanguageModel
from chainrule.errors import FolderError
from chainrule.runs.record import open_corpus, open_tokenizer, read_record
from chainrule.runs.train import Given, as_examples, train_kind
from chainrule.system.progress import Reports, as_progress
from chainrule.training.checkpoints.run_folder import checkpoint_folders


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
