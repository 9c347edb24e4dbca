"""Values in few bits are near the originals, exact if few are distinct, and -inf stays -inf."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from naive import ids_of, train_on

import chainrule as cr
from chainrule.ngram.store.values import Values, codebook, nearest, packed
from listening import Listening


def quantise(plain: np.ndarray, bounds: np.ndarray, bits: int) -> Values:
    """Round each number to the nearest of the codebook of its length."""
    lengths = [plain[first:last] for first, last in pairwise(bounds[1:])]
    books = [codebook(values, 1 << bits) for values in lengths]
    return packed(plain[: bounds[1]], list(map(nearest, books, lengths)), books, bits)


@pytest.mark.parametrize("bits", range(2, 17))
def test_each_value_becomes_one_nearby(bits: int) -> None:
    plain = -np.random.default_rng(bits).exponential(3.0, 3000).astype(np.float32)
    bounds = np.asarray([0, 500, 1000, 1000, 3000])
    small = quantise(plain, bounds, bits)
    assert small.books.shape == (3, 1 << bits)
    np.testing.assert_array_equal(small.at(np.arange(500), 0), plain[:500])  # the words' own
    for length, (first, last) in enumerate([(500, 1000), (1000, 1000), (1000, 3000)], start=1):
        values = small.at(np.arange(first, last), length)
        book = small.books[length - 1]
        nearest = np.abs(plain[first:last, None] - book[None]).min(axis=1) if last > first else np.zeros(0)
        np.testing.assert_allclose(np.abs(values - plain[first:last]), nearest, atol=1e-6)
        assert (np.diff(book) >= 0).all()


@given(st.lists(st.sampled_from([-0.5, -1.25, -3.0, -np.inf]), min_size=1, max_size=40))
def test_few_distinct_values_are_exact(values: list[float]) -> None:
    plain = np.asarray(values, dtype=np.float32)
    small = quantise(plain, np.asarray([0, 0, len(plain)]), 2)
    np.testing.assert_array_equal(small.at(np.arange(len(plain)), 1), plain)


def test_what_is_impossible_stays_so() -> None:
    plain = np.append(-np.random.default_rng(1).exponential(3.0, 500), [-np.inf] * 3).astype(np.float32)
    small = quantise(plain, np.asarray([0, 0, len(plain)]), 3)
    got = small.at(np.arange(len(plain)), 1)
    np.testing.assert_array_equal(np.isneginf(got), np.isneginf(plain))
    only = codebook(np.full(4, -np.inf, dtype=np.float32), 4)
    assert only[0] == -np.inf


def test_more_bits_are_nearer() -> None:
    plain = -np.random.default_rng(2).exponential(3.0, 5000).astype(np.float32)
    bounds = np.asarray([0, 0, 5000])
    errors = [
        float(np.square(quantise(plain, bounds, bits).at(np.arange(5000), 1) - plain).mean())
        for bits in (2, 4, 6, 8)
    ]
    assert errors == sorted(errors, reverse=True)
    assert errors[-1] < 0.002


def test_torch_reads_the_same() -> None:
    plain = -np.random.default_rng(2).exponential(3.0, 500).astype(np.float32)
    torch = pytest.importorskip("torch")
    for values in (Values.of(plain), quantise(plain, np.asarray([0, 100, 500]), 5)):
        there = values.to("cpu")
        for length, places in enumerate([(0, 100), (100, 500)]):
            expected = values.at(np.arange(*places), length)
            np.testing.assert_array_equal(there.at(torch.arange(*places), length).numpy(), expected)


@pytest.fixture(scope="module")
def corpus() -> cr.Corpus:
    documents = [document.decode() for document in cr.Corpus.open("builtin:python").documents()]
    return cr.Corpus.from_text("".join(documents[:25]))


def test_eight_bits_hardly_change_perplexity(corpus: cr.Corpus) -> None:
    progress = Listening()
    lm = cr.train("ngram", corpus, order=4, bits=8, progress=progress, tokenizer="word")
    before, after = (lm.metrics[f"perplexity_{when}_quantising"] for when in ("before", "after"))
    assert abs(after / before - 1) < 0.005
    assert any(
        "4-gram, modified-kneser-ney, 8 bits: the perplexity of the training text changes by " in note
        for note in progress.notes
    )


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("smoothing", ["witten-bell", "mle"])
def test_small_models_are_saved_and_loaded(order: int, smoothing: str, tmp_path: Path) -> None:
    ids = ids_of([[3, 4, 5, 3], [4, 4], []])
    lm = train_on(ids, 8, order=order, smoothing=smoothing, bits=4)
    lm.save(tmp_path / "m")
    rows = np.asarray([[3, 4, 5], [6, 7, 2]])
    np.testing.assert_array_equal(cr.load(tmp_path / "m").score(rows), lm.score(rows))
    plain = train_on(ids, 8, order=order, smoothing=smoothing)
    np.testing.assert_allclose(lm.score(rows), plain.score(rows), rtol=1e-6)  # few distinct values are exact


def test_held_out_text_is_what_the_loss_is_measured_on() -> None:
    progress = Listening()
    ids = ids_of([[3, 4, 5, 3], [4, 4], []])
    train_on(ids, 8, order=2, smoothing="witten-bell", bits=4, valid=ids_of([[3]]), progress=progress)
    assert progress.notes == ["bigram, witten-bell, 4 bits: the perplexity of held-out text changes by +0.00%"]
    progress = Listening()
    train_on(ids, 8, order=2, smoothing="mle", bits=4, valid=ids_of([[7]]), progress=progress)
    assert progress.notes == [
        "bigram, mle, 4 bits: the perplexity of held-out text changes by unknown: it was infinite before"
    ]
