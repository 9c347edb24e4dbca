"""From ids to an n-gram model: count, smooth, prune, pack."""

from __future__ import annotations

import tempfile
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.arrays import Array
from chainrule.errors import SettingsError
from chainrule.folder import ModelFolder
from chainrule.kinds import Kind, Rung, TrainingData
from chainrule.lm import LanguageModel, score_rows
from chainrule.ngram.automaton import Automaton
from chainrule.ngram.build import Parts, pack_words, select
from chainrule.ngram.estimate import smooth_levels
from chainrule.ngram.infinite.model import load_infinite, train_infinite
from chainrule.ngram.levels import Counts, count_by_unique
from chainrule.ngram.methods import plan
from chainrule.ngram.model import KIND_NAME, NgramModel, load_ngram
from chainrule.ngram.prune import by_entropy, kept_by_count, parse_thresholds
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.tuning import HeldOut
from chainrule.ngram.workspace import Workspace, default_memory, give_back_memory, parse_size
from chainrule.progress import Progress
from chainrule.tokens.base import Tokenizer, line_bounds
from chainrule.tokens.word import WordTokenizer
from chainrule.tokens.wordlist import read_words

WORTH_A_KERNEL = 1 << 20
"""Tokens times order; below, NumPy has counted before Numba is imported."""

_TOKENS_TO_REPORT = 200_000


def train(settings: NgramSettings, data: TrainingData) -> LanguageModel:
    """Count, smooth, prune, pack."""
    settings.check_trainable()
    if settings.vocabulary:
        data = replace(data, tokenizer=with_words_of(data.tokenizer, settings.vocabulary))
    if settings.smoothing == "infinite":
        return train_infinite(data, asdict(settings))
    give_back_memory()  # what finding words and numbering them took
    workspace = _workspace(settings, len(data.train.ids))
    counts = count(settings, data, workspace)
    automaton, metrics = estimate(settings, counts, data, workspace)
    del counts
    give_back_memory()
    if settings.entropy:
        with data.progress.task("pruning by entropy"):
            automaton = by_entropy(automaton, settings.entropy)
    lm = NgramModel(automaton, data.tokenizer, settings, data.context)
    lm.metrics = {"ngrams": np.diff(automaton.trie.first_of_length)[1:].tolist(), **metrics}
    if settings.bits:
        lm = _quantised(lm, data)
    if settings.index:
        from chainrule.ngram.index import with_index

        with data.progress.task("indexing"):
            lm.automaton = with_index(lm.automaton)
    return lm


def with_words_of(tokenizer: Tokenizer, path: str) -> Tokenizer:
    """The tokenizer with the words of a file, one per line, added behind its own."""
    if not isinstance(tokenizer, WordTokenizer):
        raise SettingsError(f"vocabulary adds words, which goes with word tokens, not with {tokenizer.name} tokens")
    known = set(tokenizer.words)
    added = [word for word in read_words(Path(path), tokenizer.splitting) if word not in known]
    return WordTokenizer([*tokenizer.words, *added], tokenizer.splitting)


def _quantised(lm: NgramModel, data: TrainingData) -> NgramModel:
    """The model in few bits; what that does to the perplexity of held-out text, or of the text, is reported."""
    with data.progress.task(f"quantising to {lm.settings.bits} bits"):
        small = NgramModel(lm.automaton.quantised(lm.settings.bits), lm.tokenizer, lm.settings, lm.context)
    ids = np.asarray((data.valid or data.train).ids[:_TOKENS_TO_REPORT])
    before, after = (_perplexity(model, ids) for model in (lm, small))
    small.metrics = {
        **lm.metrics,
        "perplexity_before_quantising": round(before, 4),
        "perplexity_after_quantising": round(after, 4),
    }
    loss = f"{after / before - 1:+.2%}" if np.isfinite(before) else "unknown: it was infinite before"
    of = "held-out text" if data.valid else "the training text"
    data.progress.note(f"{lm.settings.bits} bits: the perplexity of {of} changes by {loss}")
    return small


def _perplexity(lm: NgramModel, ids: Array) -> float:
    starts, ends = line_bounds(ids, lm.tokenizer.eos)
    rows = [ids] if lm.context == "stream" else [ids[start:end] for start, end in zip(starts, ends, strict=True)]
    with np.errstate(over="ignore"):
        return float(np.exp(-np.mean(np.concatenate(score_rows(lm, rows)))))


def count(settings: NgramSettings, data: TrainingData, workspace: Workspace) -> Counts:
    """Every n-gram of the training text, by the way that suits its size."""
    tokenizer = data.tokenizer
    ids = data.train.ids
    what = (settings.order, tokenizer.vocab_size, tokenizer.bos, tokenizer.eos, data.context)
    if data.device != "cpu":
        import torch

        with data.progress.task(f"counting {settings.order}-grams on {data.device}"):
            return count_by_unique(torch.as_tensor(np.asarray(ids, dtype=np.int64), device=data.device), *what)
    if len(ids) * settings.order < WORTH_A_KERNEL:
        with data.progress.task(f"counting {settings.order}-grams"):
            return count_by_unique(np.asarray(ids), *what)
    from chainrule.ngram.count import count_by_sorting

    return count_by_sorting(ids, *what, workspace, data.progress)


def estimate(
    settings: NgramSettings, counts: Counts, data: TrainingData, workspace: Workspace
) -> tuple[Automaton, dict[str, Any]]:
    """The counts smoothed, as an automaton in NumPy, with what there is to report."""
    held_out = HeldOut(data.valid.ids, data.tokenizer.eos, data.context) if data.valid else None
    automaton, metrics = smooth(settings, counts, held_out, workspace, data.progress)
    return automaton.to(None), metrics


def smooth(
    settings: NgramSettings, counts: Counts, held_out: HeldOut | None, workspace: Workspace, progress: Progress
) -> tuple[Automaton, dict[str, Any]]:
    """The same where the counts are: on a GPU, if that is where they were made. Uses the counts up, for memory."""
    thresholds = parse_thresholds(settings.prune, settings.order)
    kept = kept_by_count(counts, thresholds) if any(thresholds) else None
    how = plan(settings, counts, held_out, progress, workspace)
    levels = how.counts.levels
    words, stream = [level.word for level in levels[1:]], None
    if how.counts is not counts:
        counts.levels = []  # other counts of the same n-grams took their place: their memory is wanted
    if kept is None:
        give_back_memory()
        words, stream = [], pack_words(words, how.counts.vocab_size, workspace)
        for level in levels[1:]:
            level.word = level.word[:0] + 0  # not a view: the words themselves are no longer needed
    give_back_memory()
    workspace.release()
    smoothed = smooth_levels(how.counts, how.method, kept, workspace, progress, consume=True)
    smoothed.take_logs(workspace)
    begins = [level.begin for level in levels[1:]]
    parts = Parts(how.counts.vocab_size, how.counts.bos, words, begins, smoothed.prob, smoothed.backoff, stream)
    if kept is not None:
        parts = select(parts, kept)
    automaton = parts.assemble()
    workspace.release()
    return automaton, how.metrics


def _workspace(settings: NgramSettings, tokens: int) -> Workspace:
    """In memory if it fits under the cap, else on disk."""
    from chainrule.ngram.count import bytes_needed

    cap = parse_size(settings.memory) if settings.memory else default_memory()
    fits = bytes_needed(tokens, settings.order) <= cap
    return Workspace(None if fits else Path(tempfile.gettempdir()))


def load(folder: ModelFolder) -> LanguageModel:
    """The model of a folder."""
    return load_infinite(folder) if folder.config.get("smoothing") == "infinite" else load_ngram(folder)


_LADDER = {
    "unigram": (1, ("mle",)),
    "bigram": (2, ("mle", "laplace", "modified-kneser-ney")),
    "trigram": (
        3,
        ("mle", "laplace", "add-k", "katz", "witten-bell", "jelinek-mercer", "absolute-discounting", "kneser-ney",
         "modified-kneser-ney"),
    ),
    "5-gram": (5, ("stupid-backoff", "witten-bell", "jelinek-mercer", "modified-kneser-ney")),
}  # fmt: skip

KIND = Kind(
    name=KIND_NAME,
    summary="counts of word sequences, smoothed",
    settings=NgramSettings,
    train=train,
    load=load,
    ladder=(
        *(
            Rung(f"{name}, {smoothing}", {"order": order, "smoothing": smoothing})
            for name, (order, smoothings) in _LADDER.items()
            for smoothing in smoothings
        ),
        Rung("any-gram, infinite", {"smoothing": "infinite"}),
    ),
    tunes_on_held_out=lambda settings: settings.tunes_on_held_out,
)
