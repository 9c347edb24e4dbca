"""`chainrule.train`: a corpus in, a model out."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from chainrule import settings as settings_of
from chainrule.errors import SettingsError
from chainrule.kinds import TrainingData, find_kind
from chainrule.lm import Context, LanguageModel
from chainrule.progress import SILENT, Progress
from chainrule.text.corpus import Corpus, Source, as_corpus
from chainrule.text.split import split
from chainrule.tokens.base import Tokenizer
from chainrule.training.prepare import HELD_OUT_SHARE, TokenizerChoice, encode_parts, provenance


def train(
    kind: str,
    corpus: Corpus | Source | Sequence[Source],
    /,
    *,
    valid: Corpus | Source | None = None,
    tokenizer: Tokenizer | TokenizerChoice | str = "word",
    context: Context = "line",
    seed: int = 0,
    progress: Progress = SILENT,
    **settings: Any,
) -> LanguageModel:
    """Train a model of a kind on a corpus; what the kind can be told goes in as keywords.

    Without `valid`, a kind that tunes on held-out text gets 5 % of the documents for that; others train on all.
    """
    if context not in ("line", "stream"):
        raise SettingsError(f"the context should be line or stream, not {context!r}")
    for name in {"vocab_size", "min_count"} & settings.keys():
        raise SettingsError(f"{name} is the tokenizer's: tokenizer=TokenizerChoice('word', {name}=...)")
    the_kind = find_kind(kind)
    chosen: Any = settings_of.parse(the_kind.settings, settings)
    text = as_corpus(corpus)
    with tempfile.TemporaryDirectory(prefix="chainrule-") as name:
        folder = Path(name)
        parts = _parts(text, valid, the_kind.tunes_on_held_out(chosen), folder, seed, progress)
        if isinstance(tokenizer, str):
            tokenizer = TokenizerChoice(tokenizer)
        if isinstance(tokenizer, TokenizerChoice):
            tokenizer = tokenizer.make(parts["train"], progress)
        encoded = encode_parts(parts, tokenizer, folder, progress)
        data = TrainingData(tokenizer, encoded["train"], encoded.get("valid"), context, seed, progress)
        began = time.perf_counter()
        lm = the_kind.train(chosen, data)
        lm.provenance = provenance(data.train, data.valid, seed)
        lm.metrics = {"training_seconds": round(time.perf_counter() - began, 3), **lm.metrics}
    return lm


def _parts(
    corpus: Corpus, valid: Corpus | Source | None, needed: bool, folder: Path, seed: int, progress: Progress
) -> dict[str, Corpus]:
    if valid is not None:
        return {"train": corpus, "valid": as_corpus(valid)}
    if not needed or not _has_two_documents(corpus):
        return {"train": corpus}
    shares = {"train": 1 - HELD_OUT_SHARE, "valid": HELD_OUT_SHARE}
    return split(corpus, shares, folder, seed=seed, progress=progress)


def _has_two_documents(corpus: Corpus) -> bool:
    first = None
    for document in corpus.documents():
        if first is None:
            first = document.strip()
        elif document.strip() != first:
            return True
    return False
