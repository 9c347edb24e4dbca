"""Every smoothing method equals its equation in naive.py, stored and computed, on every context."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from naive import BOS, EOS, UNK, Naive, Ngram, ids_of, train_on
from test_levels import contexts, texts

import chainrule as cr
from chainrule.contract.lm import Context
from chainrule.ngram.estimate import smooth
from chainrule.ngram.estimate.methods import _lengths
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import SMOOTHINGS
from chainrule.ngram.store.values import Values
from chainrule.system import parallel
from listening import Listening

FINITE = [name for name in SMOOTHINGS if name != "infinite"]
NORMALISED = [name for name in FINITE if name != "stupid-backoff"]
DISCOUNTED = ["absolute-discounting", "kneser-ney", "modified-kneser-ney"]

# ids of the words in the texts below
A, B, C, D = 3, 4, 5, 6
EDGES = {
    "one word type": ([[A], [A, A], [A, A, A, A]], 4),
    "one repeated line": ([[A, B, C]] * 5, 6),
    "a single token": ([[A]], 4),
    "empty lines only": ([[], [], []], 3),
    "words never seen": ([[A, B], [B, A]], 12),
    "every word after every word": ([[a, b, a, UNK, b] for a in (A, B, C) for b in (A, B, C, UNK)] * 2, 6),
    "unknown words": ([[A, UNK], [UNK, UNK, B]], 5),
}


def settings_of(smoothing: str, order: int = 0) -> dict[str, Any]:
    """The settings of a method; with an order, those of Jelinek-Mercer whose every weight to stop is 1/2."""
    if smoothing == "jelinek-mercer" and order:
        return {"lambdas": ",".join(str(0.5**n) for n in range(1, order + 1))}
    return {"add-k": {"k": 0.25}, "katz": {"good_turing": 5}, "stupid-backoff": {"alpha": 0.3}}.get(smoothing, {})


def naive_of(ids: np.ndarray, size: int, smoothing: str, order: int, context: Context) -> Naive:
    parameters = {"k": 1.0, "alpha": 0.4, **settings_of(smoothing)}
    return Naive(ids, size, smoothing, order, context, lambdas=[0.5] * order, **parameters)


def rows(contexts: list[Ngram], order: int, size: int) -> np.ndarray:
    """Contexts as an array [B, N-1]; V stands for nothing."""
    return np.asarray([[size] * (order - 1 - len(h)) + list(h) for h in contexts], dtype=np.int64).reshape(
        len(contexts), order - 1
    )


def some_contexts(naive: Naive) -> list[Ngram]:
    """Every context that occurs, and as many that mostly do not."""
    chance = np.random.default_rng(0)
    others = [chance.integers(0, naive.vocab_size, n) for n in range(min(naive.order, 5)) for _ in range(4)]
    strange = [tuple(int(w) if w != BOS else EOS for w in h) for h in others]
    return [*naive.after, *strange]


def predictions(lm: NgramModel, contexts: list[Ngram]) -> np.ndarray:
    """p(w | h) of every word after each context."""
    return np.exp(lm.automaton.next_after(rows(contexts, lm.automaton.trie.order, lm.tokenizer.vocab_size)))


def assert_is(lm: NgramModel, naive: Naive) -> None:
    """Check the model's p(w | h) against the equation, on every context."""
    contexts = some_contexts(naive)
    expected = [[naive.p(w, h) for w in range(naive.vocab_size)] for h in contexts]
    # probabilities are stored in single precision, and Katz divides by what several of them leave of one
    np.testing.assert_allclose(predictions(lm, contexts), expected, rtol=2e-4, atol=1e-6)


def assert_sums_to_one(lm: NgramModel) -> None:
    """Check every context in the trie, also those that no text leads to."""
    trie = lm.automaton.trie
    nodes = np.arange(max(int(trie.first_of_length[-2]), 1))
    with np.errstate(under="ignore"):
        sums = np.exp(lm.automaton.next_log_probs(nodes)).sum(axis=1)
    np.testing.assert_allclose(sums, 1.0, atol=1e-5)


@pytest.mark.parametrize("smoothing", FINITE)
@settings(max_examples=12)
@given(texts(), st.integers(1, 5), contexts)
def test_the_model_is_the_equation(
    smoothing: str, text: tuple[np.ndarray, int], order: int, context: Context
) -> None:
    ids, size = text
    lm = train_on(ids, size, context, smoothing=smoothing, order=order, **settings_of(smoothing, order))
    assert_is(lm, naive_of(ids, size, smoothing, order, context))
    if smoothing in NORMALISED:
        assert_sums_to_one(lm)


@pytest.mark.parametrize(  # all with order 3, and with one of the others
    ("smoothing", "edge", "order"),
    [
        pytest.param(smoothing, edge, order, marks=[pytest.mark.slow] if order == (1, 20)[(i + j) % 2] else [])
        for i, smoothing in enumerate(FINITE)
        for j, edge in enumerate(EDGES)
        for order in (1, 3, 20)
    ],
)
def test_at_the_edges_too(smoothing: str, edge: str, order: int) -> None:
    lines, size = EDGES[edge]
    ids = ids_of(lines)
    for context in ("line", "stream") if order < 20 else ("stream",):
        lm = train_on(ids, size, context, smoothing=smoothing, order=order, **settings_of(smoothing, order))
        assert_is(lm, naive_of(ids, size, smoothing, order, context))
        if smoothing in NORMALISED:
            assert_sums_to_one(lm)


@pytest.fixture(scope="module")
def python_text() -> np.ndarray:
    """Enough text that counts of counts give discounts and Good-Turing ratios."""
    corpus = cr.Corpus.open("builtin:python")
    text = next(iter(corpus.documents())).decode()[:20_000]
    words = {word: i for i, word in enumerate(sorted(set(text)), start=3)}
    return ids_of([[words[c] for c in line] for line in text.splitlines()])


@pytest.mark.parametrize("smoothing", FINITE)
def test_characters_of_real_text(smoothing: str, python_text: np.ndarray) -> None:
    """After a blank, almost every character was seen; after nothing, every one but <unk>."""
    size, order = int(python_text.max()) + 1, 4
    progress = Listening()
    lm = train_on(
        python_text, size, progress=progress, smoothing=smoothing, order=order, **settings_of(smoothing, order)
    )
    naive = naive_of(python_text, size, smoothing, order, "line")
    chosen = list(naive.after)[:: max(1, len(naive.after) // 30)]
    expected = [[naive.p(w, h) for w in range(size)] for h in chosen]
    np.testing.assert_allclose(predictions(lm, chosen), expected, rtol=2e-4, atol=1e-6)
    if smoothing in NORMALISED:
        assert_sums_to_one(lm)
    if smoothing in DISCOUNTED:
        assert len(progress.notes) < order  # most lengths needed no fallback


@pytest.mark.parametrize("smoothing", FINITE)
def test_what_is_stored(smoothing: str) -> None:
    """p(w | h) of each n-gram, and the factor from p(w | h') to p(w | h) for a word that did not follow h."""
    ids, size, order = ids_of([[A, B, C], [A, B, B], [C, A, B], [B]]), 9, 3
    lm = train_on(ids, size, smoothing=smoothing, order=order, **settings_of(smoothing, order))
    naive = naive_of(ids, size, smoothing, order, "line")
    automaton, trie = lm.automaton, lm.automaton.trie
    unseen = 8  # never occurs
    for n in range(1, order + 1):
        for node in range(int(trie.first_of_length[n]), int(trie.first_of_length[n + 1])):
            ngram = tuple(int(automaton.words[code]) for code in trie.ngrams(node, node + 1, n)[0])
            stored = math.exp(automaton.log_prob.at(np.asarray([node - 1]), n - 1)[0])
            assert math.isclose(stored, naive.p(ngram[-1], ngram[:-1]), rel_tol=1e-5, abs_tol=1e-9), ngram
            if n < order and naive.p(unseen, ngram[1:]) > 0:
                factor = math.exp(automaton.log_backoff.at(np.asarray([node - 1]), n - 1)[0])
                expected = naive.p(unseen, ngram) / naive.p(unseen, ngram[1:])
                assert math.isclose(factor, expected, rel_tol=1e-5, abs_tol=1e-9), ngram


@pytest.mark.parametrize("smoothing", NORMALISED)
@settings(max_examples=8)
@given(texts(), st.integers(2, 4))
@example((ids_of([[A, B, C]]), 6), 3)  # every trigram is pruned
def test_pruned_ngrams_give_their_mass_to_the_rest(
    smoothing: str, text: tuple[np.ndarray, int], order: int
) -> None:
    ids, size = text
    thresholds = [0, 0, 1, 2][:order] if order > 2 else [0, 1]
    prune = ",".join(map(str, thresholds))
    lm = train_on(ids, size, smoothing=smoothing, order=order, prune=prune, **settings_of(smoothing, order))
    naive = naive_of(ids, size, smoothing, order, "line")
    naive.thresholds = thresholds
    assert_is(lm, naive)
    assert_sums_to_one(lm)


def test_unknown_words_share_what_the_unigrams_leave() -> None:
    """Witten-Bell: 4 events (a b a </s>), 3 types, V = 5 (a, b, c, </s>, <unk>): each unseen word gets 3/7/5."""
    lm = train_on(ids_of([[A, B, A]]), 6, smoothing="witten-bell", order=1)
    p = predictions(lm, [()])[0]
    np.testing.assert_allclose(p[[UNK, C]], 3 / 7 / 5, rtol=1e-6)
    np.testing.assert_allclose(p[[A, B, EOS]], [(2 + 3 / 5) / 7, (1 + 3 / 5) / 7, (1 + 3 / 5) / 7], rtol=1e-6)
    assert p[BOS] == 0


def test_katz_leaves_something_for_the_unseen_even_where_counts_are_trusted() -> None:
    """a b six times: d_6 = 1 leaves nothing after a, so a counts as seen once more: p(b | a) = 6/7."""
    lm = train_on(ids_of([[A, B]] * 6), 6, smoothing="katz", order=2)
    p = predictions(lm, [(A,)])[0]
    assert math.isclose(p[B], 6 / 7, rel_tol=1e-6)
    assert p[C] > 0
    assert math.isclose(p.sum(), 1.0, abs_tol=1e-6)


# -- stupid backoff, by NLTK and by the paper -----------------------------------------------------------------

# ids of a, b, c, d and z; the other words of NLTK's test are unknown
NLTK_WORDS = {"<s>": BOS, "</s>": EOS, "e": UNK, "a": 3, "b": 4, "c": 5, "d": 6, "z": 7}


@pytest.mark.parametrize(
    ("order", "context", "word", "score"),
    [
        # nltk/test/unit/lm/test_models.py: b was followed by c one time of two, ab always; zbc is new
        (3, "b", "c", 1 / 2),
        (3, "a b", "c", 1.0),
        (3, "z b", "c", 0.4 * 1 / 2),
        # what nltk.lm.StupidBackoff(0.4) of NLTK 3.10.4 answers on the same text, with one <s> that is no unigram
        (3, "b a", "b", 0.2),
        (3, "z z", "a", 0.02666666666666667),
        (3, "<s> z", "b", 0.02666666666666667),
        (3, "<s>", "a", 0.5),
        (3, "z a", "d", 0.2),
        (3, "a e", "</s>", 0.13333333333333333),
        (4, "z z b", "c", 0.08000000000000002),
        (4, "c b a", "b", 0.08000000000000002),
        (4, "z z z", "a", 0.010666666666666668),
        (4, "<s> z", "b", 0.02666666666666667),
        (4, "<s> z a", "d", 0.08000000000000002),
        (4, "</s> a b", "c", 0.4),
        (4, "a b c", "d", 1.0),
    ],
)
@pytest.mark.parametrize("index", ["", "hash"])
def test_stupid_backoff_is_nltks(
    order: int, context: str, word: str, score: float, index: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ids_of([[3, 4, 5, 6], [UNK, UNK, 3, 6, 4, UNK]])
    lm = train_on(ids, 8, smoothing="stupid-backoff", order=order, index=index)
    h, w = tuple(NLTK_WORDS[name] for name in context.split()), NLTK_WORDS[word]
    assert predictions(lm, [h])[0, w] == pytest.approx(score)
    text = np.asarray([*h, w])
    assert math.exp(lm.automaton.score_slowly(text)[-1]) == pytest.approx(score)
    monkeypatch.setattr(parallel, "SLOW_NANOSECONDS", 0)
    assert math.exp(lm.automaton.score(text)[-1]) == pytest.approx(score)


def test_stupid_backoff_charges_for_each_shorter_context() -> None:
    """Brants et al. 2007, equation 5, of order 20: α for each of the words before, <s> among them, seen or not."""
    lm = train_on(ids_of([[A, B], [B]]), 9, smoothing="stupid-backoff", order=20)
    scores = np.exp(lm.score(np.asarray([[C, C, C, B, C]])))[0]
    # 5 events: a b </s> b </s>; c was never seen, and gets α/V of the uniform distribution
    unseen = 0.4 / 8
    expected = [0.4 * unseen, 0.4**2 * unseen, 0.4**3 * unseen, 0.4**4 * 2 / 5, 0.4**5 * unseen]
    np.testing.assert_allclose(scores, expected, rtol=1e-6)


def test_stupid_backoff_needs_no_stored_backoffs() -> None:
    """An earlier version stored a factor of 1 for contexts without a continuation: it does not count any more."""
    lm = train_on(ids_of([[A, B], [B]]), 9, smoothing="stupid-backoff", order=3)
    rows = np.asarray([[A, B, C], [C, A, A], [B, UNK, A]])
    expected = lm.score(rows)
    lm.automaton = replace(lm.automaton, log_backoff=Values.of(lm.automaton.log_backoff.plain * 0))
    np.testing.assert_array_equal(lm.score(rows), expected)


# -- parameters -------------------------------------------------------------------------------------------


def test_discounts_by_hand() -> None:
    n = [0, 10, 4, 2, 1]
    y = 10 / 18
    assert smooth.one_discount(n) == [0, y]
    assert smooth.three_discounts(n) == pytest.approx([0, 1 - 2 * y * 4 / 10, 2 - 3 * y * 2 / 4, 3 - 4 * y / 2])
    # KenLM's own report of 40 lines of our golden text: D1=0.577236 D2=0.734522 D3+=2.27086 needs n_1 to n_4
    assert smooth.three_discounts([0, 10, 4, 2, 0]) == pytest.approx([0, 5 / 9, 2 - 3 * y / 2, 3])


@pytest.mark.parametrize("n", [[5, 0, 3, 2, 1], [5, 3, 0, 2, 1], [5, 3, 2, 0, 1], [5, 10, 1, 20, 40]])
def test_counts_of_counts_that_give_no_three_discounts(n: list[int]) -> None:
    assert smooth.three_discounts(n) is None


@pytest.mark.parametrize("n", [[9, 0, 3], [9, 3, 0], [9, 0, 0]])
def test_counts_of_counts_that_give_no_discount(n: list[int]) -> None:
    assert smooth.one_discount(n) is None


def test_good_turing_by_hand() -> None:
    n = [0, 100, 40, 22, 14, 10, 5]
    m = 6 * 5 / 100
    ratios = smooth.good_turing_ratios(n, 5)
    assert len(ratios) == 7
    assert ratios[0] == 0
    assert ratios[-1] == 1
    assert ratios[1] == pytest.approx((2 * 40 / 100 - m) / (1 - m))
    assert ratios[5] == pytest.approx((6 * 5 / (5 * 10) - m) / (1 - m))


@pytest.mark.parametrize(
    ("n", "expected"),
    [
        # d_1 = (0.8 - m) / (1 - m), m = 4 · 14 / 100 (k falls to 3, since no n-gram occurred five times)
        ([0, 100, 40, 22, 14, 0, 0], [0.0, (0.8 - 0.56) / 0.44, (66 / 80 - 0.56) / 0.44, (56 / 66 - 0.56) / 0.44]),
        # r* > r for r = 2 (3 · 60 / 80) alone: that count is trusted, the others are discounted as always
        ([0, 100, 40, 60, 14, 10, 5], [0.0, (0.8 - 0.3) / 0.7, 1.0, (56 / 180 - 0.3) / 0.7, (50 / 56 - 0.3) / 0.7,
                                       (30 / 50 - 0.3) / 0.7]),
        ([0, 0, 40, 22, 14, 10, 5], [0.0, 0.5, 0.75, 0.9]),  # no n-gram occurred once
        ([0, 20, 15, 12, 11, 10, 5], [0.0, 0.5, 0.75, 0.9]),  # m = 1.5
        ([0, 100, 60, 22, 14, 10, 5], [0.0, 0.5, 0.75, 0.9]),  # r* > r for r = 1
        ([0, 100, 10, 22, 14, 10, 5], [0.0, 0.5, 0.75, 0.9]),  # d_1 < 0
    ],
)  # fmt: skip
def test_counts_out_of_range_of_good_turing_are_trusted(n: list[int], expected: list[float]) -> None:
    """As in SRILM: k is lowered to where n_{k+1} > 0, and d_r is 1 if it is not positive or r* > r; but d_1."""
    assert smooth.good_turing_ratios(n, 5) == pytest.approx([*expected, 1.0])


def test_counts_of_counts_are_counted() -> None:
    count = np.asarray([0, 1, 1, 2, 5, 6, 7, 300], dtype=np.uint16)
    assert smooth.counts_of_counts(count, 6) == [1, 2, 1, 0, 0, 1, 1]


@pytest.mark.parametrize(
    ("smoothing", "said", "metric", "value"),
    [
        (
            "modified-kneser-ney",
            "give no valid discount; falling back to 0.5, 1, 1.5",
            "discounts",
            [0.5, 1.0, 1.5],
        ),
        ("kneser-ney", "give no valid discount; falling back to 0.75", "discounts", [0.75]),
        ("absolute-discounting", "give no valid discount; falling back to 0.75", "discounts", [0.75]),
        (
            "katz",
            "give no valid Good-Turing ratio; falling back to 0.5, 0.75, 0.9, 1",
            "good_turing",
            [0.5, 0.75, 0.9, 1.0],
        ),
    ],
)
def test_fallbacks_are_noted_and_exact(smoothing: str, said: str, metric: str, value: list[float]) -> None:
    progress = Listening()
    lm = train_on(ids_of([[A, B]]), 6, smoothing=smoothing, order=2, progress=progress)
    usual = "as is usual for short or repetitive text"
    assert progress.notes == [f"bigram, {smoothing}: the counts of 1- and 2-grams {said}, {usual}"]
    assert lm.metrics[metric] == [value, value]


def test_many_lengths_are_named_by_the_first_and_the_last() -> None:
    assert [_lengths(lengths) for lengths in ([2], [1, 3], [1, 2, 4], [2, 3, 4])] == [
        "2-grams",
        "1- and 3-grams",
        "1-, 2- and 4-grams",
        "2- to 4-grams",
    ]


def test_discounts_that_the_counts_give_are_reported() -> None:
    """As naive.py computes them; none is the fallback of bigrams."""
    ids = ids_of([[A, B], [B, C, B], [A, B, C]])
    naive = Naive(ids, 6, "absolute-discounting", 2)
    lm = train_on(ids, 6, smoothing="absolute-discounting", order=2)
    expected = [[round(d, 6) for d in level[1:]] for level in naive.level_parameters]
    assert lm.metrics["discounts"] == expected
    assert expected[1] != [0.75]


@pytest.mark.parametrize("smoothing", FINITE)
def test_torch_smooths_the_same(smoothing: str) -> None:
    """The code for GPUs, run on a CPU: counts and smoothing through torch's tensors."""
    torch = pytest.importorskip("torch")
    from chainrule.ngram.estimate.levels import count_by_unique
    from chainrule.ngram.estimate.methods import choose_method
    from chainrule.ngram.estimate.passes import logarithms, smooth_levels
    from chainrule.ngram.settings import NgramSettings
    from chainrule.system.progress import SILENT

    ids = ids_of([[A, B, C], [A, B, B], [], [C, A, B, D], [B]])
    chosen = NgramSettings(order=3, smoothing=smoothing, **settings_of(smoothing, 3))
    smoothed = []
    for text in (ids, torch.as_tensor(ids.astype(np.int64))):
        how = choose_method(chosen, count_by_unique(text, 3, 8, BOS, EOS, "line"), None, SILENT)
        smoothed.append([np.asarray(logarithms(values)) for values in smooth_levels(how.counts, how.method)])
    for ours, theirs in zip(*smoothed, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)
