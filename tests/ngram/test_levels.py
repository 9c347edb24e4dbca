"""Counting, the slow, obvious way: against a dictionary of tuples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import BOS, EOS, count, ids_of

from chainrule.arrays import to_numpy
from chainrule.contract.lm import Context
from chainrule.ngram.estimate.levels import Counts, count_by_unique, find, parents
from chainrule.ngram.store.codes import codes_of_words, multiplier, words_of_codes

contexts = st.sampled_from(["line", "stream"])


@st.composite
def texts(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    """Ids and the size of the vocabulary: 3 to 50 words, lines empty or long."""
    size = draw(st.sampled_from([3, 4, 5, 8, 17, 50]))
    words = st.integers(3, size - 1) if size > 3 else st.just(0)
    lines = draw(st.lists(st.lists(words, max_size=12), min_size=1, max_size=8))
    return ids_of(lines), size


def spelled(counts: Counts) -> list[list[tuple[int, ...]]]:
    """The n-grams of each level, from their contexts and last words."""
    words = words_of_codes(counts.vocab_size)
    levels: list[list[tuple[int, ...]]] = [[(int(words[code]),) for code in range(counts.vocab_size)]]
    for level in counts.levels[1:]:
        context = to_numpy(parents(np.asarray(to_numpy(level.begin), dtype=np.int64)))
        last = words[to_numpy(level.word).astype(np.int64)]
        levels.append([(*levels[-1][h], int(w)) for h, w in zip(context, last, strict=True)])
    return levels


def check(counts: Counts, ids: np.ndarray, order: int, context: Context) -> None:
    """Counts, order within each context, and suffix links are those of the dictionary."""
    ngrams = spelled(counts)
    expected = count(ids, order, context)
    assert counts.order == order
    for n, level in enumerate(counts.levels, start=1):
        got = {ngram: int(c) for ngram, c in zip(ngrams[n - 1], to_numpy(level.count), strict=True) if n > 1 or c}
        assert got == dict(expected[n - 1])
        assert len(set(ngrams[n - 1])) == len(ngrams[n - 1])
        codes = codes_of_words(counts.vocab_size)
        keys = [tuple(int(codes[w]) for w in ngram) for ngram in ngrams[n - 1]]
        assert keys == sorted(keys)
        if n > 1:
            below = [ngrams[n - 2][int(place)] for place in to_numpy(level.suffix)]
            assert below == [ngram[1:] for ngram in ngrams[n - 1]]
            place = counts.starting_with_bos(n)
            assert ngrams[n - 1][place] == [ngram for ngram in ngrams[n - 1] if ngram[0] == BOS]


@settings(max_examples=80)
@given(texts(), st.sampled_from([1, 2, 3, 4, 5, 6, 20]), contexts)
def test_counts_are_those_of_a_dictionary(text: tuple[np.ndarray, int], order: int, context: Context) -> None:
    ids, size = text
    check(count_by_unique(ids, order, size, BOS, EOS, context), ids, order, context)


@settings(max_examples=25)
@given(texts(), st.integers(1, 5), contexts)
def test_torch_counts_the_same(text: tuple[np.ndarray, int], order: int, context: Context) -> None:
    ids, size = text
    ours = count_by_unique(ids, order, size, BOS, EOS, context)
    theirs = count_by_unique(torch.as_tensor(ids.astype(np.int64)), order, size, BOS, EOS, context)
    for level, other in zip(ours.levels, theirs.levels, strict=True):
        for name in ("word", "count", "begin", "suffix"):
            np.testing.assert_array_equal(getattr(level, name), to_numpy(getattr(other, name)), name)


@given(st.lists(st.sets(st.integers(0, 20)), min_size=1, max_size=6), st.integers(0, 20))
def test_find_looks_in_its_stretch_only(stretches: list[set[int]], code: int) -> None:
    word = np.asarray([c for stretch in stretches for c in sorted(stretch)], dtype=np.uint32)
    ends = np.cumsum([0, *map(len, stretches)])
    found = find(word.__getitem__, ends[:-1], ends[1:], np.full(len(stretches), code))
    for stretch, place, first in zip(stretches, found, ends[:-1], strict=True):
        assert place == (first + sorted(stretch).index(code) if code in stretch else -1)


@pytest.mark.parametrize("size", [*range(3, 100), 1 << 10, 5947, 100_003, 1 << 20])
def test_codes_are_a_permutation(size: int) -> None:
    codes, words = codes_of_words(size), words_of_codes(size)
    assert np.array_equal(np.sort(codes), np.arange(size))
    assert np.array_equal(words[codes], np.arange(size))
    assert not codes.flags.writeable


def test_the_codes_of_the_most_frequent_words_spread() -> None:
    """Of the first hundred words of a million, no two lie nearer than a third of the even distance."""
    gaps = np.diff(np.sort(codes_of_words(1_000_003)[:100].astype(np.int64)))
    assert gaps.min() > 1_000_003 / 100 / 3
    assert gaps.max() < 3 * 1_000_003 / 100
    assert multiplier(1_000_003) == round(1_000_003 * 0.6180339887498949)
