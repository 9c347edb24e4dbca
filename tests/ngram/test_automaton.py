"""The automaton scores a text the same at once, by kernels, word by word, in NumPy and in torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from naive import BOS, EOS, ids_of, sequences, train_on
from test_levels import contexts, texts

from chainrule.arrays import array_namespace, pad, to_numpy
from chainrule.contract import chain
from chainrule.contract.lm import Context
from chainrule.ngram.arpa.arpa_model import load_arpa
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.store import automaton as walking
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.kernels import search_children
from chainrule.ngram.store.parts import Parts
from chainrule.system import parallel

SIZE = 30
CLOSE = {"rtol": 1e-5, "atol": 1e-5}


def random_ids(seed: int, lines: int = 60) -> np.ndarray:
    chance = np.random.default_rng(seed)
    words = np.minimum(chance.geometric(0.2, (lines, 12)) + 2, SIZE - 2)
    return ids_of([row[: chance.integers(0, 12)].tolist() for row in words])


def model(**settings: Any) -> NgramModel:
    return train_on(random_ids(0), SIZE, **{"order": 4, "smoothing": "modified-kneser-ney", **settings})


def after(automaton: Automaton, states: Any, words: Any) -> Any:
    """Return the states after one more word each."""
    history = automaton.words_of(states)
    return automaton.state_of(array_namespace(states).concat([history, words[:, None]], axis=1)[:, 1:])


MODELS = {
    "plain": {},
    "unigram": {"order": 1},
    "bigram": {"order": 2},
    "beyond any line": {"order": 13},
    "quantised": {"bits": 6},
    "index": {"index": "hash"},
    "quantised, index": {"bits": 6, "index": "hash"},
    "pruned": {"prune": "0,0,1"},
    "impossible": {"smoothing": "mle"},
    "stream": {"context": "stream"},
    "stupid": {"smoothing": "stupid-backoff"},
    "stupid, unigram": {"smoothing": "stupid-backoff", "order": 1},
    "stupid, pruned, index": {"smoothing": "stupid-backoff", "prune": "0,0,1", "index": "hash"},
    "stupid, quantised": {"smoothing": "stupid-backoff", "bits": 6},
}


@pytest.mark.parametrize("name", MODELS)
def test_what_follows_by_kernel_is_what_follows_by_numpy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """To the last bit: the nodes of the contexts, and ln p of every next word."""
    automaton = model(**MODELS[name]).automaton
    text = random_ids(1)
    reach = automaton.trie.order - 1
    history = np.lib.stride_tricks.sliding_window_view(np.append(text, [SIZE, SIZE - 1]), reach).astype(np.int64)
    slow, states = automaton.ends_slowly(history), automaton.state_slowly(history)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    fast = automaton.ends_fast(history)
    assert fast.shape == (len(history), reach + 1)
    for ours, theirs in zip(fast.T[1:], slow, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(automaton.state_of(history), states)
    np.testing.assert_array_equal(automaton.next_after(history), automaton.next_slowly(history))
    probs = automaton.next_probs_after(history)
    if automaton.log_alpha:
        assert probs is None
    else:
        np.testing.assert_allclose(probs, np.exp(automaton.next_slowly(history)), rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("name", MODELS)
def test_text_at_once_is_text_by_kernel_is_text_word_by_word(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = model(**MODELS[name])
    text = np.concatenate([np.asarray(row) for row in sequences(random_ids(1), "line")])
    text = np.insert(text, 50, SIZE)  # nothing, and a word of no n-gram
    text[70] = SIZE - 1
    at_once = lm.automaton.score(text)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    np.testing.assert_allclose(lm.automaton.score(text), at_once, **CLOSE)
    monkeypatch.undo()

    rows = [np.asarray(row[1:]) for row in sequences(random_ids(1), "line")]
    ids_BT = pad(rows[:12])
    scores = lm.score(ids_BT)
    np.testing.assert_allclose(scores, chain.score(lm, ids_BT), **CLOSE)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    np.testing.assert_allclose(lm.score(ids_BT), scores, **CLOSE)


@pytest.mark.parametrize("name", MODELS)
def test_models_that_keep_suffixes_have_them(name: str) -> None:
    """If keeps_suffixes is true, each n-gram is there without its first word too; pruning removes some of those."""
    automaton = model(**MODELS[name]).automaton
    assert automaton.keeps_suffixes == ("prune" not in MODELS[name] and "entropy" not in MODELS[name])
    trie = automaton.trie
    have = True
    for n in range(2, trie.order + 1):
        longer = trie.ngrams(int(trie.first_of_length[n]), int(trie.first_of_length[n + 1]), n)
        shorter = trie.ngrams(int(trie.first_of_length[n - 1]), int(trie.first_of_length[n]), n - 1)
        have &= {tuple(row[1:]) for row in longer.tolist()} <= {tuple(row) for row in shorter.tolist()}
    assert have or not automaton.keeps_suffixes


def test_an_ngram_without_its_suffix_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file from elsewhere may have "a b c" and not "b c"."""
    lines = ["\\data\\", "ngram 1=6", "ngram 2=1", "ngram 3=1", "", "\\1-grams:"]
    lines += [f"-0.7\t{word}\t-0.1" for word in ("<unk>", "<s>", "</s>", "a", "b", "c")]
    lines += ["", "\\2-grams:", "-0.5\ta b\t-0.2", "", "\\3-grams:", "-0.25\ta b c", "", "\\end\\", ""]
    (tmp_path / "a.arpa").write_text("\n".join(lines))
    lm = load_arpa(tmp_path / "a.arpa")
    ids = lm.tokenizer.encode("a b c")
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    scores = lm.automaton.score(np.asarray([lm.tokenizer.bos, *ids]))
    assert scores[-1] == pytest.approx(-0.25 * np.log(10))


def test_ngrams_are_found_where_codes_are_not_spread_evenly() -> None:
    """200 words in a row after one context: guesses are far off, and the search falls back to bisection."""
    size, children = 5000, np.arange(4800, 5000)
    begin = np.full(size + 1, len(children))
    begin[0] = 0
    values = np.zeros(size + len(children), np.float32), np.zeros(size, np.float32)
    automaton = Parts(size, 1, [children], [begin], *values).assemble()
    trie, codes = automaton.trie_arrays, np.concatenate([children, np.arange(0, 4800, 7)])
    found, low, high = (np.empty(len(codes), np.int64) for _ in range(3))
    nodes = np.ones_like(codes)
    search_children(len(codes), nodes, codes, found, 1, trie.table, trie.size, trie.words, trie.word_bits,
                    trie.base, trie.offset, trie.rest, low, high)  # fmt: skip
    np.testing.assert_array_equal(found, automaton.trie.child(nodes, 1, codes))
    assert (found > 0).sum() == len(children)


def test_sequences_laid_out_by_kernels_are_those_laid_out_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, ids = model(), random_ids(4)
    ends = np.flatnonzero(ids == EOS) + 1
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    plain = lm.score_sequences(ids, starts, ends)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    np.testing.assert_allclose(lm.score_sequences(ids, starts, ends), plain, **CLOSE)


@pytest.mark.parametrize("name", ["plain", "stupid"])
def test_kernels_join_their_parts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """More words than are scored together, and more threads than cores."""
    lm = model(**MODELS[name])
    text = np.concatenate([np.asarray(row) for row in sequences(random_ids(3, lines=400), "line")])
    assert len(text) > 4 * 256
    at_once = lm.automaton.score(text)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    for threads in (1, 2, 7):
        monkeypatch.setattr(walking, "cores", lambda threads=threads: threads)
        np.testing.assert_allclose(lm.automaton.score(text), at_once, **CLOSE)
    np.testing.assert_allclose(lm.automaton.score(text[:1]), at_once[:1], **CLOSE)
    assert lm.automaton.score(text[:0]).shape == (0,)


@settings(max_examples=25)
@given(texts(), st.integers(2, 5), contexts)
def test_states_and_their_words_belong_together(text: tuple[np.ndarray, int], order: int, context: Context) -> None:
    ids, size = text
    automaton = train_on(ids, size, context, order=order).automaton
    states = np.arange(int(automaton.trie.first_of_length[-2]))
    words = automaton.words_of(states)
    assert words.shape == (len(states), order - 1)
    np.testing.assert_array_equal((words < size).sum(axis=1), automaton.trie.length(states))
    np.testing.assert_array_equal(automaton.state_of(words), states)
    # what a state does not know stands before what it knows
    assert ((np.diff((words < size).astype(int), axis=1)) >= 0).all()


def test_a_step_is_an_extension() -> None:
    lm = model()
    rows = pad([[5, 4, 3], [2], [], [SIZE - 1, 3], [7, 7, 7, 7, 7, 7]])
    state = lm.extend(lm.start(5), rows)
    words = np.asarray([3, 4, 2, 5, SIZE - 1])
    stepped = after(lm.automaton, state.nodes, words)
    np.testing.assert_array_equal(stepped, lm.extend(state, words[:, None]).nodes)
    alone = [lm.extend(lm.start(1), np.asarray([row[row >= 0]]).reshape(1, -1)).nodes[0] for row in rows]
    np.testing.assert_array_equal(state.nodes, alone)


@pytest.mark.parametrize(
    "name", ["plain", "unigram", "beyond any line", "quantised", "pruned", "impossible", "stupid"]
)
def test_torch_gives_the_same(name: str) -> None:
    lm = model(**MODELS[name])
    other = lm.on("cpu:0")
    assert isinstance(other.automaton.trie.words, torch.Tensor)
    ids_BT = pad([row[1:] for row in sequences(random_ids(1), "line")[:20]])
    np.testing.assert_allclose(to_numpy(other.score(ids_BT)), lm.score(ids_BT), **CLOSE)
    state, theirs = lm.extend(lm.start(20), ids_BT), other.extend(other.start(20), torch.as_tensor(ids_BT))
    np.testing.assert_array_equal(state.nodes, to_numpy(theirs.nodes))
    np.testing.assert_allclose(to_numpy(other.next_log_probs(theirs)), lm.next_log_probs(state), **CLOSE)
    chosen = [3, 3, 0, 19]
    np.testing.assert_array_equal(theirs.select(np.asarray(chosen)).nodes, state.select(np.asarray(chosen)).nodes)
    np.testing.assert_array_equal(
        theirs.select(torch.as_tensor(chosen)).nodes, state.select(torch.as_tensor(chosen)).nodes
    )
    words = np.full(20, 4)
    np.testing.assert_array_equal(
        after(lm.automaton, state.nodes, words),
        to_numpy(after(other.automaton, theirs.nodes, torch.as_tensor(words))),
    )
    back = other.on("cpu")
    np.testing.assert_array_equal(back.score(ids_BT), lm.score(ids_BT))
    assert back.automaton.trie.words.dtype == np.uint32


def test_a_model_in_torch_is_saved_as_it_was(tmp_path: Any) -> None:
    import chainrule as cr

    for name in ("plain", "quantised", "index"):
        lm = model(**MODELS[name])
        lm.on("cpu:0").save(tmp_path / name)
        ids_BT = pad([[5, 4, 3], [2]])
        np.testing.assert_array_equal(cr.load(tmp_path / name).score(ids_BT), lm.score(ids_BT))


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_every_ngram_is_in_the_index(threads: int, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr(walking, "cores", lambda: threads)
    plain = model().automaton
    indexed = plain.indexed()
    assert indexed.index is not None
    trie = plain.trie
    longer = trie.nodes - int(trie.first_of_length[2])
    assert indexed.index.shape == (walking.slots_for(longer),)
    entries = indexed.index[indexed.index != 0]
    assert sorted((entries & 0xFFFFFFFF).tolist()) == list(range(int(trie.first_of_length[2]), trie.nodes))


def test_an_index_that_is_almost_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many n-grams find their slot taken, and some no room before the end of their thread's part."""

    monkeypatch.setattr(walking, "cores", lambda: 7)
    monkeypatch.setattr(walking, "slots_for", lambda nodes: nodes + 1)
    plain = model().automaton
    indexed = plain.indexed()
    assert indexed.index is not None
    assert (indexed.index == 0).sum() == 1
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    text = np.concatenate([np.asarray(row) for row in sequences(random_ids(1), "line")])
    np.testing.assert_allclose(indexed.score(text), plain.score(text), **CLOSE)


def test_start_is_the_state_behind_the_start() -> None:
    assert model(order=1).automaton.start() == 0
    automaton = model().automaton
    assert automaton.words_of(automaton.array([automaton.start()])).tolist() == [[SIZE, SIZE, BOS]]
    assert automaton.words_of(automaton.array([0])).tolist() == [[SIZE, SIZE, SIZE]]
    after_end = after(automaton, automaton.array([automaton.start()]), np.asarray([EOS]))
    assert automaton.words_of(after_end).tolist() == [[SIZE, BOS, EOS]]  # an empty line occurred
