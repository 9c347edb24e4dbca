"""Laws of fast paths: each is equal to its plain way. A model that does not offer one keeps its law trivially."""

from __future__ import annotations

from functools import partial

import numpy as np

import chainrule as cr
from chainrule.arrays import pad, to_numpy
from chainrule.contract.capabilities import (
    GivesNextProbs,
    KnowsLikeliest,
    Predicts,
    Reads,
    ScoresSequences,
    ScoresText,
    Searches,
    Writes,
)
from chainrule.contract.lm import LanguageModel, draft, read_ahead, score_sequences
from chainrule.decode.beam import beam_search
from chainrule.decode.sample import Choice
from chainrule.testing.register import CLOSE, law, next_log_probs, prefixes


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
