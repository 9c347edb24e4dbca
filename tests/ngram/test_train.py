"""Training gives the same model by NumPy and by kernels, every time, with the requested vocabulary."""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from naive import BOS, EOS, count, ids_of, train_on
from test_automaton import SIZE, random_ids
from test_smooth import FINITE, assert_sums_to_one, settings_of

import chainrule as cr
from chainrule.errors import SettingsError, TokenizerError
from chainrule.ngram import train as training
from chainrule.ngram.estimate import passes as estimate
from chainrule.ngram.estimate.count import count_by_sorting
from chainrule.ngram.estimate.levels import count_by_unique
from chainrule.ngram.estimate.methods import bucket_edges
from chainrule.ngram.estimate.passes import NGRAMS_AT_ONCE, smooth_levels, with_continuation_counts
from chainrule.ngram.estimate.tuning import HeldOut, held_out_ratios, tune_lambdas
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.store.codes import codes_of_words
from chainrule.runs.train import train_kind
from chainrule.system import parallel
from chainrule.system.progress import SILENT

IDS = random_ids(21, lines=120)


def assert_equal(ours: NgramModel, other: NgramModel) -> None:
    first, second = ours.tensors(), other.tensors()
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.dtype == second[name].dtype, name
        np.testing.assert_array_equal(array, second[name], name)


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("smoothing", FINITE)
def test_kernels_make_the_same_model(smoothing: str, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"order": 4, "smoothing": smoothing, **settings_of(smoothing)}
    small = train_on(IDS, SIZE, context, valid=random_ids(22), **settings)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    fast = train_on(IDS, SIZE, context, valid=random_ids(22), **settings)
    assert_equal(small, fast)
    assert_equal(fast, train_on(IDS, SIZE, context, valid=random_ids(22), **settings))


@pytest.mark.parametrize("at_once", [1, 7, 100])
def test_smoothing_in_stretches_is_smoothing_at_once(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:

    assert len(IDS) < NGRAMS_AT_ONCE
    for smoothing in FINITE:
        settings = {"order": 4, "smoothing": smoothing, "prune": "0,0,1"}
        monkeypatch.setattr(estimate, "NGRAMS_AT_ONCE", NGRAMS_AT_ONCE)
        whole = train_on(IDS, SIZE, **settings)
        monkeypatch.setattr(estimate, "NGRAMS_AT_ONCE", at_once)
        assert_equal(train_on(IDS, SIZE, **settings), whole)


def test_torch_counts_and_smooths_the_same() -> None:
    """The code for GPUs, run on a CPU."""
    import torch

    for settings in (NgramSettings(order=4, prune="0,0,1"), NgramSettings(order=4, smoothing="katz")):
        ours = count_by_unique(IDS, 4, SIZE, BOS, EOS, "line")
        theirs = count_by_unique(torch.as_tensor(IDS.astype(np.int64)), 4, SIZE, BOS, EOS, "line")
        here, _ = training.smooth(settings, ours, None, training.Workspace(), SILENT)
        on_device, _ = training.smooth(settings, theirs, None, training.Workspace(), SILENT)
        there = on_device.to(None)
        text = random_ids(22).astype(np.int64)
        np.testing.assert_allclose(there.score(text), here.score(text), rtol=1e-5)
        assert isinstance(there.trie.words, np.ndarray)


def test_large_counts_of_line_starts_survive(monkeypatch: pytest.MonkeyPatch) -> None:
    """N-grams that begin with <s> keep their counts, also if other n-grams have far smaller ones."""
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    ids = ids_of([[3, 4]] * 70_000 + [[4, 3, 4]])
    slow = with_continuation_counts(count_by_unique(ids, 3, 5, BOS, EOS, "line"))
    fast = with_continuation_counts(count_by_sorting(ids, 3, 5, BOS, EOS, "line"))
    for ours, expected in zip(fast.levels, slow.levels, strict=True):
        np.testing.assert_array_equal(ours.count, expected.count)
    assert int(slow.levels[1].count.max()) == 70_000


def test_continuation_counts_by_hand() -> None:
    """b follows <s> and a: two different words. <s> b has nothing before it, and keeps its count of two."""
    a, b = 3, 4
    ids = ids_of([[a, b], [b], [b]])
    counts = with_continuation_counts(count_by_unique(ids, 3, 5, BOS, EOS, "line"))
    from test_levels import spelled

    by_ngram = [
        dict(zip(ngrams, np.asarray(level.count).tolist(), strict=True))
        for ngrams, level in zip(spelled(counts), counts.levels, strict=True)
    ]
    assert by_ngram[0] == {(0,): 0, (BOS,): 0, (EOS,): 1, (a,): 1, (b,): 2}
    assert by_ngram[1] == {(BOS, a): 1, (BOS, b): 2, (a, b): 1, (b, EOS): 2}
    assert by_ngram[2] == dict(count(ids, 3, "line")[2])


# -- jelinek-mercer -----------------------------------------------------------------------------------------


def test_em_finds_the_best_weights() -> None:
    """Against a search over a grid: no weights on it give the held-out text a higher probability."""
    train = ids_of([[3, 4, 3, 4, 5, 3]] * 3 + [[4, 5, 3, 5, 4, 3, 3]])
    held_out = ids_of([[3, 4, 5, 3, 4], [4, 3, 3, 5]])
    counts = count_by_unique(train, 2, 6, BOS, EOS, "line")
    found = tune_lambdas(counts, HeldOut(held_out, EOS, "line"), [])[:, 0]
    ratios, totals = held_out_ratios(counts, HeldOut(held_out, EOS, "line"))

    def log_likelihood(first: float, second: float) -> float:
        lower = first * ratios[0] + (1 - first) / 5
        return float(np.log(np.where(totals[1] > 0, second * ratios[1] + (1 - second) * lower, lower)).sum())

    grid = np.linspace(0.02, 0.98, 49)
    best = max(log_likelihood(*point) for point in itertools.product(grid, grid))
    assert log_likelihood(found[0], found[1]) >= best - 1e-4


@pytest.mark.parametrize("context", ["line", "stream"])
def test_ratios_of_held_out_text_are_those_of_a_loop(context: Any) -> None:
    from naive import sequences

    train, held_out, order = random_ids(1, 20), random_ids(2, 10), 3
    counts = count(train, order, context)
    found, totals = held_out_ratios(
        count_by_unique(train, order, SIZE, BOS, EOS, context), HeldOut(held_out, EOS, context)
    )
    events = [(row[:t], row[t]) for row in sequences(held_out, context) for t in range(1, len(row))]
    for n in range(order):
        for place, (before, word) in enumerate(events):
            h = tuple(before[len(before) - n :]) if n <= len(before) else None
            total = sum(c for ngram, c in counts[n].items() if ngram[:-1] == h)
            assert totals[n, place] == total
            ratio = counts[n][(*h, word)] / total if h is not None and total else 0.0
            assert math.isclose(found[n, place], ratio)


def test_buckets_help_on_held_out_text() -> None:
    assert bucket_edges(1) == []
    assert bucket_edges(4) == [1.0, 2.0, 4.0]
    train, valid = random_ids(1, 400), random_ids(2, 200)
    scores = []
    for buckets in (1, 6):
        lm = train_on(train, SIZE, valid=valid, order=3, smoothing="jelinek-mercer", buckets=buckets)
        assert_sums_to_one(lm)
        scores.append(lm.automaton.score(valid.astype(np.int64)).mean())
        lambdas = lm.metrics["lambdas"]
        assert [*lambdas] == ["trigram", "bigram", "unigram", *(["uniform"] if buckets == 1 else [])]
        values = np.asarray([*lambdas.values()])
        assert values.shape == ((4,) if buckets == 1 else (3, 6))
        assert ((values >= 0) & (values < 1)).all()
    assert scores[1] > scores[0]


# -- vocabulary ---------------------------------------------------------------------------------------------


def trained(text: str, tokenizer: str = "word", **settings: Any) -> cr.LanguageModel:
    """As the command line trains: `cr.train` keeps the word vocabulary for the tokenizer."""
    return train_kind(training.KIND, NgramSettings(**settings), cr.Corpus.from_text(text), tokenizer=tokenizer)


def test_words_of_a_file_are_added(tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("zebra\ncats\nyak\n", encoding="utf-8")
    text = "i love cats\ni love dogs\n"
    for smoothing in ("modified-kneser-ney", "katz", "laplace", "witten-bell"):
        lm = trained(text, order=3, smoothing=smoothing, extra_words=str(words))
        assert isinstance(lm, NgramModel)
        without = trained(text, order=3, smoothing=smoothing)
        assert lm.tokenizer.vocab_size == without.tokenizer.vocab_size + 2
        assert lm.tokenizer.unk not in lm.tokenizer.encode("zebra yak")
        assert math.isfinite(lm.log_prob("i love zebra"))
        assert_sums_to_one(lm)
        lm.save(tmp_path / smoothing)
        assert cr.load(tmp_path / smoothing).log_prob("yak zebra") == lm.log_prob("yak zebra")


@pytest.mark.parametrize("content", ["two words\n", "tab\tbed\n", " led\n", "good\n\nbad\n", ""])
def test_what_is_no_list_of_words_is_refused(tmp_path: Path, content: str) -> None:
    words = tmp_path / "words.txt"
    words.write_text(content, encoding="utf-8")
    with pytest.raises((TokenizerError, SettingsError), match=r"words\.txt"):
        trained("i love cats\n", extra_words=str(words))


def test_only_word_tokens_take_words(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("zebra\n", encoding="utf-8")
    with pytest.raises(SettingsError, match="goes with word tokens, not with char tokens"):
        trained("ab\n", tokenizer="char", extra_words=str(tmp_path / "words.txt"))


# -- settings -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"order": 1001}, "at most 1000"),
        ({"k": 0.5}, "k goes with smoothing=add-k"),
        ({"buckets": 3}, "buckets goes with smoothing=jelinek-mercer"),
        ({"good_turing": 7}, "good_turing goes with smoothing=katz"),
        ({"smoothing": "katz", "good_turing": 0}, "good_turing should be from 1 to 100"),
        ({"alpha": 0.5}, "alpha goes with smoothing=stupid-backoff"),
        ({"smoothing": "add-k", "k": float("nan")}, "k should be above 0"),
        ({"lambdas": "0.5,0.5"}, "lambdas goes with smoothing=jelinek-mercer"),
        ({"smoothing": "jelinek-mercer", "lambdas": "1", "order": 1, "buckets": 2}, "leave out buckets"),
        ({"smoothing": "jelinek-mercer", "lambdas": "0.6,0.3", "order": 3}, "3 weights for order=3"),
        ({"smoothing": "jelinek-mercer", "lambdas": "0.6,0.3,0.2", "order": 3}, "a sum of at most 1"),
        ({"smoothing": "jelinek-mercer", "lambdas": "a,b", "order": 2}, "such as 0.67,0.33, not 'a,b'"),
        ({"smoothing": "jelinek-mercer", "buckets": 0}, "buckets should be from 1 to 64"),
        ({"smoothing": "stupid-backoff", "alpha": 0.0}, "alpha should be above 0"),
        ({"smoothing": "stupid-backoff", "entropy": 1e-8}, "stupid-backoff gives scores"),
        ({"entropy": -1e-8}, "entropy should be at least 0"),
        ({"entropy": float("nan")}, "entropy should be at least 0"),
        ({"bits": 1}, "bits should be from 2 to 16"),
        ({"bits": 17}, "bits should be from 2 to 16"),
        ({"memory": "lots"}, "memory should be a size"),
        ({"prune": "1"}, "words are never pruned"),
        ({"smoothing": "infinite", "bits": 8}, "bits does not go with smoothing=infinite"),
        ({"smoothing": "infinite", "prune": "0,0,1"}, "prune does not go with smoothing=infinite"),
    ],
)
def test_settings_that_make_no_sense(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        NgramSettings(**wrong)


def test_all_at_once(tmp_path: Path) -> None:
    """Pruned twice, quantised, indexed, under a cap: still a model that is saved and loaded."""
    words = tmp_path / "words.txt"
    words.write_text("zebra\n", encoding="utf-8")
    documents = [document.decode() for document in cr.Corpus.open("builtin:python").documents()]
    settings = {"prune": "0,0,1", "entropy": 1e-7, "bits": 8, "index": "hash", "memory": "1MB"}
    lm = trained("".join(documents[:20]), order=4, extra_words=str(words), **settings)
    lm.save(tmp_path / "m")
    loaded = cr.load(tmp_path / "m")
    text = "the zebra of the expression is evaluated"
    assert loaded.log_prob(text) == lm.log_prob(text) > -math.inf
    assert lm.metrics["ngrams"] == loaded.metrics["ngrams"]


def test_small_texts_never_wait_for_numba() -> None:
    script = """
import sys
import chainrule as cr
lm = cr.train("ngram", cr.Corpus.from_text("i love cats\\ni love dogs\\n"))
lm.perplexity("i love dogs")
print(cr.generate(lm, "i", max_tokens=3, seed=1) != "", "numba" in sys.modules, "torch" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "True False False\n"


def test_a_level_is_smoothed_from_the_one_below() -> None:
    """A method with own = 0 leaves the uniform distribution below the unigrams: all words but <s> alike."""
    from chainrule.ngram.estimate.smooth import interpolate

    counts = count_by_unique(IDS, 3, SIZE, BOS, EOS, "line")
    prob, backoff = smooth_levels(counts, lambda n: lambda seen: interpolate(seen, seen.lower * 0.0))
    assert (backoff == 1).all()
    start = int(codes_of_words(SIZE)[BOS])
    assert prob[start] == 0
    assert (np.delete(prob, start) == np.float32(1 / (SIZE - 1))).all()
