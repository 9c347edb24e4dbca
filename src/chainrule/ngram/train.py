"""From ids to an n-gram model: count, smooth, prune, pack."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from chainrule.arrays import Array, to_numpy
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind, LadderEntry
from chainrule.contract.lm import LanguageModel, score_sequences
from chainrule.errors import SettingsError
from chainrule.folder import ModelFolder
from chainrule.ngram.estimate.levels import Counts, count_by_unique
from chainrule.ngram.estimate.methods import choose_method
from chainrule.ngram.estimate.passes import logarithms, smooth_levels
from chainrule.ngram.estimate.prune import by_entropy, kept_by_count
from chainrule.ngram.estimate.tuning import HeldOut
from chainrule.ngram.infinite.any_length_model import KIND_NAME as ANYGRAM_NAME
from chainrule.ngram.infinite.any_length_model import AnyLengthSettings, train_anygram
from chainrule.ngram.loading import load_anygram, load_ngram
from chainrule.ngram.ngram_model import KIND_NAME, NgramModel
from chainrule.ngram.settings import NgramSettings, Smoothing, parse_thresholds
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.normalise import quantised
from chainrule.ngram.store.parts import Parts, pack_words, select
from chainrule.ngram.workspace import LEAST, Workspace, default_memory, give_back_memory, parse_size
from chainrule.system.devices import private_memory
from chainrule.system.parallel import EMBEDDED, Executor, worth_a_kernel
from chainrule.system.progress import Progress
from chainrule.tokens.words.tokenizer import read_words

_NANOSECONDS = 64  # to count one token for one length of n-grams with NumPy

_MOST_LEFT_OUT = 1_000_000  # tokens of the training text that weights are tuned on, without held-out text
_TOKENS_TO_REPORT = 200_000
_LEAST_TO_COUNT = 6 * LEAST  # bytes, as measured: windows, sorted n-grams and chunks of the least size
_MOST_APART = 1e-5  # from one: the sum of probabilities of few bits


def train(settings: NgramSettings, data: TrainingData) -> LanguageModel:
    """Train an n-gram model: count, smooth, prune, quantise, index."""
    settings.check_trainable()
    if settings.smoothing == "infinite":
        data.progress.note("n-grams of any length are a kind of their own now: train anygram")
        return train_any_length(AnyLengthSettings(settings.extra_words), data)
    data = _with_extra_words(settings.extra_words, data)
    give_back_memory()  # that of finding and numbering words
    workspace = _workspace(settings, len(data.train.ids), data.device, data.executor)
    if workspace.cap is not None and workspace.cap < _LEAST_TO_COUNT:
        taken = private_memory()
        data.progress.note(
            f"memory={settings.memory}: the estimation needs about {(taken + _LEAST_TO_COUNT) / 1e6:,.0f} MB, "
            f"of which Python, the compiled loops and the vocabulary take {taken / 1e6:,.0f} MB"
        )
    counts = count(settings, data, workspace)
    ids = data.train.ids[:_MOST_LEFT_OUT] if data.valid is None else data.valid.ids
    held_out = HeldOut(ids, data.tokenizer.eos, data.context, is_trained_on=data.valid is None)
    automaton, metrics = smooth(settings, counts, held_out, workspace, data.progress)
    automaton = automaton.to(None)
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
        with data.progress.task("indexing"):
            lm.automaton = lm.automaton.indexed()
    return lm


def train_any_length(settings: AnyLengthSettings, data: TrainingData) -> LanguageModel:
    """Train a model of n-grams of any length."""
    return train_anygram(_with_extra_words(settings.extra_words, data), settings)


def _with_extra_words(path: str, data: TrainingData) -> TrainingData:
    """Return the data with the words of a file, one per line, added to its tokenizer; as it is without a file."""
    if not path:
        return data
    if data.tokenizer.splitting is None:
        raise SettingsError(
            f"extra_words adds words, which goes with word tokens, not with {data.tokenizer.name} tokens"
        )
    words = read_words(Path(path), data.tokenizer.splitting)
    return replace(data, tokenizer=data.tokenizer.with_words(words))


def _quantised(lm: NgramModel, data: TrainingData) -> NgramModel:
    """Quantise a model, and report the change in perplexity of held-out text, or else of the training text.

    The model keeps full precision if probabilities of so few bits could not sum to one.
    """
    settings = lm.settings
    with data.progress.task(f"quantising to {settings.bits} bits"):
        automaton, apart = quantised(lm.automaton, settings.bits, normalised=settings.is_normalised)
    if apart > _MOST_APART:
        data.progress.note(
            f"{settings.name}: it stays at full precision, because every word was seen after some context: there, "
            f"probabilities of {settings.bits} bits would miss a sum of one by {apart:.1e}"
        )
        lm.settings = replace(settings, bits=0)
        return lm
    small = NgramModel(automaton, lm.tokenizer, settings, lm.context)
    ids = np.asarray((data.valid or data.train).ids[:_TOKENS_TO_REPORT])
    before, after = (_perplexity(model, ids) for model in (lm, small))
    small.metrics = {
        **lm.metrics,
        "perplexity_before_quantising": round(before, 4),
        "perplexity_after_quantising": round(after, 4),
    }
    loss = f"{after / before - 1:+.2%}" if np.isfinite(before) else "unknown: it was infinite before"
    of = "held-out text" if data.valid else "the training text"
    data.progress.note(f"{settings.name}, {settings.bits} bits: the perplexity of {of} changes by {loss}")
    return small


def _perplexity(lm: NgramModel, ids: Array) -> float:
    starts, ends = lm.bounds(ids)
    if len(starts) == 0:  # a piece of one long line
        starts, ends = np.zeros(1, np.int64), np.asarray([len(ids)])
    scores = score_sequences(lm, ids[: ends[-1]], starts, ends)
    with np.errstate(over="ignore"):
        return float(np.exp(-np.mean(scores)))


def count(settings: NgramSettings, data: TrainingData, workspace: Workspace) -> Counts:
    """Count every n-gram of the training text, in the way that suits the device and the size of the text."""
    tokenizer = data.tokenizer
    ids = data.train.ids
    what = (settings.order, tokenizer.vocab_size, tokenizer.bos, tokenizer.eos, data.context)
    if data.device != "cpu":
        import torch

        with data.progress.task(f"counting {settings.order}-grams on {data.device}"):
            return count_by_unique(torch.as_tensor(np.asarray(ids, dtype=np.int64), device=data.device), *what)
    if not (data.executor.is_remote or worth_a_kernel(len(ids) * settings.order, _NANOSECONDS)):
        with data.progress.task(f"counting {settings.order}-grams"):
            return count_by_unique(np.asarray(ids), *what)
    from chainrule.ngram.estimate.count import count_by_sorting

    return count_by_sorting(ids, *what, workspace, data.progress)


def smooth(
    settings: NgramSettings, counts: Counts, held_out: HeldOut | None, workspace: Workspace, progress: Progress
) -> tuple[Automaton, dict[str, Any]]:
    """Smooth the counts; return the automaton, on the device of the counts, and the metrics to report.

    The counts are consumed, to save memory.
    """
    thresholds = parse_thresholds(settings.prune, settings.order)
    kept = kept_by_count(counts, thresholds) if any(thresholds) else None
    if kept is not None and workspace.executor.is_remote:
        kept = [workspace.put(mask) for mask in kept]
    every_count = _joined_counts(counts) if settings.counts else None  # before a method replaces or consumes them
    how = choose_method(settings, counts, held_out, progress, workspace)
    levels = how.counts.levels
    words, stream = [level.word for level in levels[1:]], None
    if how.counts is not counts:
        counts.levels = []  # replaced by other counts of the same n-grams: free their memory
    if kept is None:
        give_back_memory()
        words, stream = [], pack_words(words, how.counts.vocab_size, workspace)
        for level in levels[1:]:
            level.word = level.word[:0] + 0  # a copy: a view would keep the words in memory
    give_back_memory()
    workspace.release()
    prob, backoff = smooth_levels(how.counts, how.method, kept, workspace, progress, consume=True)
    prob, backoff = logarithms(prob, workspace), logarithms(backoff, workspace)
    begins = [level.begin for level in levels[1:]]
    parts = Parts(how.counts.vocab_size, how.counts.bos, words, begins, prob, backoff, stream)
    if kept is not None:
        parts = select(parts, kept)
    automaton = replace(parts.assemble(workspace), log_alpha=settings.log_alpha, counts=every_count)
    workspace.release()
    return automaton, how.metrics


def _joined_counts(counts: Counts) -> NDArray[np.unsignedinteger]:
    """Return the counts of all n-grams, length after length, as the nodes of the trie are."""
    levels = [to_numpy(level.count) for level in counts.levels]
    most = max(int(count.max(initial=0)) for count in levels)
    return np.concatenate(levels, dtype=np.uint32 if most < 1 << 32 else np.uint64, casting="unsafe")


def _workspace(settings: NgramSettings, tokens: int, device: str, executor: Executor = EMBEDDED) -> Workspace:
    """Return a workspace in memory if counting fits under the memory cap, or runs on a device; else one on disk.

    The cap of one on disk is what the process leaves of the memory. Where an executor has workers elsewhere, it is
    in the folder that all of them see.
    """
    from chainrule.ngram.estimate.count import bytes_needed

    if executor.is_remote:
        return Workspace(executor.folder, executor)
    cap = parse_size(settings.memory) if settings.memory else default_memory()
    if device != "cpu" or bytes_needed(tokens, settings.order) <= cap:
        return Workspace()
    return Workspace(Path(tempfile.gettempdir()), cap=max(cap - private_memory(), 0))


def load(folder: ModelFolder) -> LanguageModel:
    """Load the model of a folder."""
    # until n-grams of any length became a kind of their own, they were stored as one of this kind's smoothings
    return load_anygram(folder) if folder.config.get("smoothing") == "infinite" else load_ngram(folder)


_LADDER: dict[int, tuple[Smoothing, ...]] = {
    1: ("mle", "laplace"),
    2: ("mle", "laplace", "modified-kneser-ney"),
    3: ("mle", "laplace", "add-k", "katz", "witten-bell", "jelinek-mercer", "absolute-discounting", "kneser-ney",
        "modified-kneser-ney"),
    5: ("stupid-backoff", "witten-bell", "jelinek-mercer", "modified-kneser-ney"),
}  # fmt: skip
"""The smoothing methods that a comparison trains for each order."""

KIND = Kind(
    name=KIND_NAME,
    summary="counts of word sequences, smoothed",
    settings=NgramSettings,
    train=train,
    load=load,
    ladder=(
        *(
            LadderEntry(
                NgramSettings(order=order, smoothing=smoothing).name,
                {"order": order, "smoothing": smoothing},
                quick=(best := smoothing == ("laplace" if order == 1 else "modified-kneser-ney")),
                standard=best,
            )
            for order, smoothings in _LADDER.items()
            for smoothing in smoothings
        ),
    ),
    tunes_on_held_out=lambda settings: settings.tunes_on_held_out,
    fewest_documents=lambda settings: 20 if settings.smoothing == "jelinek-mercer" else 2,
    takes_executor=lambda settings: settings.smoothing != "infinite",
    # a distribution for each context of order - 1 tokens, whose probabilities sum to 1
    shapes=lambda settings, vocab_size, labels: {
        "probabilities": (*[vocab_size] * (settings.order - 1), vocab_size - 1)
    },
)

ANYGRAM = Kind(
    name=ANYGRAM_NAME,
    summary="sequences of any length, as far back as the training text matches",
    settings=AnyLengthSettings,
    train=train_any_length,
    load=load_anygram,
    ladder=(LadderEntry("any-gram, infinite", {}),),
    tunes_on_held_out=lambda settings: True,
)
