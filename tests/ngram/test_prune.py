"""Pruning: by count (test_smooth.py and test_kenlm.py hold the values), and by relative entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from naive import EOS, UNK, ids_of, train_on
from test_automaton import SIZE, random_ids
from test_smooth import assert_sums_to_one

from chainrule.errors import SettingsError
from chainrule.ngram.estimate.prune import by_entropy
from chainrule.ngram.settings import parse_thresholds
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.codes import codes_of_words
from chainrule.ngram.store.normalise import quantised
from chainrule.ngram.store.parts import Parts, select, take_apart


@pytest.mark.parametrize(
    ("text", "order", "thresholds"),
    [
        ("", 3, [0, 0, 0]),
        ("0,0,1", 3, [0, 0, 1]),
        ("0,0,1", 5, [0, 0, 1, 1, 1]),
        ("0,2", 3, [0, 2, 2]),
        ("0", 2, [0, 0]),
        ("0,1,2", 3, [0, 1, 2]),
    ],
)
def test_the_last_threshold_repeats(text: str, order: int, thresholds: list[int]) -> None:
    assert parse_thresholds(text, order) == thresholds


@pytest.mark.parametrize("text", ["x", "0,,1", "0,-1", "0,2,1", "0,0,0,1", "0.5", "0 1", ","])
def test_thresholds_that_make_no_sense(text: str) -> None:
    with pytest.raises(SettingsError, match="prune should be at most 3 counts that do not fall, such as 0,0,1"):
        parse_thresholds(text, 3)


def test_words_are_never_pruned() -> None:
    with pytest.raises(SettingsError, match="words are never pruned"):
        parse_thresholds("1,1,1", 3)


def ngram_sizes(automaton: Automaton) -> list[int]:
    return [int(size) for size in np.diff(automaton.trie.first_of_length)[1:]]


def brute_force_losses(automaton: Automaton) -> dict[tuple[int, ...], float]:
    """p(h) KL(p(. | h) || p'(. | h)) for each of the longest n-grams h w, if it alone is left out."""
    trie, size = automaton.trie, automaton.trie.vocab_size
    n = trie.order
    losses = {}
    every = [
        tuple(int(automaton.words[code]) for code in row)
        for row in trie.ngrams(int(trie.first_of_length[n]), int(trie.first_of_length[n + 1]), n)
    ]

    def distribution(h: tuple[int, ...]) -> np.ndarray:
        row = np.asarray([[size] * (n - 1 - len(h)) + list(h)])
        return np.exp(automaton.next_log_probs(automaton.state_of(row)))[0]

    for ngram in every:
        h, w = ngram[:-1], ngram[-1]
        p, lower = distribution(h), distribution(h[1:])
        stays = [other[-1] for other in every if other[:-1] == h and other[-1] != w]
        without = lower * (1 - p[stays].sum()) / (1 - lower[stays].sum())
        without[stays] = p[stays]
        p_context = 1.0
        for k, word in enumerate(h):
            p_context *= 1.0 if word == automaton.bos else distribution(h[:k])[word]
        some = p > 0
        losses[ngram] = p_context * float((p[some] * np.log(p[some] / without[some])).sum())
    return losses


@pytest.mark.parametrize("order", [2, 3])
@pytest.mark.parametrize("smoothing", ["witten-bell", "modified-kneser-ney", "katz"])
def test_what_is_left_out_costs_less_than_the_threshold(order: int, smoothing: str) -> None:
    """Relative entropies by brute force say exactly which of the longest n-grams a threshold leaves out."""
    ids = ids_of([[3, 4, 5, 3], [4, 4, 3], [], [5, 3, 4, 4, 4], [3, 4, 3, 4], [5, 5]])
    automaton = train_on(ids, 7, order=order, smoothing=smoothing).automaton
    losses = brute_force_losses(automaton)
    ordered = sorted(losses.values())
    for place in range(0, len(ordered) - 1, 3):
        if ordered[place + 1] - ordered[place] < 1e-6:
            continue  # too near for single precision
        threshold = math.expm1((ordered[place] + ordered[place + 1]) / 2)
        pruned = by_entropy(automaton, threshold)
        trie = pruned.trie
        left = trie.ngrams(int(trie.first_of_length[order]), int(trie.first_of_length[order + 1]), order)
        kept = {tuple(int(pruned.words[code]) for code in row) for row in left}
        assert kept == {ngram for ngram, loss in losses.items() if math.expm1(loss) >= threshold}


@pytest.mark.parametrize("smoothing", ["modified-kneser-ney", "witten-bell", "katz", "jelinek-mercer", "laplace"])
def test_higher_thresholds_prune_more_and_all_sum_to_one(smoothing: str) -> None:
    before = None
    for threshold in (0.0, 1e-9, 1e-4, 1e-3, 0.5):
        lm = train_on(random_ids(5), SIZE, order=3, smoothing=smoothing, entropy=threshold)
        assert_sums_to_one(lm)
        now = ngram_sizes(lm.automaton)
        assert now[0] == SIZE
        if before:
            assert now[1] <= before[1]
            assert now[2] <= before[2]
        before = now
    assert before is not None
    assert before[2] == 0


def test_threshold_nothing_keeps_everything_as_it_was() -> None:
    automaton = train_on(random_ids(5), SIZE, order=4).automaton
    pruned = by_entropy(automaton, 0.0)
    assert ngram_sizes(pruned) == ngram_sizes(automaton)
    text = random_ids(6).astype(np.int64)
    np.testing.assert_allclose(pruned.score(text), automaton.score(text), rtol=1e-4)


def test_a_little_pruning_changes_little() -> None:
    ids, held_out = random_ids(5, lines=400), random_ids(6).astype(np.int64)
    whole, pruned = (train_on(ids, SIZE, order=3, entropy=entropy).automaton for entropy in (0.0, 1e-5))
    assert sum(ngram_sizes(pruned)) < sum(ngram_sizes(whole))
    assert abs(pruned.score(held_out).mean() - whole.score(held_out).mean()) < 0.05


def test_pruning_makes_nothing_impossible() -> None:
    """After a every word was seen but <unk>, whose mass is too small to divide by."""
    size, a, b = 5, 3, 4
    code = codes_of_words(size)
    p = np.zeros(size)
    p[code[[UNK, EOS, a, b]]] = [1e-8, 0.3, 0.4, 0.3]
    after_a = np.sort(code[[EOS, a, b]])
    own = np.asarray([p[c] for c in after_a])
    begin = np.zeros(size + 1, dtype=np.int64)
    begin[code[a] + 1 :] = 3
    with np.errstate(divide="ignore"):
        log_prob = np.log(np.concatenate([p, own])).astype(np.float32)
    parts = Parts(size, 1, [after_a], [begin], log_prob, np.zeros(size, dtype=np.float32))
    pruned = by_entropy(parts.assemble(), 0.0)
    text = np.asarray([a, UNK])
    assert pruned.score(text)[1] > -np.inf


def test_parts_go_round() -> None:
    automaton = train_on(random_ids(5), SIZE, order=4).automaton
    again = take_apart(automaton).assemble()
    for name in ("words", "base", "offset", "rest", "first_of_length"):
        np.testing.assert_array_equal(getattr(again.trie, name), getattr(automaton.trie, name))
    np.testing.assert_array_equal(again.log_prob.plain, automaton.log_prob.plain)
    np.testing.assert_array_equal(again.log_backoff.plain, automaton.log_backoff.plain)
    small, _ = quantised(automaton, 8)
    nodes = np.arange(int(automaton.trie.first_of_length[2]), int(automaton.trie.first_of_length[3]))
    plain = take_apart(small).assemble()
    np.testing.assert_array_equal(plain.log_prob.at(nodes - 1, 1), small.log_prob.at(nodes - 1, 1))
    np.testing.assert_array_equal(plain.log_backoff.at(nodes - 1, 1), small.log_backoff.at(nodes - 1, 1))


def test_the_context_of_something_kept_is_kept() -> None:
    automaton = train_on(ids_of([[3, 4, 5], [3, 5]]), 7, order=3, smoothing="witten-bell").automaton
    parts = take_apart(automaton)
    keep = [np.zeros(int(size), dtype=bool) for size in np.diff(automaton.trie.first_of_length)[1:]]
    keep[2][0] = True
    kept = select(parts, keep).assemble()
    assert ngram_sizes(kept) == [7, 1, 1]
    first = int(automaton.trie.first_of_length[3])
    np.testing.assert_array_equal(
        kept.trie.ngrams(kept.trie.nodes - 1, kept.trie.nodes, 3), automaton.trie.ngrams(first, first + 1, 3)
    )
