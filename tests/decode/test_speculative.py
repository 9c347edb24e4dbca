"""Tests of speculative decoding: drafts change neither the distribution of text nor greedy text."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import to_numpy
from chainrule.contract import chain
from chainrule.contract.lm import LanguageModel
from chainrule.decode.drafts import ByCopying, Draft, DraftTally
from chainrule.decode.generate import generate_many, stream_many
from chainrule.decode.randomness import Uniforms
from chainrule.decode.speculative import speculate, speculated
from chainrule.decode.strategies import Forbid, Sample, Strategy, normalised
from chainrule.errors import DecodingError

CORPUS = ["a b a c a b a", "b a b b a", "c a b c a b c", "a a b", "c c b a"]
TINY = {"layers": 2, "width": 16, "heads": 2, "window": 24, "batch": 64, "precision": "float32", "compile": "no"}
SETTINGS: dict[str, dict[str, Any]] = {
    "bigram": {"order": 2, "smoothing": "laplace"},
    "unigram": {"order": 1, "smoothing": "laplace"},
    "ngram": {"order": 3},
    "anygram": {},
    "transformer": {**TINY, "steps": 12},
    "lstm": {"embedding": 8, "hidden": 12, "layers": 1, "steps": 6, "batch": 64, "compile": "no"},
    "feedforward": {"embedding": 8, "hidden": 12, "steps": 6, "batch": 64, "compile": "no"},
}


@cache
def model(name: str, context: str = "line") -> LanguageModel:
    kind = "ngram" if name in ("bigram", "unigram") else name
    return cr.train(kind, CORPUS, tokenizer="word", context=context, **SETTINGS[name])


def law(lm: LanguageModel, strategy: Strategy, most: int) -> dict[tuple[int, ...], float]:
    """Return p of every text of at most `most` tokens under a strategy, computed token by token."""

    def grow(ids: tuple[int, ...], p: float) -> dict[tuple[int, ...], float]:
        if len(ids) == most or (ids and ids[-1] == lm.tokenizer.eos):
            return {ids: p}
        log_probs = to_numpy(lm.next_log_probs(chain.after(lm, ids))).astype(np.float64)
        after = np.exp(normalised(strategy.apply(log_probs, lambda: np.asarray([ids], dtype=np.int64))))[0]
        found: dict[tuple[int, ...], float] = {}
        for token in np.flatnonzero(after):
            found |= grow((*ids, int(token)), p * float(after[token]))
        return found

    return grow((), 1.0)


class Grid(Uniforms):
    """A source of random numbers from a fixed list, so that a test can take every branch of a small program."""

    def __init__(self, numbers: tuple[float, ...]) -> None:
        self.numbers, self.used = numbers, 0

    def draw(self, rows: Any, steps: int) -> Any:
        found = self.numbers[self.used : self.used + steps]
        self.used += steps
        return np.asarray([*found, *[0.5] * (steps - len(found))])[None]


def write(lm: LanguageModel, draft: Draft, strategy: Strategy, uniforms: Uniforms, most: int) -> tuple[int, ...]:
    steps = speculate(lm, lm.start(1), draft, strategy, uniforms, 0, max_tokens=most, end=lm.tokenizer.eos, read=[])
    return speculated(steps).ids


@pytest.mark.parametrize(
    ("sampled", "strategy"),
    [
        (False, Sample()),
        (True, cr.Temperature(0.7) | cr.TopK(3)),
        (True, cr.TopP(0.8)),
        pytest.param(True, Sample(), marks=pytest.mark.slow),
        pytest.param(False, cr.Temperature(0.7) | cr.TopK(3), marks=pytest.mark.slow),
        pytest.param(False, cr.TopP(0.8), marks=pytest.mark.slow),
    ],
)
def test_distribution_is_that_of_the_model(sampled: bool, strategy: Strategy) -> None:
    """A chi-square test of 1,000 texts of at most three tokens, by a draft that is quite another model."""
    lm, other = model("bigram"), model("unigram")
    expected = law(lm, strategy, 3)
    assert math.isclose(sum(expected.values()), 1.0)
    draft, count = Draft((other,), tokens=2, sampled=sampled), 1000
    uniforms = Uniforms(5, [[]] * count)
    found = Counter()
    for row in range(count):
        steps = speculate(
            lm, lm.start(1), draft, strategy, uniforms, row, max_tokens=3, end=lm.tokenizer.eos, read=[]
        )
        found[speculated(steps).ids] += 1
    assert not found.keys() - expected.keys()
    # texts that are expected fewer than five times count as one
    often = [ids for ids, p in expected.items() if p * count >= 5]
    pairs = [(found[ids], expected[ids] * count) for ids in often]
    pairs.append((count - sum(n for n, _ in pairs), count - sum(e for _, e in pairs)))
    chi2 = sum((n - e) ** 2 / e for n, e in pairs if e > 0)
    freedom = len(pairs) - 1
    # of χ² with f degrees of freedom, mean f and variance 2 f
    assert chi2 < freedom + 4 * math.sqrt(2 * freedom)


def test_branches_sum_to_the_distribution_of_the_model() -> None:
    """The distribution of the first two tokens, summed over drafts, acceptance and second draws."""
    lm, other = model("bigram"), model("unigram")
    expected = law(lm, Sample(), 2)
    first = law(lm, Sample(), 1)
    found: Counter[tuple[int, ...]] = Counter()
    for ids, p_first in first.items():
        if ids[-1] == lm.tokenizer.eos:
            found[ids] += p_first
            continue
        p, q = (np.exp(to_numpy(m.next_log_probs(chain.after(m, ids))))[0] for m in (lm, other))
        left = np.maximum(p - q, 0)
        for x in np.flatnonzero(q):
            accepts = min(1.0, p[x] / q[x])
            found[*ids, int(x)] += p_first * q[x] * accepts
            for y in np.flatnonzero(left):
                found[*ids, int(y)] += p_first * q[x] * (1 - accepts) * left[y] / left.sum()
    assert found.keys() >= expected.keys()
    for ids, p_text in expected.items():
        assert math.isclose(found[ids], p_text, rel_tol=1e-6)


def test_acceptance_follows_the_equation_number_by_number() -> None:
    """On a grid of random numbers, the tokens are those of the rule, computed by hand."""
    lm, other = model("bigram"), model("unigram")
    draft, values = Draft((other,), tokens=1, sampled=True), (0.05, 0.35, 0.65, 0.95)

    def pick(p: np.ndarray, u: float) -> int:
        return int(np.searchsorted(np.cumsum(p) / p.sum(), u, side="right"))

    for numbers in itertools.product(values, repeat=4):
        by_code = write(lm, draft, Sample(), Grid(numbers), 3)
        p = np.exp(to_numpy(lm.next_log_probs(lm.start(1))))[0].astype(np.float64)
        text = [pick(p, numbers[0])]
        if text[-1] != lm.tokenizer.eos:
            p, q = (np.exp(to_numpy(m.next_log_probs(chain.after(m, text))))[0] for m in (lm, other))
            x = pick(q, numbers[1])
            if numbers[2] < p[x] / q[x]:
                text.append(x)
                if x != lm.tokenizer.eos:
                    p = np.exp(to_numpy(lm.next_log_probs(chain.after(lm, text))))[0]
                    text.append(pick(p, numbers[3]))
            else:
                text.append(pick(np.maximum(p - q, 0), numbers[3]))
        assert by_code[: len(text)] == tuple(text)


PAIRS = [("transformer", "ngram"), ("transformer", "anygram"), ("transformer", "lstm"), ("lstm", "bigram")]
PAIRS += [("ngram", "anygram"), ("anygram", "transformer"), ("feedforward", "unigram")]


@pytest.mark.parametrize(
    ("target", "draft", "context"),
    [
        pytest.param(*pair, context, marks=[] if (i + j) % 2 else [pytest.mark.slow])
        for i, pair in enumerate(PAIRS)
        for j, context in enumerate(["line", "stream"])
    ],
)
def test_greedy_text_is_the_same_text(target: str, draft: str, context: str) -> None:
    """Also beyond the window of 24 tokens, which slides."""
    most = 40 if target == "transformer" else 15
    lm, other = model(target, context), model(draft, context)
    for prompt in ("", "a b"):
        (plain,) = generate_many(lm, [prompt], cr.Greedy(), max_tokens=most)
        for source in (other, "context", ("context", other)):
            (drafted,) = generate_many(lm, [prompt], cr.Greedy(), max_tokens=most, draft=source)
            assert drafted.text == plain.text
            assert drafted.log_prob == pytest.approx(plain.log_prob, abs=1e-4)
            assert drafted.finished == plain.finished
            assert drafted.steps is not None and drafted.steps <= max(drafted.tokens, 1)


@pytest.mark.parametrize("context", ["line", "stream"])
@pytest.mark.parametrize(
    "strategy", [None, cr.Temperature(0.7) | cr.TopK(3), cr.TopP(0.9), cr.RepetitionPenalty(1.5)]
)
def test_drafts_do_not_change_the_text_of_a_seed(strategy: Strategy | None, context: str) -> None:
    lm, other = model("transformer", context), model("anygram", context)
    for seed in range(2):
        plain = generate_many(lm, ["a", "c b"], strategy, n=1, max_tokens=30, seed=seed)
        drafted = generate_many(lm, ["a", "c b"], strategy, n=1, max_tokens=30, seed=seed, draft=other)
        assert [t.text for t in drafted] == [t.text for t in plain]


def test_a_model_that_drafts_for_itself_is_always_right() -> None:
    lm = model("transformer", "stream")
    (found,) = generate_many(lm, ["a"], cr.Greedy(), max_tokens=19, draft=Draft((lm,), tokens=5))
    assert found.steps == 4  # one token, then three times five and one
    assert found.drafted == 15
    (drawn,) = generate_many(lm, ["a"], max_tokens=19, draft=Draft((lm,), tokens=5, sampled=True))
    assert drawn.steps == 4


def test_streams_join_to_the_same_text() -> None:
    lm, other = model("transformer", "stream"), model("ngram", "stream")
    how: dict[str, Any] = {"n": 2, "max_tokens": 25, "seed": 3, "draft": other}
    counted, streamed = DraftTally(), DraftTally()
    whole = generate_many(lm, ["a b"], cr.TopP(0.9), **how, tally=counted)
    pieces = ["", ""]
    for number, piece in stream_many(lm, "a b", cr.TopP(0.9), **how, tally=streamed):
        pieces[number] += piece
    assert pieces == [text.continuation for text in whole]
    assert streamed == counted
    assert counted.steps == sum(text.steps or 0 for text in whole)
    assert counted.drafted == sum(text.drafted for text in whole) >= counted.accepted >= 0
    assert counted.tokens == counted.accepted + counted.steps <= sum(text.tokens for text in whole)


def test_a_text_that_ends_at_once_and_one_of_no_tokens() -> None:
    lm = model("bigram")
    assert generate_many(lm, ["a"], max_tokens=0, draft=model("unigram"))[0].tokens == 0
    forbidding = Forbid(tuple(range(lm.tokenizer.vocab_size)))  # nothing can follow
    for sampled in (False, True):
        draft = Draft((model("unigram"),), sampled=sampled)
        (found,) = generate_many(lm, ["a"], forbidding, draft=draft)
        assert found.tokens == 0 and found.finished


def test_copying_takes_the_longest_match_and_runs_on_into_itself() -> None:
    copying = ByCopying()
    assert copying.guess([1, 2, 3, 9, 2, 3, 7], 3) == []
    assert copying.guess([1, 2, 3], 4) == [9, 2, 3, 7]  # after 1 2 3, and not after 2 3 alone
    assert ByCopying().guess([5, 6, 5, 6], 5) == [5, 6, 5, 6, 5]


@pytest.mark.parametrize(
    ("draft", "message"),
    [
        ("nothing", "a draft is a language model or the word context, not 'nothing'"),
        (3, "not 3"),
        ((), "needs a model"),
    ],
)
def test_a_wrong_type_of_draft_is_refused(draft: Any, message: str) -> None:
    with pytest.raises(DecodingError, match=message):
        cr.generate(model("bigram"), draft=draft)


def test_another_vocabulary_is_refused_in_one_line() -> None:
    other = cr.train("ngram", ["x y z"], order=2, tokenizer="word")
    with pytest.raises(
        DecodingError, match="the vocabulary of the model: the model has 6 word tokens, the draft 6"
    ):
        cr.generate(model("bigram"), draft=other)


def test_a_beam_search_takes_no_drafts() -> None:
    with pytest.raises(DecodingError, match="not with a beam search"):
        cr.generate(model("bigram"), "a", cr.Beam(2), draft=model("unigram"))


def test_numbers_of_drafted_tokens_are_checked() -> None:
    for tokens in (0, 65):
        with pytest.raises(DecodingError, match="from 1 to 64"):
            Draft((model("bigram"),), tokens=tokens)
    with pytest.raises(DecodingError, match="one model"):
        Draft(("context",), sampled=True)
