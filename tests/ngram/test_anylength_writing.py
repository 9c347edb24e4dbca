"""Text that the kernels write with n-grams of any length is what the plain way writes, token by token."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import PAD, pad
from chainrule.contract.lm import Context
from chainrule.decode.sample import Choice
from chainrule.decode.strategies import Forbid
from chainrule.ngram.infinite.model import AnyLengthModel
from chainrule.ngram.sampling import workspace
from chainrule.ngram.sampling.sampler import Sampler

STRATEGIES = {
    "sample": cr.Sample(),
    "greedy": cr.Greedy(),
    "warm": cr.Temperature(1.7),
    "top-k": cr.TopK(3),
    "top-p": cr.TopP(0.8),
    "min-p": cr.MinP(0.1),
    "chain": cr.Temperature(0.7) | cr.TopK(70) | cr.TopP(0.9) | cr.MinP(0.01),
    "presence": cr.PresencePenalty(0.4),
    "repetition and top-p": cr.RepetitionPenalty(1.2) | cr.Temperature(0.8) | cr.TopP(0.9),
    "frequency and top-k": cr.FrequencyPenalty(0.3) | cr.TopK(70),
    "reward": cr.PresencePenalty(-0.2) | cr.TopK(5),
}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "is_ready", lambda *_: True)


@cache
def model(tokenizer: str = "word", context: Context = "line") -> AnyLengthModel:
    text = b"".join(cr.Corpus.open("builtin:python").blocks())[:60_000].decode(errors="ignore")
    lm = cr.train("anygram", text, tokenizer=tokenizer, context=context)
    assert isinstance(lm, AnyLengthModel)
    return lm


def check(lm: AnyLengthModel, strategy: cr.decode.Strategy, end: int | None, steps: int = 40) -> int:
    """Compare a text of each of some prompts with that of the slow, obvious way; returns how many tokens it has."""
    if lm.tokenizer.unk is not None:
        strategy = Forbid((lm.tokenizer.unk,)) | strategy
    texts = ["", "The", "If the value of", "a", "zzz qqq", "for x in range"]
    read_BT = pad([lm.tokenizer.encode(text).tolist() for text in texts])
    start = lm.extend(lm.start(len(texts)), read_BT)
    uniforms_BT = np.random.default_rng(7).random((len(texts), steps)) * (1 - 2**-40)
    uniforms_BT[0, 1], uniforms_BT[1, 1] = 2**-40, 1 - 2**-40
    choose = Choice(strategy, end)
    lm._patience.end()
    found = lm.write(start, choose, uniforms_BT, read_BT if strategy.looks_back else None)
    assert found is not None, "every strategy here has a plan"
    state, going, text_BT, scores_BT = start, np.ones(len(texts), bool), read_BT, []
    for uniforms in uniforms_BT.T:
        tokens, scores, going = choose(lm.next_log_probs(state), uniforms, going, lambda read=text_BT: read)
        text_BT = np.concatenate([text_BT, tokens[:, None]], axis=1)
        state = lm.extend(state, tokens[:, None])
        scores_BT.append(scores)
    np.testing.assert_array_equal(found[1], text_BT[:, read_BT.shape[1] :])
    np.testing.assert_allclose(found[2], np.stack(scores_BT, axis=1), rtol=0, atol=1e-12)
    assert [found[0].row(b) for b in range(len(texts))] == [state.row(b) for b in range(len(texts))]
    return int((found[1] != PAD).sum())


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy(name: str) -> None:
    assert check(model(), STRATEGIES[name], model().tokenizer.eos) > 6
    assert check(model(), STRATEGIES[name], None) == 6 * 40


@pytest.mark.parametrize(
    ("tokenizer", "context"),
    [
        pytest.param(tokenizer, context, marks=[] if (i + j) % 2 == 0 else [pytest.mark.slow])
        for i, tokenizer in enumerate(["char", "bpe", "byte"])
        for j, context in enumerate(["line", "stream"])
    ],
)
def test_every_size_of_vocabulary_and_context(tokenizer: str, context: Context) -> None:
    for name in ("sample", "chain", "top-p"):
        check(model(tokenizer, context), STRATEGIES[name], None)


@pytest.mark.parametrize("name", [name for name in STRATEGIES if STRATEGIES[name].looks_back])
def test_penalties_over_a_long_text(name: str) -> None:
    assert check(model("char", "stream"), STRATEGIES[name], None, steps=200) == 6 * 200


def test_text_that_repeats_itself_for_long() -> None:
    """Contexts of more tokens than have counts, many times over, are left to the plain way."""
    line = "".join(np.random.default_rng(1).choice([*"abcdefgh"], 400))
    lm = cr.train("anygram", f"{line}\n" * 70 + "abc\n", tokenizer="char", context="line")
    assert isinstance(lm, AnyLengthModel)
    check(lm, cr.Sample(), None, steps=10)
    state = lm.extend(lm.start(1), lm.tokenizer.encode(line[:300])[None].astype(np.int64))
    found = lm.write(state, Choice(cr.Greedy(), None), np.full((1, 20), 0.5))
    assert found is not None
    assert lm.tokenizer.decode(found[1][0].tolist()) == line[300:320]


def test_lists_are_forgotten_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_FIRST_PAIRS", 1)
    for most in (1, 1 << 15):
        monkeypatch.setattr(workspace, "_MOST_PAIRS", most)
        monkeypatch.delitem(vars(model()), "_sampler", raising=False)
        check(model(), STRATEGIES["chain"], None, steps=60)
    monkeypatch.delitem(vars(model()), "_sampler", raising=False)


def test_the_rows_of_a_batch_are_written_as_alone() -> None:
    lm, many = model(), 300  # enough for several threads
    uniforms, choose = np.random.default_rng(1).random((many, 10)), Choice(cr.TopP(0.9), None)
    lm._patience.end()
    together = lm.write(lm.start(many), choose, uniforms)
    for row in range(0, many, 60):
        alone = lm.write(lm.start(1), choose, uniforms[row : row + 1])
        assert together is not None and alone is not None
        np.testing.assert_array_equal(together[1][row], alone[1][0])
