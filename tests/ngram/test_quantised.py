"""Probabilities of few bits still sum to one, after every context, seen or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import BOS, EOS, ids_of, train_on
from test_levels import texts

import chainrule as cr
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import SMOOTHINGS
from chainrule.ngram.store import normalise
from chainrule.ngram.store.normalise import leave_something, quantised
from chainrule.ngram.store.values import GRID_BITS, on_grids
from listening import Listening

PROBABILITIES = [name for name in SMOOTHINGS if name not in ("infinite", "stupid-backoff", "mle")]
NEAR_ONE = {"rtol": 0, "atol": 2e-6}
FOLDERS = Path(__file__).parents[1] / "data" / "folders"


@pytest.fixture(scope="module")
def words() -> np.ndarray:
    """Some real text as ids; enough that no codebook holds every value."""
    text = next(iter(cr.Corpus.open("builtin:python").documents())).decode()[:30_000]
    number = {word: i for i, word in enumerate(sorted(set(text.split())), start=3)}
    return ids_of([[number[word] for word in line.split()] for line in text.splitlines()])


@pytest.fixture(scope="module")
def letters() -> np.ndarray:
    text = next(iter(cr.Corpus.open("builtin:python").documents())).decode()[:20_000]
    number = {letter: i for i, letter in enumerate(sorted(set(text)), start=3)}
    return ids_of([[number[letter] for letter in line] for line in text.splitlines()])


def sums_after(lm: NgramModel, seed: int = 0) -> np.ndarray:
    """Σ_w p(w | h) for contexts of the trie, of every length, and for random ones."""
    trie, chance = lm.automaton.trie, np.random.default_rng(seed)
    every = np.arange(max(int(trie.first_of_length[-2]), 1))
    known = lm.automaton.words_of(chance.choice(every, min(len(every), 1500), replace=False))
    strange = chance.integers(0, lm.tokenizer.vocab_size, (300, trie.order - 1))
    histories = np.concatenate([known, np.where(strange == BOS, EOS, strange)])
    return np.concatenate(
        [np.exp(lm.automaton.next_after(some)).sum(axis=1) for some in np.array_split(histories, 8)]
    )


def bits_of(lm: NgramModel) -> tuple[int, int]:
    return lm.automaton.log_prob.bits, lm.automaton.log_backoff.bits


@pytest.mark.parametrize("bits", [2, 4, 8, 16])
@pytest.mark.parametrize("smoothing", PROBABILITIES)
def test_sums_are_one(smoothing: str, bits: int, words: np.ndarray) -> None:
    lm = train_on(words, int(words.max()) + 1, smoothing=smoothing, order=4, bits=bits)
    assert bits_of(lm) == (bits, GRID_BITS)
    assert lm.normalised
    np.testing.assert_allclose(sums_after(lm), 1.0, **NEAR_ONE)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
@pytest.mark.parametrize(
    "options",
    [
        {"prune": "0,1"},
        {"entropy": 1e-4},
        {"index": "hash"},
        {"context": "stream"},
        {"smoothing": "witten-bell", "entropy": 1e-5},
    ],
)
def test_sums_are_one_whatever_else_is_set(options: dict[str, Any], order: int, words: np.ndarray) -> None:
    if order == 1:
        options = {key: value for key, value in options.items() if key != "prune"}
    lm = train_on(words, int(words.max()) + 1, order=order, bits=4, **options)
    assert lm.normalised
    np.testing.assert_allclose(sums_after(lm), 1.0, **NEAR_ONE)


@pytest.mark.parametrize("bits", [3, 8])
@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "katz", "witten-bell"])
def test_sums_are_one_where_most_words_were_seen(smoothing: str, bits: int, letters: np.ndarray) -> None:
    """After a blank, almost every letter was seen: less is left for the others than rounding changes."""
    lm = train_on(letters, int(letters.max()) + 1, smoothing=smoothing, order=5, bits=bits)
    assert lm.normalised
    np.testing.assert_allclose(sums_after(lm), 1.0, **NEAR_ONE)
    assert (lm.automaton.next_after(np.full((1, 4), EOS))[:, 3:] > -np.inf).all()  # and nothing became impossible


@settings(max_examples=25)
@given(texts(), st.integers(1, 5), st.sampled_from([2, 3, 5]), st.sampled_from(PROBABILITIES))
def test_sums_are_one_for_any_text(text: tuple[np.ndarray, int], order: int, bits: int, smoothing: str) -> None:
    ids, size = text
    lm = train_on(ids, size, order=order, smoothing=smoothing, bits=bits)
    assert lm.normalised
    np.testing.assert_allclose(sums_after(lm), 1.0, rtol=0, atol=2e-5)


def test_arpa_files_keep_the_sums(words: np.ndarray, tmp_path: Path) -> None:
    """A model that was quantised, written and read; and one that was read, and then quantised."""
    lm = train_on(words, int(words.max()) + 1, order=4, bits=4, entropy=1e-5)
    cr.save_arpa(lm, tmp_path / "m.arpa")
    read = cr.load_arpa(tmp_path / "m.arpa")
    np.testing.assert_allclose(sums_after(read), 1.0, **NEAR_ONE)
    read.automaton, apart = quantised(read.automaton, 3)
    assert apart < 1e-6
    assert bits_of(read) == (3, GRID_BITS)
    np.testing.assert_allclose(sums_after(read), 1.0, **NEAR_ONE)


def test_kernels_normalise_the_same(words: np.ndarray, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = train_on(words, int(words.max()) + 1, order=4, entropy=1e-5)
    slowly, _ = quantised(lm.automaton, 5)
    monkeypatch.setattr(normalise, "worth_a_kernel", lambda amount, nanoseconds: True)
    fast, _ = quantised(lm.automaton, 5)
    for name in ("plain", "codes", "books"):
        ours, theirs = getattr(fast.log_backoff, name), getattr(slowly.log_backoff, name)
        np.testing.assert_array_equal(ours, theirs)


def test_what_would_leave_nothing_is_rounded_down() -> None:
    """0.53 and 0.43 leave 0.04. The nearest, 0.6 and 0.45, make 1.05: one of them has to be the next lower one."""
    book = np.log(np.asarray([0.3, 0.45, 0.6], dtype=np.float32))
    values = np.log(np.asarray([0.53, 0.43, 0.53, 0.1], dtype=np.float32))
    begin = np.asarray([0, 2, 4])
    found = leave_something(np.asarray([2, 1, 2, 0], dtype=np.uint8), values, book, begin)
    # 0.53 and 0.1 leave 0.37, and the nearest, 0.6 and 0.3, only 0.1: 0.3 is the lowest, so 0.6 becomes 0.45
    assert found.tolist() == [2, 0, 1, 0]


def test_every_word_seen_means_full_precision() -> None:
    """Every word was seen after a, so no backoff can make up for the rounding."""
    chance = np.random.default_rng(5)
    lines = chance.choice([0, 3, 4, 5], (400, 9), p=[0.1, 0.2, 0.3, 0.4]).tolist()
    progress = Listening()
    lm = train_on(ids_of(lines), 6, smoothing="witten-bell", order=4, bits=2, progress=progress)
    assert bits_of(lm) == (0, 0)
    assert lm.settings.bits == 0
    assert lm.normalised
    assert len(progress.notes) == 1
    assert progress.notes[0].startswith(
        "4-gram, witten-bell: it stays at full precision, because every word was seen"
    )


def test_nothing_left_means_scores() -> None:
    lm = train_on(ids_of([[3, 4, 5, 3], [4, 4], []]), 8, smoothing="mle", bits=4)
    assert not lm.normalised


def test_models_of_an_earlier_version_are_marked(tmp_path: Path) -> None:
    """Their backoffs have as few bits as their probabilities, and do not make up for the rounding."""
    old = cr.load(FOLDERS / "ngram-quantised")
    assert not old.normalised
    assert not cr.evaluate(old, cr.Corpus.from_text("i love cats\n")).normalised
    old.save(tmp_path / "again")
    assert not cr.load(tmp_path / "again").normalised


def test_the_grid_is_as_fine_as_single_precision() -> None:
    plain = np.append(-np.random.default_rng(3).exponential(2.0, 5000), [-np.inf, 1.5, 0.0]).astype(np.float32)
    small = on_grids(plain, np.asarray([0, 100, 100, len(plain)]))
    assert small.books.shape == (2, 2)
    found = small.at(np.arange(100, len(plain)), 2)
    assert found.dtype == np.float32
    np.testing.assert_array_equal(np.isneginf(found), np.isneginf(plain[100:]))
    finite = np.isfinite(found)
    np.testing.assert_allclose(found[finite], plain[100:][finite], rtol=0, atol=2e-6)
    torch = pytest.importorskip("torch")
    there = small.to("cpu:0").at(torch.arange(100, len(plain)), 2)
    np.testing.assert_array_equal(there.numpy(), found)
    same = on_grids(np.full(7, -0.25, dtype=np.float32), np.asarray([0, 0, 7]))
    np.testing.assert_array_equal(same.at(np.arange(7), 1), np.full(7, -0.25, dtype=np.float32))
