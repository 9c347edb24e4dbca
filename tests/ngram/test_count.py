"""Fast counting gives the same counts as slow counting, however the text is cut, in memory or in files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from naive import BOS, EOS, ids_of
from test_levels import check, contexts, texts

from chainrule.contract.lm import Context
from chainrule.ngram.estimate import count as counting
from chainrule.ngram.estimate.count import Index, bytes_needed, count_by_sorting, index_type
from chainrule.ngram.estimate.levels import Counts, count_by_unique
from chainrule.ngram.workspace import Workspace

orders = st.sampled_from([1, 2, 3, 4, 5, 6, 20])


def assert_same(ours: Counts, other: Counts) -> None:
    assert (ours.vocab_size, ours.bos, ours.order) == (other.vocab_size, other.bos, other.order)
    for n, (level, expected) in enumerate(zip(ours.levels, other.levels, strict=True), start=1):
        for name in ("word", "count", "begin", "suffix"):
            np.testing.assert_array_equal(getattr(level, name), getattr(expected, name), f"{name} of length {n}")


@pytest.fixture(params=["as it is", "many parts", "many parts, rounds and stretches"])
def cut_up(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Texts this small would fit into one part; with these constants they do not."""
    if request.param != "as it is":
        monkeypatch.setattr(counting, "_WINDOWS_PER_PART", 2)
        monkeypatch.setattr(counting, "_CONTEXTS_AT_ONCE", 3)
    if "rounds" in request.param:
        monkeypatch.setattr(counting, "_TOKENS_OF_A_STRETCH", 5)
        monkeypatch.setattr(counting, "_BYTES_OF_WINDOWS", 64)
        monkeypatch.setattr(counting, "_NGRAMS_OF_A_CHUNK", 6)
    return str(request.param)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts(), orders, contexts)
def test_sorting_counts_what_the_slow_way_counts(
    cut_up: str, text: tuple[np.ndarray, int], order: int, context: Context
) -> None:
    ids, size = text
    found = count_by_sorting(ids, order, size, BOS, EOS, context)
    assert_same(found, count_by_unique(ids, order, size, BOS, EOS, context))
    if cut_up == "as it is":
        check(found, ids, order, context)


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize("size", [4, 7, 40, 3000])
def test_frequent_words_are_cut_up_by_the_word_behind_them(
    monkeypatch: pytest.MonkeyPatch, size: int, context: Context
) -> None:
    """Five thousand tokens, most of them the same word: its windows go to many parts."""
    chance = np.random.default_rng(size)
    ids = np.append(np.minimum(chance.geometric(0.4, 5000) + 2, size - 1), EOS).astype(np.uint16)
    ids[chance.integers(0, 5000, 300)] = EOS
    monkeypatch.setattr(counting, "_WINDOWS_PER_PART", 50)
    monkeypatch.setattr(counting, "_TOKENS_OF_A_STRETCH", 999)
    monkeypatch.setattr(counting, "_BYTES_OF_WINDOWS", 20_000)
    assert_same(count_by_sorting(ids, 4, size, BOS, EOS, context), count_by_unique(ids, 4, size, BOS, EOS, context))


@pytest.mark.usefixtures("cut_up")
def test_spilled_arrays_are_the_same(tmp_path: Path) -> None:
    chance = np.random.default_rng(3)
    ids = np.append(chance.integers(2, 30, 200), EOS).astype(np.uint16)
    for order in (1, 2, 5):
        spilled = count_by_sorting(ids, order, 30, BOS, EOS, "line", Workspace(tmp_path))
        assert_same(spilled, count_by_sorting(ids, order, 30, BOS, EOS, "line"))
        assert list(tmp_path.iterdir()) == []
    assert isinstance(spilled.levels[-1].suffix, np.memmap)


@pytest.mark.parametrize("index", [np.uint8, np.uint16, np.uint32, np.uint64])
@pytest.mark.parametrize("context", ["line", "stream"])
def test_places_fit_into_narrow_types(index: Index, context: Context) -> None:
    chance = np.random.default_rng(4)
    ids = ids_of([chance.integers(3, 9, chance.integers(0, 9)).tolist() for _ in range(20)])
    assert 2 * len(ids) + 1 < 256
    found = count_by_sorting(ids, 4, 9, BOS, EOS, context, index=index)
    assert_same(found, count_by_unique(ids, 4, 9, BOS, EOS, context))
    assert found.levels[2].begin.dtype == found.levels[3].suffix.dtype == np.dtype(index)


def test_the_type_of_places_follows_the_size_of_the_text() -> None:
    assert index_type((1 << 32) - 1) is np.uint32
    assert index_type(1 << 32) is np.uint64
    assert index_type(5, vocab_size=1 << 32) is np.uint64


@pytest.mark.parametrize("spills", [False, True])
def test_a_chunk_has_the_ngrams_of_its_parts(tmp_path: Path, spills: bool) -> None:
    """Counts that need four bytes among those that need one."""
    parts = [np.arange(12).reshape(3, 4), np.asarray([[7, 8], [70_000, 1], [2, 3]]), np.arange(27).reshape(3, 9)]
    narrow = [(word, count.astype(np.min_scalar_type(count.max())), children) for word, count, children in parts]
    chunk = counting._chunk(narrow, Workspace(tmp_path if spills else None))
    assert (chunk.size, chunk.largest) == (15, 70_000)
    np.testing.assert_array_equal(np.stack(chunk.load()), np.concatenate(parts, axis=1))


def test_more_tokens_and_longer_ngrams_need_more_memory() -> None:
    assert bytes_needed(10**9, 5) > 5 * 10**9
    assert bytes_needed(10**6, 6) > bytes_needed(10**6, 5) > bytes_needed(10**5, 5)


def test_ids_of_any_width_are_counted() -> None:
    lines = [[3, 4, 3], [], [4, 4]]
    expected = count_by_unique(ids_of(lines), 3, 5, BOS, EOS, "line")
    for dtype in (np.uint8, np.uint16, np.uint32, np.int64):
        assert_same(count_by_sorting(ids_of(lines).astype(dtype), 3, 5, BOS, EOS, "line"), expected)
