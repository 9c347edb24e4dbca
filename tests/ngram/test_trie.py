"""The packed trie against a dictionary of tuples."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import BOS, EOS, Ngram
from test_levels import contexts, spelled, texts

from chainrule.arrays import to_numpy
from chainrule.contract.lm import Context
from chainrule.ngram.estimate.levels import Counts, count_by_unique
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.store.parts import Parts
from chainrule.ngram.store.trie import Trie, bit_lengths, move, pack_begins


def trie_of(counts: Counts) -> Trie:
    levels = counts.levels
    nothing = np.zeros(sum(map(len, levels)), dtype=np.float32)
    words, begins = [level.word for level in levels[1:]], [level.begin for level in levels[1:]]
    shorter = nothing[: len(nothing) - len(levels[-1])]
    return Parts(counts.vocab_size, counts.bos, words, begins, nothing, shorter).assemble().trie


def nodes_of(counts: Counts) -> dict[Ngram, int]:
    """The number of each n-gram's node: they are numbered from the shortest to the longest."""
    return {
        ngram: node for node, ngram in enumerate(ngram for level in [[()], *spelled(counts)] for ngram in level)
    }


@settings(max_examples=30)
@given(texts(), st.sampled_from([1, 2, 3, 5, 20]), contexts)
def test_the_trie_is_a_dictionary_of_tuples(text: tuple[np.ndarray, int], order: int, context: Context) -> None:
    ids, size = text
    counts = count_by_unique(ids, order, size, BOS, EOS, context)
    trie, nodes = trie_of(counts), nodes_of(counts)
    code = codes_of_words(size)
    assert trie.nodes == len(nodes)
    assert trie.order == order
    every = np.arange(trie.nodes)
    assert trie.length(every).tolist() == [len(ngram) for ngram in nodes]
    for n in range(order + 1):
        ngrams = [ngram for ngram in nodes if len(ngram) == n]
        first, last = int(trie.first_of_length[n]), int(trie.first_of_length[n + 1])
        here = np.arange(first, last)
        assert here.tolist() == [nodes[ngram] for ngram in ngrams]
        if n > 0:
            assert trie.word(here).tolist() == [code[ngram[-1]] for ngram in ngrams]
            assert trie.parent(here, n).tolist() == [nodes[ngram[:-1]] for ngram in ngrams]
            assert [tuple(row) for row in trie.ngrams(first, last, n).tolist()] == [
                tuple(int(code[w]) for w in ngram) for ngram in ngrams
            ]
        if n < order and len(here):
            begin, end = trie.children(here, n)
            for ngram, low, high in zip(ngrams, begin, end, strict=True):
                assert all(nodes_to_ngram[:-1] == ngram for nodes_to_ngram in list(nodes)[low:high])
            for w in range(size + 1):
                wanted = np.full(len(here), code[w] if w < size else size)
                assert trie.child(here, n, wanted).tolist() == [nodes.get((*ngram, w), 0) for ngram in ngrams]


def test_ngrams_are_read_in_blocks() -> None:
    chance = np.random.default_rng(2)
    ids = np.append(chance.integers(2, 20, 500), EOS)
    trie = trie_of(count_by_unique(ids, 3, 20, BOS, EOS, "line"))
    for n in (1, 2, 3):
        whole = trie.ngrams(int(trie.first_of_length[n]), int(trie.first_of_length[n + 1]), n)
        blocks = [trie.ngrams(first, last, n) for first, last in trie.blocks(n, size=7)]
        np.testing.assert_array_equal(np.concatenate(blocks), whole)


def test_torch_walks_the_same_trie() -> None:
    ids = np.append(np.random.default_rng(2).integers(2, 20, 300), EOS)
    trie = trie_of(count_by_unique(ids, 3, 20, BOS, EOS, "line"))
    other = trie.to("cpu")
    assert isinstance(other.words, torch.Tensor)
    for n in (1, 2, 3):
        nodes = np.arange(trie.first_of_length[n], trie.first_of_length[n + 1])
        tensor = torch.as_tensor(nodes)
        np.testing.assert_array_equal(trie.word(nodes), other.word(tensor))
        np.testing.assert_array_equal(trie.parent(nodes, n), other.parent(tensor, n))
        np.testing.assert_array_equal(trie.length(nodes), other.length(tensor))
        if n < 3:
            codes = np.arange(len(nodes)) % 20
            np.testing.assert_array_equal(
                trie.child(nodes, n, codes), other.child(tensor, n, torch.as_tensor(codes))
            )
    back = other.to(None)
    for name in ("words", "base", "offset", "rest"):
        assert getattr(back, name).dtype == getattr(trie, name).dtype
        np.testing.assert_array_equal(getattr(back, name), getattr(trie, name))


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 1 << 20), max_size=70), min_size=1, max_size=3))
def test_where_children_begin_goes_round(steps: list[list[int]]) -> None:
    """One context or none, and steps from 0 to a million."""
    begins = [np.cumsum([0, *step]) for step in steps]
    base, offset, rest = pack_begins(begins)
    firsts = np.cumsum([0, 1, *(len(begin) - 1 for begin in begins), 0])
    trie = Trie(len(begins[0]) - 1, firsts, np.zeros(1, np.uint32), base, offset, rest)
    for n, begin in enumerate(begins, start=1):
        nodes = np.arange(firsts[n], firsts[n + 1] + 1)
        np.testing.assert_array_equal(trie.begin(nodes, n), begin)
    on_torch = pack_begins([torch.as_tensor(begin) for begin in begins])
    for ours, theirs in zip((base, offset, rest), on_torch, strict=True):
        np.testing.assert_array_equal(
            ours.astype(np.int64) & 0xFFFFFFFF, to_numpy(theirs).astype(np.int64) & 0xFFFFFFFF
        )


def test_bit_lengths() -> None:
    values = np.asarray([0, 1, 2, 3, 4, 1 << 30, (1 << 31) + 5])
    assert bit_lengths(values).tolist() == [1, 1, 2, 2, 3, 31, 32]


@pytest.mark.parametrize("dtype", [np.uint32, np.uint64, np.float32, np.int64])
def test_arrays_move_to_torch_and_back(dtype: type) -> None:
    array = np.asarray([0, 1, 2**31 + 7], dtype=dtype)
    there = move(array, "cpu")
    assert isinstance(there, torch.Tensor)
    if dtype is not np.uint64:  # comes back as what `to` narrows
        back = move(there, None)
        assert back.dtype == array.dtype
        np.testing.assert_array_equal(back, array)
