"""Laws of fast paths: each is equal to its plain way.

A model that does not declare a fast path (`capabilities.Offers`) keeps its law, which then returns "not offered". A
model that declares one must answer: a fast path that only ever returns None breaks its law.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import numpy as np

import chainrule as cr
from chainrule.arrays import pad, to_numpy
from chainrule.contract.capabilities import DraftRules, FastPaths, Offers
from chainrule.contract.lm import LanguageModel, draft, offered, prepare, read_ahead, score_choices, score_sequences
from chainrule.decode.beam import beam_search
from chainrule.decode.sample import Choice
from chainrule.testing.register import NOT_OFFERED, Law, assert_close, law, next_log_probs, prefixes

_MOST_CALLS = 10_000  # a model may load compiled code only after it has done much work

Answer = TypeVar("Answer")


def insist(call: Callable[[], Answer | None]) -> Answer:
    """Return the result of a fast path, which may be None until the model has done much work."""
    for _ in range(_MOST_CALLS):
        if (found := call()) is not None:
            return found
    raise AssertionError("a fast path that the model declares never answered")


def law_of(name: str) -> Callable[[Callable[[LanguageModel, Any], None]], Law]:
    """Enter the law of a fast path, a function of the model and the path; a model without the path keeps it."""

    def enter(function: Callable[[LanguageModel, Any], None]) -> Law:
        @wraps(function)
        def check(lm: LanguageModel) -> str | None:
            if (fast := offered(lm, name)) is None:
                return NOT_OFFERED
            function(lm, fast)
            return None

        return law(check)

    return enter


@law
def what_is_declared_is_there(lm: LanguageModel) -> None:
    """Every method that is declared is one that `Offers` describes, and the model has it; costs are positive."""
    for name in lm.capabilities.offers:
        assert hasattr(Offers, name), f"{name} is no capability"
        assert callable(getattr(lm, name, None)), f"{name} is declared and not there"
    if not lm.capabilities.offers:  # a model that declares some may leave out others, as on another device
        hidden = [name for name in vars(FastPaths) if not name.startswith("_") and hasattr(lm, name)]
        assert not hidden, f"{hidden} are there and not declared: nobody calls them"
    costs = lm.capabilities.costs
    assert min(costs.bulk, costs.token, costs.distribution) > 0


@law
def equal_keys_predict_the_same(lm: LanguageModel) -> str | None:
    """Rows of equal keys cannot be told apart, now or after one more token."""
    rows = prefixes(lm)
    rows += [[*row, *rows[3]] for row in rows] + [[*row, *rows[2]] for row in rows]
    state = lm.extend(lm.start(len(rows)), pad(rows))
    keys = state.keys()
    if keys is None:
        return NOT_OFFERED
    assert len(keys) == len(rows)
    assert state.select(np.asarray([2, 1])).keys() == [keys[2], keys[1]]
    assert state.select(np.asarray([0])).join(state.select(np.asarray([3]))).keys() == [keys[0], keys[3]]
    now = to_numpy(lm.next_log_probs(state))
    later = to_numpy(lm.next_log_probs(lm.extend(state, np.full((len(rows), 1), rows[1][0]))))
    first = {key: place for place, key in reversed([*enumerate(keys)])}
    for place, key in enumerate(keys):
        assert_close(now[place], now[first[key]])
        assert_close(later[place], later[first[key]])
    return None


@law
def a_choice_of_tokens_is_scored_as_all_are(lm: LanguageModel) -> None:
    """`score_choices` gives what `next_log_probs` gives, whichever of its two ways costs less."""
    rows = prefixes(lm)[:4]
    state = lm.extend(lm.start(len(rows)), pad(rows))
    every = to_numpy(lm.next_log_probs(state))
    tokens = [i for i in range(lm.tokenizer.vocab_size) if i != lm.tokenizer.bos]
    for chosen in (tokens[:1], tokens):
        rows_R, ids_R = np.repeat(np.arange(len(rows)), len(chosen)), np.tile(chosen, len(rows))
        assert_close(score_choices(lm, state, rows_R, ids_R), every[rows_R, ids_R])


@law_of("score_text")
def scoring_text_is_scoring_its_tokens(lm: LanguageModel, fast: Any) -> None:
    words = [lm.tokenizer.token(i) for i in prefixes(lm)[3]]
    lines = [" ".join(words), words[0], "", " ".join(reversed(words))]
    # long enough to be cut into parts for the cores
    block = ("\n".join(lines * (1 + (1 << 19) // len("\n".join(lines)))) + "\n").encode()
    ids = lm.tokenizer.encode_lines(block)
    assert_close(insist(lambda: fast(block)), score_sequences(lm, ids, *lm.bounds(ids)))


@law_of("score_sequences")
def scoring_sequences_is_scoring_each(lm: LanguageModel, fast: Any) -> None:
    rows = [row for row in prefixes(lm) if row]
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    ids = np.concatenate([np.asarray(row) for row in rows])
    expected = np.concatenate([to_numpy(lm.score(pad([row])))[0] for row in rows])
    assert_close(insist(lambda: fast(ids, starts, ends)), expected)


@law_of("read")
def reading_is_scoring_and_extending(lm: LanguageModel, fast: Any) -> None:
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad([rows[2]] * len(rows)))
    scores, after = insist(lambda: fast(state, pad(rows)))
    assert_close(to_numpy(scores), to_numpy(lm.score(pad(rows), state)))
    expected = lm.next_log_probs(lm.extend(state, pad(rows)))
    assert_close(to_numpy(lm.next_log_probs(after)), to_numpy(expected))


@law
def reading_ahead_is_extending(lm: LanguageModel) -> None:
    """Cut after each of the tokens, in any order, and the states stay values."""
    row = prefixes(lm)[3]
    state = lm.extend(lm.start(1), pad([row[:1]]))
    expected = [to_numpy(lm.next_log_probs(lm.extend(state, pad([row[:n]])))) for n in range(1, len(row) + 1)]
    for kept in range(1, len(row) + 1):
        found, after = read_ahead(lm, state, pad([row]))
        assert_close(to_numpy(found), np.stack(expected, axis=1))
        for n in (kept, len(row)):
            there = after(n)
            assert_close(to_numpy(lm.next_log_probs(there)), expected[n - 1])
            shorter = lm.extend(there, pad([row]))
            again = lm.extend(state, pad([[*row[:n], *row]]))
            assert_close(to_numpy(lm.next_log_probs(shorter)), to_numpy(lm.next_log_probs(again)))


@law
def drafts_are_tokens_of_the_vocabulary(lm: LanguageModel) -> None:
    memory, ids = None, np.asarray(prefixes(lm)[3], dtype=np.int64)
    for count in (1, 3):
        memory, guess = draft(lm, memory, ids, count)
        assert guess.shape == (count,) and lm.tokenizer.bos not in guess
        assert (guess >= 0).all() and (guess < lm.tokenizer.vocab_size).all()
    for known in insist(partial(table, 2)) if (table := offered(lm, "best_tokens")) else []:
        assert len(known.contexts_CN) == len(known.tokens_C) and lm.tokenizer.bos not in known.tokens_C
        assert (known.tokens_C >= 0).all() and (known.tokens_C < lm.tokenizer.vocab_size).all()


@law_of("next_logits")
def logits_make_probabilities(lm: LanguageModel, fast: Any) -> None:
    """ln p(x) = z_x - ln Σ e^z."""
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    z_BV = to_numpy(fast(state)).astype(np.float64)
    totals_B1 = np.log(np.exp(z_BV - z_BV.max(axis=1, keepdims=True)).sum(axis=1, keepdims=True))
    found_BV = z_BV - z_BV.max(axis=1, keepdims=True) - totals_B1
    assert_close(found_BV, to_numpy(lm.next_log_probs(state)))


@law_of("predictions")
def predictions_are_steps(lm: LanguageModel, fast: Any) -> None:
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad([rows[2]] * len(rows)))
    blocks = [to_numpy(block) for block in insist(lambda: fast(state, pad(rows)))]
    together = np.concatenate(blocks, axis=1)
    assert together.shape == (*pad(rows).shape, lm.tokenizer.vocab_size)
    for i, row in enumerate(rows):
        for t in range(len(row)):
            expected = next_log_probs(lm, [*rows[2], *row[:t]])
            assert_close(together[i, t], expected)


@law_of("next_probs")
def next_probabilities_are_powers_of_e(lm: LanguageModel, fast: Any) -> None:
    prepare(lm)
    state = lm.extend(lm.start(len(prefixes(lm))), pad(prefixes(lm)))
    expected = np.exp(to_numpy(lm.next_log_probs(state)).astype(np.float64))
    np.testing.assert_allclose(insist(lambda: fast(state)), expected, rtol=1e-5, atol=1e-12)


@law_of("search_steps")
def following_a_search_is_ranking_and_extending(lm: LanguageModel, fast: Any) -> None:
    _searching_is_ranking_and_extending(lm)


@law_of("search")
def searching_is_ranking_and_extending(lm: LanguageModel, fast: Any) -> None:
    _searching_is_ranking_and_extending(lm)


def _searching_is_ranking_and_extending(lm: LanguageModel) -> None:
    rows, end, never = prefixes(lm)[:4], lm.tokenizer.eos, () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    for beam, best in (
        (cr.Beam(1, 0.0, "best"), 2),
        (cr.Beam(3), 2),
        (cr.Beam(3), 1),
        (cr.Beam(3, 0.5, "best"), 2),
    ):
        search = partial(beam_search, lm, state, beam, max_tokens=6, end=end, forbid=never, best=best)
        for found, expected in zip(insist(partial(search, way="fast")), search(way="plain"), strict=True):
            assert [(one.ids, one.finished) for one in found] == [(one.ids, one.finished) for one in expected]
            scores = [[one.log_prob for one in every] for every in (found, expected)]
            assert_close(scores[0], scores[1], 1e-4)


@law_of("write")
def writing_is_choosing_and_extending(lm: LanguageModel, fast: Any) -> None:
    rows = prefixes(lm)[:4]
    uniforms = np.random.default_rng(4).random((len(rows), 3))
    strategies: tuple[Any, ...] = (
        cr.Greedy(),
        cr.Temperature(0.8) | cr.TopK(3),
        cr.Sample(),
        cr.RepetitionPenalty(1.5),
    )
    for strategy in strategies:
        choose, state = Choice(strategy, lm.tokenizer.eos), lm.extend(lm.start(len(rows)), pad(rows))
        call = partial(fast, state, choose, uniforms, pad(rows) if strategy.looks_back else None)
        # a choice that looks back may be one that the model leaves to the plain way
        found = call() if strategy.looks_back else insist(call)
        if found is None:
            continue
        after, tokens, scores = found
        active, read = np.ones(len(rows), dtype=bool), pad(rows)
        for t in range(uniforms.shape[1]):
            log_probs = to_numpy(lm.next_log_probs(state))
            expected, expected_scores, active = choose(log_probs, uniforms[:, t], active, partial(np.copy, read))
            read = np.concatenate([read, expected[:, None]], axis=1)
            np.testing.assert_array_equal(to_numpy(tokens)[:, t], expected)
            assert_close(to_numpy(scores)[:, t], expected_scores, 1e-4)
            state = lm.extend(state, expected[:, None])
        assert_close(to_numpy(lm.next_log_probs(after)), to_numpy(lm.next_log_probs(state)), 1e-4)


@law_of("write_drafted")
def writing_with_drafts_is_writing(lm: LanguageModel, fast: Any) -> None:
    """Tokens that are drafted, checked and kept are those that are chosen one by one."""
    ids = prefixes(lm)[2]
    choose, count = Choice(cr.Greedy(), lm.tokenizer.eos), 2
    state = lm.extend(lm.start(1), pad([ids[:-1]]))
    uniforms = np.random.default_rng(3).random(8)
    written = insist(lambda: fast(state, DraftRules((None,), count, choose), ids[-1], uniforms, 2))
    state = lm.extend(state, pad([ids[-1:]]))
    active = np.ones(1, dtype=bool)
    for token, log_prob, uniform in zip(written.tokens, written.log_probs, uniforms, strict=False):
        expected, score, active = choose(to_numpy(lm.next_log_probs(state)), np.asarray([uniform]), active)
        assert token == expected[0]
        assert_close(log_prob, score[0], 1e-4)
        if not active[0]:
            break
        state = lm.extend(state, expected[:, None])
