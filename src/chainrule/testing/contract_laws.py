"""Laws of the contract itself: probabilities, states, batches, text and folders."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path

import numpy as np

import chainrule as cr
from chainrule.arrays import PAD, pad, to_numpy
from chainrule.contract import chain
from chainrule.contract.lm import LanguageModel
from chainrule.decode.beam import beam_search
from chainrule.decode.sample import sample_after
from chainrule.testing.register import assert_close, law, next_log_probs, prefixes


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
    assert_close(to_numpy(lm.score(ids_BT)), chain.score(lm, ids_BT))


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
        assert_close(together[i, : len(row)], alone)
        assert_close(after[i], next_log_probs(lm, row))


@law
def prefill_is_steps(lm: LanguageModel) -> None:
    for prefix in prefixes(lm):
        at_once = lm.extend(lm.start(1), pad([prefix]))
        assert_close(to_numpy(lm.next_log_probs(at_once))[0], next_log_probs(lm, prefix))


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
        assert_close(to_numpy(lm.next_log_probs(extended))[0], expected)


@law
def join_undoes_select(lm: LanguageModel) -> None:
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    expected = to_numpy(lm.next_log_probs(state))
    for cut in (1, 3, len(rows)):
        every = np.arange(len(rows))
        joined = state.select(every[:cut]).join(state.select(every[cut:]))
        assert len(joined) == len(state) == len(rows)
        assert_close(to_numpy(lm.next_log_probs(joined)), expected)
    # states that were read apart, of different lengths, go on together as they would alone
    first, second = rows[5], rows[1]
    apart = [lm.extend(lm.start(1), pad([row])) for row in (first, second)]
    joined = lm.extend(apart[0].join(apart[1]), pad([second, first]))
    expected = np.stack([next_log_probs(lm, [*first, *second]), next_log_probs(lm, [*second, *first])])
    assert_close(to_numpy(lm.next_log_probs(joined)), expected)


@law
def select_permutes(lm: LanguageModel) -> None:
    rows = prefixes(lm)
    state = lm.extend(lm.start(len(rows)), pad(rows))
    every = to_numpy(lm.next_log_probs(state))
    for choice in ([7, 6, 5, 4, 3, 2, 1, 0], [2, 2, 2, 4], [5]):
        selected = state.select(np.asarray(choice))
        assert_close(to_numpy(lm.next_log_probs(selected)), every[choice])
        # and each row goes on from where it is
        step = np.full((len(choice), 1), rows[1][0])
        expected = [next_log_probs(lm, [*rows[i], rows[1][0]]) for i in choice]
        assert_close(to_numpy(lm.next_log_probs(lm.extend(selected, step))), expected)


@law
def score_goes_on_from_a_state(lm: LanguageModel) -> None:
    every = prefixes(lm)
    rows = every[1:4]
    for prefix in every:
        state = lm.extend(lm.start(len(rows)), pad([prefix] * len(rows)))
        whole = to_numpy(lm.score(pad([[*prefix, *row] for row in rows])))[:, len(prefix) :]
        assert_close(to_numpy(lm.score(pad(rows), state)), whole)


@law
def exhaustive_beam_is_exact(lm: LanguageModel) -> None:
    end, longest = lm.tokenizer.eos, 3 if lm.tokenizer.vocab_size <= 40 else 2
    every = list(chain.every_sequence(lm, longest))
    for power in (0.0, 1.0):
        beam = cr.Beam(width=len(every), length_power=power)
        found = beam_search(lm, lm.start(1), beam, max_tokens=longest, end=end, best=5)[0]
        ranks = sorted((log_prob / len(ids) ** power for ids, log_prob in every), reverse=True)
        assert len(found) == min(5, len(every))
        got = [continuation.log_prob / len(continuation.ids) ** power for continuation in found]
        assert_close(got, ranks[: len(got)])
        probability = dict(every)
        for continuation in found:
            assert_close(continuation.log_prob, probability[continuation.ids])


@law
def samples_follow_the_distribution(lm: LanguageModel) -> None:
    size, longest = 4000, 2
    probability = {ids: math.exp(log_prob) for ids, log_prob in chain.every_sequence(lm, longest)}
    assert math.isclose(sum(probability.values()), 1.0, abs_tol=1e-4)
    drawn = sample_after(lm, [[]] * size, cr.Sample(), max_tokens=longest, seed=11, end=lm.tokenizer.eos)
    counts = Counter(continuation.ids for continuation in drawn)
    assert set(counts) <= set(probability)
    for ids, p in probability.items():
        # a count is binomial; five standard deviations are exceeded once in three million, four draws of what is
        # nearly impossible once in a hundred million
        assert abs(counts[ids] - size * p) <= 5 * math.sqrt(size * p * (1 - p)) + 3, (ids, p, counts[ids] / size)
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
    assert_close(to_numpy(moved.score(rows)), before)
    assert (lm.device, lm.dtype) == (device, dtype)
    np.testing.assert_array_equal(to_numpy(lm.score(rows)), before)
