"""The laws of the contract: what holds for every language model there is.

Each law is a function that takes a model with a small vocabulary and raises AssertionError if the model breaks it.
A law of a fast path holds it equal to the plain way; a model that does not offer the fast path keeps it trivially.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule import chain
from chainrule.arrays import PAD, pad, to_numpy
from chainrule.decode.beam import beam_search
from chainrule.decode.sample import Choice, sample_after
from chainrule.fast_paths import (
    GivesNextProbs,
    KnowsLikeliest,
    Predicts,
    Reads,
    ScoresSequences,
    ScoresText,
    Searches,
    Writes,
)
from chainrule.lm import LanguageModel, draft, read_ahead, score_sequences

Law = Callable[[LanguageModel], None]
LAWS: dict[str, Law] = {}

LAWS_OF_PROBABILITIES = ("sums_to_one", "samples_follow_the_distribution")
"""Laws that do not hold for a model that is not `normalised`: it returns scores instead of probabilities."""

CLOSE: Any = {"rtol": 1e-5, "atol": 1e-5}


def law(function: Law) -> Law:
    LAWS[function.__name__] = function
    return function


def laws_for(lm: LanguageModel) -> list[str]:
    """The names of the laws that a model should keep: all, or all but those of probabilities if it gives scores."""
    return [name for name in LAWS if lm.normalised or name not in LAWS_OF_PROBABILITIES]


def check_laws(lm: LanguageModel) -> None:
    """Check every law that the model should keep; the first that it breaks is named in the error."""
    for name in laws_for(lm):
        try:
            LAWS[name](lm)
        except AssertionError as error:
            raise AssertionError(f"{lm!r} breaks the law {name}: {error}") from error


def prefixes(lm: LanguageModel) -> list[list[int]]:
    """Prefixes of several lengths: likely ones, unlikely ones, impossible ones, with <unk> and </s> inside."""
    tokenizer = lm.tokenizer
    words = [i for i in range(tokenizer.vocab_size) if i not in (tokenizer.bos, tokenizer.eos)]
    a, b, c = words[0], words[-1], words[len(words) // 2]
    likely: list[int] = []
    for _ in range(3):
        log_probs = next_log_probs(lm, likely).copy()
        log_probs[tokenizer.eos] = -math.inf
        likely.append(int(log_probs.argmax()))
    return [
        [],
        likely[:1],
        likely[:2],
        likely,
        [b, c],
        [a, b, c, a, b, c, a],
        [b, tokenizer.eos],
        [tokenizer.eos, a],
    ]


def next_log_probs(lm: LanguageModel, prefix: list[int]) -> np.ndarray:
    """ln p of every token after a prefix, read token by token."""
    found: np.ndarray = to_numpy(lm.next_log_probs(chain.after(lm, prefix)))[0]
    return found


@law
def sums_to_one(lm: LanguageModel) -> None:
    for prefix in prefixes(lm):
        log_probs = next_log_probs(lm, prefix)
        assert log_probs.shape == (lm.tokenizer.vocab_size,)
        assert math.isclose(np.exp(log_probs).sum(), 1.0, abs_tol=1e-5), prefix
        assert log_probs[lm.tokenizer.bos] == -math.inf, "<s> is never predicted"
    chance = np.random.default_rng(12)
    words = [i for i in range(lm.tokenizer.vocab_size) if i != lm.tokenizer.bos]
    rows = [chance.choice(words, chance.integers(1, 8)).tolist() for _ in range(32)]
    sums = np.exp(to_numpy(lm.next_log_probs(lm.extend(lm.start(len(rows)), pad(rows))))).sum(axis=1)
    for prefix, total in zip(rows, sums, strict=True):
        assert math.isclose(total, 1.0, abs_tol=1e-5), prefix


@law
def batch_score_is_step_by_step(lm: LanguageModel) -> None:
    ids_BT = pad(prefixes(lm))
    np.testing.assert_allclose(to_numpy(lm.score(ids_BT)), chain.score(lm, ids_BT), **CLOSE)


@law
def padding_changes_nothing(lm: LanguageModel) -> None:
    rows = prefixes(lm)
    wider = np.pad(pad(rows), ((0, 0), (0, 3)), constant_values=PAD)
    together = to_numpy(lm.score(wider))
    state = lm.extend(lm.start(len(rows)), wider)
    after = to_numpy(lm.next_log_probs(state))
    for i, row in enumerate(rows):
        assert (together[i, len(row) :] == 0).all(), "0 on padding"
        alone = to_numpy(lm.score(pad([row])))[0]
        np.testing.assert_allclose(together[i, : len(row)], alone, **CLOSE)
        np.testing.assert_allclose(after[i], next_log_probs(lm, row), **CLOSE)


@law
def prefill_is_steps(lm: LanguageModel) -> None:
    for prefix in prefixes(lm):
        at_once = lm.extend(lm.start(1), pad([prefix]))
        np.testing.assert_allclose(to_numpy(lm.next_log_probs(at_once))[0], next_log_probs(lm, prefix), **CLOSE)


@law
def rows_of_ids_are_rows_of_the_state(lm: LanguageModel) -> None:
    _, first, second, *_ = prefixes(lm)
    state, rows = lm.extend(lm.start(1), pad([first])), pad([second, second, second])
    for name, call in (("extend", lm.extend), ("score", lambda state, ids: lm.score(ids, state))):
        try:
            call(state, rows)
        except ValueError:
            continue
        raise AssertionError(f"{name} takes three rows of ids for a state of one row")


@law
def state_is_a_value(lm: LanguageModel) -> None:
    _, first, second, third, *_ = prefixes(lm)
    state = lm.extend(lm.start(1), pad([first]))
    before = to_numpy(lm.next_log_probs(state)).copy()
    branches = [lm.extend(state, pad([branch])) for branch in (second, third, second)]
    lm.score(pad([third]), state)
    np.testing.assert_array_equal(to_numpy(lm.next_log_probs(state)), before)
    for branch, extended in zip((second, third, second), branches, strict=True):
        expected = next_log_probs(lm, [*first, *branch])
        np.testing.assert_allclose(to_numpy(lm.next_log_probs(extended))[0], expected, **CLOSE)


@law
def join_undoes_select(lm: LanguageModel) -> None:
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    expected = to_numpy(lm.next_log_probs(state))
    for cut in (1, 3, len(rows)):
        every = np.arange(len(rows))
        joined = state.select(every[:cut]).join(state.select(every[cut:]))
        assert len(joined) == len(state) == len(rows)
        np.testing.assert_allclose(to_numpy(lm.next_log_probs(joined)), expected, **CLOSE)
    # states that were read apart, of different lengths, go on together as they would alone
    first, second = rows[5], rows[1]
    apart = [lm.extend(lm.start(1), pad([row])) for row in (first, second)]
    joined = lm.extend(apart[0].join(apart[1]), pad([second, first]))
    expected = np.stack([next_log_probs(lm, [*first, *second]), next_log_probs(lm, [*second, *first])])
    np.testing.assert_allclose(to_numpy(lm.next_log_probs(joined)), expected, **CLOSE)


@law
def select_permutes(lm: LanguageModel) -> None:
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    every = to_numpy(lm.next_log_probs(state))
    for choice in ([7, 6, 5, 4, 3, 2, 1, 0], [2, 2, 2, 4], [5]):
        selected = state.select(np.asarray(choice))
        np.testing.assert_allclose(to_numpy(lm.next_log_probs(selected)), every[choice], **CLOSE)
        # and each row goes on from where it is
        step = np.full((len(choice), 1), rows[1][0])
        expected = [next_log_probs(lm, [*rows[i], rows[1][0]]) for i in choice]
        np.testing.assert_allclose(to_numpy(lm.next_log_probs(lm.extend(selected, step))), expected, **CLOSE)


@law
def score_goes_on_from_a_state(lm: LanguageModel) -> None:
    every = prefixes(lm)
    rows = every[1:4]
    for prefix in every:
        state = lm.extend(lm.start(len(rows)), pad([prefix] * len(rows)))
        whole = to_numpy(lm.score(pad([[*prefix, *row] for row in rows])))[:, len(prefix) :]
        np.testing.assert_allclose(to_numpy(lm.score(pad(rows), state)), whole, **CLOSE)


@law
def exhaustive_beam_is_exact(lm: LanguageModel) -> None:
    end, longest = lm.tokenizer.eos, 3
    every = list(chain.every_sequence(lm, longest))
    for power in (0.0, 1.0):
        beam = cr.Beam(width=len(every), length_power=power)
        found = beam_search(lm, lm.start(1), beam, max_tokens=longest, end=end, best=5)[0]
        ranks = sorted((log_prob / len(ids) ** power for ids, log_prob in every), reverse=True)
        assert len(found) == min(5, len(every))
        got = [continuation.log_prob / len(continuation.ids) ** power for continuation in found]
        np.testing.assert_allclose(got, ranks[: len(got)], **CLOSE)
        probability = dict(every)
        for continuation in found:
            np.testing.assert_allclose(continuation.log_prob, probability[continuation.ids], **CLOSE)


@law
def samples_follow_the_distribution(lm: LanguageModel) -> None:
    size, longest = 4000, 2
    probability = {ids: math.exp(log_prob) for ids, log_prob in chain.every_sequence(lm, longest)}
    assert math.isclose(sum(probability.values()), 1.0, abs_tol=1e-4)
    drawn = sample_after(lm, [[]] * size, cr.Sample(), max_tokens=longest, seed=11, end=lm.tokenizer.eos)
    counts = Counter(continuation.ids for continuation in drawn)
    assert set(counts) <= set(probability)
    for ids, p in probability.items():
        # a count is binomial; five standard deviations are exceeded once in three million
        assert abs(counts[ids] - size * p) <= 5 * math.sqrt(size * p * (1 - p)) + 1, (ids, p, counts[ids] / size)
    for continuation in drawn[:50]:
        assert math.isclose(continuation.log_prob, math.log(probability[continuation.ids]), abs_tol=1e-4)


@law
def foreign_ids_are_refused(lm: LanguageModel) -> None:
    """An id outside the vocabulary raises ValueError: it would otherwise be read silently as another one."""
    for wrong in ([[lm.tokenizer.vocab_size]], [[PAD - 1]], [0]):
        for use in (lm.score, lambda ids: lm.extend(lm.start(1), ids)):
            try:
                use(np.asarray(wrong))
            except ValueError:
                continue
            raise AssertionError(f"{wrong} was taken for ids")


@law
def save_and_load_is_bit_equal(lm: LanguageModel) -> None:
    ids_BT = pad(prefixes(lm))
    with tempfile.TemporaryDirectory() as folder:
        lm.save(Path(folder) / "model")
        loaded = cr.load(Path(folder) / "model", device=lm.device, dtype=lm.dtype)
        assert type(loaded) is type(lm) and loaded.kind == lm.kind
        assert (loaded.context, loaded.tokenizer.vocab_size) == (lm.context, lm.tokenizer.vocab_size)
        np.testing.assert_array_equal(to_numpy(loaded.score(ids_BT)), to_numpy(lm.score(ids_BT)))
        for prefix in prefixes(lm):
            np.testing.assert_array_equal(next_log_probs(loaded, prefix), next_log_probs(lm, prefix))


@law
def same_seed_same_text_whatever_the_batch(lm: LanguageModel) -> None:
    words = [lm.tokenizer.token(i) for i in prefixes(lm)[2]]
    prompts = ["", words[0], " ".join(words)]
    strategy = cr.Temperature(1.3) | cr.TopP(0.95)
    texts = [g.text for g in cr.generate_many(lm, prompts, strategy, n=2, max_tokens=8, seed=5)]
    assert texts == [g.text for g in cr.generate_many(lm, prompts, strategy, n=2, max_tokens=8, seed=5)]
    for i, prompt in enumerate(prompts):
        assert texts[2 * i] == cr.generate(lm, prompt, strategy, max_tokens=8, seed=5)
        streamed = "".join(cr.stream(lm, prompt, strategy, max_tokens=8, seed=5))
        assert texts[2 * i] == prompt + streamed
    if len(list(chain.every_sequence(lm, 2))) > 1:  # a model that has learnt its text by heart leaves no choice
        drawn, other = (sample_after(lm, [[]] * 20, cr.Sample(), max_tokens=8, seed=seed) for seed in (5, 6))
        assert [c.ids for c in drawn] != [c.ids for c in other], "another seed, other text"


@law
def one_beam_is_greedy(lm: LanguageModel) -> None:
    for prefix in prefixes(lm):
        greedy = sample_after(lm, [prefix], cr.Greedy(), max_tokens=5)[0]
        beam = beam_search(lm, lm.extend(lm.start(1), pad([prefix])), cr.Beam(1), max_tokens=5)[0][0]
        assert greedy.ids == beam.ids


@law
def moving_changes_nothing_here(lm: LanguageModel) -> None:
    """`on` returns a model that computes as asked, and leaves this one as it was."""
    rows = pad(prefixes(lm))
    device, dtype, before = lm.device, lm.dtype, to_numpy(lm.score(rows)).copy()
    moved = lm.on("cpu", "float64")
    log_probs = moved.next_log_probs(moved.extend(moved.start(len(rows)), rows))
    assert "float64" in str(log_probs.dtype), f"float64 is float64, not {log_probs.dtype}"
    assert "float64" in str(moved.score(rows).dtype)
    np.testing.assert_allclose(to_numpy(moved.score(rows)), before, **CLOSE)
    assert (lm.device, lm.dtype) == (device, dtype)
    np.testing.assert_array_equal(to_numpy(lm.score(rows)), before)


# -- fast paths: each equals its plain way ----------------------------------------------------------------


@law
def scoring_text_is_scoring_its_tokens(lm: LanguageModel) -> None:
    if not isinstance(lm, ScoresText):
        return
    words = [lm.tokenizer.token(i) for i in prefixes(lm)[3]]
    lines = [" ".join(words), words[0], "", " ".join(reversed(words))]
    # long enough to be cut into parts for the cores
    block = ("\n".join(lines * (1 + (1 << 19) // len("\n".join(lines)))) + "\n").encode()
    ids = lm.tokenizer.encode_lines(block)
    found = lm.score_text(block)
    if found is not None:
        np.testing.assert_allclose(found, score_sequences(lm, ids, *lm.bounds(ids)), **CLOSE)


@law
def scoring_sequences_is_scoring_each(lm: LanguageModel) -> None:
    if not isinstance(lm, ScoresSequences):
        return
    rows = [row for row in prefixes(lm) if row]
    ends = np.cumsum([len(row) for row in rows])
    starts = np.concatenate([np.zeros(1, np.int64), ends[:-1]])
    found = lm.score_sequences(np.concatenate([np.asarray(row) for row in rows]), starts, ends)
    if found is not None:
        expected = np.concatenate([to_numpy(lm.score(pad([row])))[0] for row in rows])
        np.testing.assert_allclose(found, expected, **CLOSE)


@law
def reading_is_scoring_and_extending(lm: LanguageModel) -> None:
    if not isinstance(lm, Reads):
        return
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad([rows[2]] * len(rows)))
    found = lm.read(state, pad(rows))
    if found is not None:
        scores, after = found
        np.testing.assert_allclose(to_numpy(scores), to_numpy(lm.score(pad(rows), state)), **CLOSE)
        expected = lm.next_log_probs(lm.extend(state, pad(rows)))
        np.testing.assert_allclose(to_numpy(lm.next_log_probs(after)), to_numpy(expected), **CLOSE)


@law
def reading_ahead_is_extending(lm: LanguageModel) -> None:
    """Cut after each of the tokens, in any order, and the states stay values."""
    row = prefixes(lm)[3]
    state = lm.extend(lm.start(1), pad([row[:1]]))
    expected = [to_numpy(lm.next_log_probs(lm.extend(state, pad([row[:n]])))) for n in range(1, len(row) + 1)]
    for kept in range(1, len(row) + 1):
        found, after = read_ahead(lm, state, pad([row]))
        np.testing.assert_allclose(to_numpy(found), np.stack(expected, axis=1), **CLOSE)
        for n in (kept, len(row)):
            there = after(n)
            np.testing.assert_allclose(to_numpy(lm.next_log_probs(there)), expected[n - 1], **CLOSE)
            shorter = lm.extend(there, pad([row]))
            again = lm.extend(state, pad([[*row[:n], *row]]))
            np.testing.assert_allclose(
                to_numpy(lm.next_log_probs(shorter)), to_numpy(lm.next_log_probs(again)), **CLOSE
            )


@law
def drafts_are_tokens_of_the_vocabulary(lm: LanguageModel) -> None:
    memory, ids = None, np.asarray(prefixes(lm)[3], dtype=np.int64)
    for count in (1, 3):
        memory, guess = draft(lm, memory, ids, count)
        assert guess.shape == (count,) and lm.tokenizer.bos not in guess
        assert (guess >= 0).all() and (guess < lm.tokenizer.vocab_size).all()
    for known in lm.likeliest(2) or [] if isinstance(lm, KnowsLikeliest) else []:
        assert len(known.contexts_CN) == len(known.tokens_C) and lm.tokenizer.bos not in known.tokens_C
        assert (known.tokens_C >= 0).all() and (known.tokens_C < lm.tokenizer.vocab_size).all()


@law
def predictions_are_steps(lm: LanguageModel) -> None:
    if not isinstance(lm, Predicts):
        return
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad([rows[2]] * len(rows)))
    found = lm.predictions(state, pad(rows))
    if found is not None:
        blocks = [to_numpy(block) for block in found]
        together = np.concatenate(blocks, axis=1)
        assert together.shape == (*pad(rows).shape, lm.tokenizer.vocab_size)
        for i, row in enumerate(rows):
            for t in range(len(row)):
                expected = next_log_probs(lm, [*rows[2], *row[:t]])
                np.testing.assert_allclose(together[i, t], expected, **CLOSE)


@law
def next_probabilities_are_powers_of_e(lm: LanguageModel) -> None:
    if not isinstance(lm, GivesNextProbs):
        return
    state = lm.extend(lm.start(len(prefixes(lm))), pad(prefixes(lm)))
    found = lm.next_probs(state)
    if found is not None:
        expected = np.exp(to_numpy(lm.next_log_probs(state)).astype(np.float64))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-12)


@law
def searching_is_ranking_and_extending(lm: LanguageModel) -> None:
    if not isinstance(lm, Searches):
        return
    rows, end, never = prefixes(lm)[:4], lm.tokenizer.eos, () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    for beam in (cr.Beam(1, 0.0, "best"), cr.Beam(3), cr.Beam(3, 0.5, "best")):
        search = partial(beam_search, lm, state, beam, max_tokens=6, end=end, forbid=never, best=2)
        for found, expected in zip(search(), search(plainly=True), strict=True):
            assert [(one.ids, one.finished) for one in found] == [(one.ids, one.finished) for one in expected]
            scores = [[one.log_prob for one in every] for every in (found, expected)]
            np.testing.assert_allclose(scores[0], scores[1], rtol=1e-4, atol=1e-4)


@law
def writing_is_choosing_and_extending(lm: LanguageModel) -> None:
    if not isinstance(lm, Writes):
        return
    rows = prefixes(lm)[:4]
    uniforms = np.random.default_rng(4).random((len(rows), 3))
    for strategy in (cr.Greedy(), cr.Temperature(0.8) | cr.TopK(3), cr.Sample(), cr.RepetitionPenalty(1.5)):
        choose, state = Choice(strategy, lm.tokenizer.eos), lm.extend(lm.start(len(rows)), pad(rows))
        found = lm.write(state, choose, uniforms, pad(rows) if strategy.looks_back else None)
        if found is None:
            continue
        after, tokens, scores = found
        going, read = np.ones(len(rows), dtype=bool), pad(rows)
        for t in range(uniforms.shape[1]):
            log_probs = to_numpy(lm.next_log_probs(state))
            expected, expected_scores, going = choose(log_probs, uniforms[:, t], going, partial(np.copy, read))
            read = np.concatenate([read, expected[:, None]], axis=1)
            np.testing.assert_array_equal(to_numpy(tokens)[:, t], expected)
            np.testing.assert_allclose(to_numpy(scores)[:, t], expected_scores, rtol=1e-4, atol=1e-4)
            state = lm.extend(state, expected[:, None])
        np.testing.assert_allclose(
            to_numpy(lm.next_log_probs(after)), to_numpy(lm.next_log_probs(state)), rtol=1e-4, atol=1e-4
        )
