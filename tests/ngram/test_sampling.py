"""Text sampled by the kernels is, token by token, that of the plain way over all probabilities."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

import chainrule as cr
from chainrule.arrays import PAD, pad
from chainrule.contract.lm import Context
from chainrule.decode.sample import Choice
from chainrule.decode.strategies import Forbid
from chainrule.errors import ModelError
from chainrule.ngram.arpa.arpa_model import from_arpa
from chainrule.ngram.arpa.reading import read_arpa
from chainrule.ngram.infinite.any_length_model import AnyLengthModel
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.sampling import sampler, workspace
from chainrule.ngram.sampling.penalty_kernels import OLDEST
from chainrule.ngram.sampling.sampler import NgramSampler, Sampler
from chainrule.ngram.settings import SMOOTHINGS
from chainrule.system import parallel
from chainrule.system.parallel import Patience

PROMPTS = ["", "The", "If the value of", "a", "zzz qqq", "for x in range"]
ROWS, STEPS = len(PROMPTS), 25
IS_READY = Sampler.is_ready

STRATEGIES = {
    "sample": cr.Sample(),
    "greedy": cr.Greedy(),
    "cold": cr.Temperature(0.3),
    "very cold": cr.Temperature(0.01),
    "warm": cr.Temperature(1.7),
    "top-k": cr.TopK(3),
    "top-k of many": cr.TopK(60),
    "top-p": cr.TopP(0.8),
    "min-p": cr.MinP(0.1),
    "chain": cr.Temperature(0.7) | cr.TopK(40) | cr.TopP(0.9) | cr.MinP(0.01),
    "top-p before a temperature": cr.TopP(0.9) | cr.Temperature(2.0) | cr.TopP(0.7),
    "penalty": cr.PresencePenalty(0.4),
    "penalty and top-p": cr.PresencePenalty(0.25) | cr.Temperature(0.8) | cr.TopP(0.95),
    "reward": cr.PresencePenalty(-0.2) | cr.TopK(5),
    "repetition": cr.RepetitionPenalty(1.3),
    "repetition and top-p": cr.RepetitionPenalty(1.2) | cr.Temperature(0.8) | cr.TopP(0.9),
    "frequency and top-k": cr.FrequencyPenalty(0.3) | cr.TopK(70),
    "every penalty": cr.RepetitionPenalty(0.8) | cr.FrequencyPenalty(-0.1) | cr.PresencePenalty(0.2) | cr.TopP(0.7),
    "all of it": cr.TopP(1.0) | cr.MinP(0.0),
}


@pytest.fixture(autouse=True)
def compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "is_ready", lambda *_: True)


@cache
def corpus() -> cr.Corpus:
    text = b"".join(cr.Corpus.open("builtin:python").blocks())[:60_000]
    return cr.Corpus.from_text(text.decode(errors="ignore"))


@cache
def model(smoothing: str = "modified-kneser-ney", tokenizer: str = "word", **settings: object) -> NgramModel:
    lm = cr.train("ngram", corpus(), order=4, smoothing=smoothing, tokenizer=tokenizer, context="line", **settings)
    assert isinstance(lm, NgramModel)
    return lm


@cache
def anygram(tokenizer: str = "word", context: Context = "line") -> AnyLengthModel:
    lm = cr.train("anygram", corpus(), tokenizer=tokenizer, context=context)
    assert isinstance(lm, AnyLengthModel)
    return lm


def check(
    lm: NgramModel | AnyLengthModel, strategy: cr.decode.Strategy, end: int | None, steps: int = STEPS
) -> int:
    """Compare the continuations of the prompts with those of the slow, obvious way; returns their tokens."""
    if lm.tokenizer.unk is not None:
        strategy = Forbid((lm.tokenizer.unk,)) | strategy
    uniforms_BT = np.random.default_rng(7).random((ROWS, steps)) * (1 - 2**-40)
    uniforms_BT[0, 1], uniforms_BT[1, 1] = 2**-40, 1 - 2**-40
    read_BT = pad([lm.tokenizer.encode(text).tolist() for text in PROMPTS])
    state = lm.extend(lm.start(ROWS), read_BT)
    choose = Choice(strategy, end)
    lm._patience.end()
    found = lm.write(state, choose, uniforms_BT, read_BT if strategy.looks_back else None)
    assert found is not None, "every strategy here has a plan"
    active, text_BT, scores_BT = np.ones(ROWS, bool), read_BT, []
    for uniforms in uniforms_BT.T:
        tokens, scores, active = choose(lm.next_log_probs(state), uniforms, active, lambda read=text_BT: read)
        text_BT = np.concatenate([text_BT, tokens[:, None]], axis=1)
        state = lm.extend(state, tokens[:, None])
        scores_BT.append(scores)
    np.testing.assert_array_equal(found[1], text_BT[:, read_BT.shape[1] :])
    np.testing.assert_allclose(found[2], np.stack(scores_BT, axis=1), rtol=0, atol=1e-12)
    np.testing.assert_array_equal(lm.next_log_probs(found[0]), lm.next_log_probs(state))
    return int((found[1] != PAD).sum())


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy(name: str) -> None:
    assert check(model(), STRATEGIES[name], model().tokenizer.eos) > ROWS
    assert check(model(), STRATEGIES[name], None) == ROWS * STEPS


ANY_LENGTH = ["sample", "greedy", "warm", "top-k", "top-p", "min-p", "chain", "penalty", "reward",
              "repetition and top-p", "frequency and top-k"]  # fmt: skip


@pytest.mark.parametrize("name", ANY_LENGTH)
def test_every_strategy_with_contexts_of_any_length(name: str) -> None:
    assert check(anygram(), STRATEGIES[name], anygram().tokenizer.eos) > ROWS
    assert check(anygram(), STRATEGIES[name], None, 40) == ROWS * 40
    if STRATEGIES[name].looks_back:
        assert check(anygram("char", "stream"), STRATEGIES[name], None, steps=200) == ROWS * 200


@pytest.mark.parametrize(
    ("tokenizer", "context"),
    [
        pytest.param(tokenizer, context, marks=[] if (i + j) % 2 == 0 else [pytest.mark.slow])
        for i, tokenizer in enumerate(["char", "bpe", "byte"])
        for j, context in enumerate(["line", "stream"])
    ],
)
def test_every_vocabulary_with_contexts_of_any_length(tokenizer: str, context: Context) -> None:
    for name in ("sample", "chain", "top-p"):
        check(anygram(tokenizer, context), STRATEGIES[name], None, 40)


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


PENALTIES = {
    **{name: STRATEGIES[name] for name in STRATEGIES if STRATEGIES[name].looks_back},
    "frequency": cr.FrequencyPenalty(0.2),
    "frequency and top-p": cr.FrequencyPenalty(0.15) | cr.TopP(0.9),
    "strong": cr.PresencePenalty(30.0) | cr.TopK(9),
    "strong, without a cut": cr.RepetitionPenalty(40.0),
    "one after the other": cr.FrequencyPenalty(0.05)
    | cr.RepetitionPenalty(1.1)
    | cr.Temperature(0.9)
    | cr.MinP(0.01),
}


@pytest.mark.parametrize(
    ("name", "tokenizer"),
    [
        pytest.param(name, tokenizer, marks=[] if (i + j) % 2 == 0 else [pytest.mark.slow])
        for i, name in enumerate(PENALTIES)
        for j, tokenizer in enumerate(["word", "char"])
    ],
)
def test_penalties_over_a_long_text(name: str, tokenizer: str) -> None:
    """So long that most tokens that occurred are in lists, and not gathered at each step."""
    assert check(model(tokenizer=tokenizer), PENALTIES[name], None, steps=350) == ROWS * 350


def test_lists_of_penalised_tokens_are_discarded_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    for pairs in (1 << 12, 1 << 15):
        monkeypatch.setattr(workspace, "_OCCURRED_PAIRS", pairs)
        monkeypatch.delitem(vars(model()), "_sampler", raising=False)
        for name in ("penalty and top-p", "frequency and top-p"):
            check(model(), PENALTIES[name], None, steps=250)


def test_a_text_with_penalties_continues_in_pieces() -> None:
    """The counts of one text do not change those of another, whichever continues."""
    lm = model()
    choose, uniforms = Choice(PENALTIES["frequency and top-p"], None), np.random.default_rng(3).random((2, 300))
    kernels, state, nothing = NgramSampler(lm.automaton), lm.start(2), np.zeros((2, 0), np.int64)
    whole = kernels.sample(state.words, choose, uniforms, nothing)
    assert whole is not None
    states, texts = [lm.start(1), lm.start(1)], [nothing[:1], nothing[:1]]
    for row, first, last in ((0, 0, 100), (0, 100, 180), (1, 0, 130), (0, 180, 300), (1, 130, 131), (1, 131, 300)):
        piece = kernels.sample(states[row].words, choose, uniforms[row : row + 1, first:last], texts[row])
        assert piece is not None
        texts[row] = np.concatenate([texts[row], piece[0]], axis=1)
        states[row] = lm.extend(states[row], piece[0])
    np.testing.assert_array_equal(np.concatenate(texts), whole[0])


@pytest.mark.parametrize("name", ["penalty and top-p", "frequency and top-p"])
def test_lists_of_penalised_tokens_are_kept_while_a_text_continues(name: str) -> None:
    lm = model()
    choose, uniforms = Choice(PENALTIES[name], None), np.random.default_rng(4).random((1, 200))
    kernels, state, text = NgramSampler(lm.automaton), lm.start(1), np.zeros((1, 0), np.int64)
    oldest = []
    for _ in range(3):
        piece = kernels.sample(state.words, choose, uniforms, text)
        assert piece is not None
        state, text = lm.extend(state, piece[0]), np.concatenate([text, piece[0]], axis=1)
        oldest.append(kernels._workspaces[0].scratch.text.numbers[OLDEST])
    assert oldest == [oldest[0]] * 3
    kernels.sample(lm.start(1).words, choose, uniforms[:, :1], text[:, :1])
    assert kernels._workspaces[0].scratch.text.numbers[OLDEST] > oldest[0]


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "infinite"])
def test_every_smoothing(smoothing: str) -> None:
    for name in ("sample", "chain", "penalty and top-p", "very cold"):
        check(model(smoothing), STRATEGIES[name], None)


@pytest.mark.parametrize(
    "settings",
    [
        {"bits": 2},
        {"bits": 8},
        {"index": "hash"},
        {"prune": "0,0,1"},
        {"entropy": 1e-6},
        {"bits": 5, "index": "hash"},
    ],
    ids=str,
)
def test_every_form_of_the_store(settings: dict[str, object]) -> None:
    for name in ("sample", "chain", "top-p"):
        check(model(**settings), STRATEGIES[name], None)


@pytest.mark.parametrize("tokenizer", ["char", "bpe", "byte"])
def test_every_size_of_vocabulary(tokenizer: str) -> None:
    for name in ("sample", "greedy", "chain", "penalty"):
        check(model(tokenizer=tokenizer), STRATEGIES[name], None)


@pytest.mark.parametrize("order", [1, 2, 8])
def test_every_order(order: int) -> None:
    lm = cr.train("ngram", corpus(), order=order, tokenizer="char")
    for name in ("sample", "chain"):
        check(lm, STRATEGIES[name], None)


def test_a_mixture_and_a_model_that_was_saved(tmp_path: Path) -> None:
    other = cr.train(
        "ngram", cr.Corpus.from_text("the value of x is the value\nif x in y\n" * 3), order=3, tokenizer="word"
    )
    check(cr.ngram.interpolate(model(), other, weight=0.6), STRATEGIES["chain"], None)
    model().save(tmp_path / "model")
    check(cr.load(tmp_path / "model"), STRATEGIES["sample"], None)


ARPA = """
\\data\\
ngram 1=6
ngram 2=4
ngram 3=2

\\1-grams:
-1.0 <unk>
-99 <s> -0.2
-0.9 </s>
-0.7 a 0.4
-0.8 b -0.1
-0.6 c -0.3

\\2-grams:
-0.2 <s> a 0.1
-0.5 a b -0.2
-0.9 b c
-99 c a

\\3-grams:
-0.3 <s> a b
-0.1 a b c

\\end\\
"""


def test_a_model_of_an_arpa_file_whose_backoffs_raise_what_they_should_lower(tmp_path: Path) -> None:
    """A word may be likelier after the shorter context than any is after the longer one: sums must stay exact."""
    path = tmp_path / "odd.arpa"
    path.write_text(ARPA.lstrip())
    lm = from_arpa(read_arpa(path))
    for strategy in STRATEGIES.values():
        check(lm, strategy, None)


def test_lists_are_discarded_when_there_is_no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workspace, "_FIRST_PAIRS", 1)
    for lm in (model(), anygram()):
        for most in (1, 1 << 15):
            monkeypatch.setattr(workspace, "_MOST_PAIRS", most)
            monkeypatch.delitem(vars(lm), "_sampler", raising=False)
            check(lm, STRATEGIES["chain"], None, steps=60)
        del vars(lm)["_sampler"]


@pytest.mark.parametrize("kind", [model, anygram])
def test_the_rows_of_a_batch_are_sampled_as_alone(kind: Callable[[], NgramModel | AnyLengthModel]) -> None:
    lm, many = kind(), 300  # enough for several threads
    uniforms, choose = np.random.default_rng(1).random((many, 10)), Choice(cr.TopP(0.9), lm.tokenizer.eos)
    lm._patience.end()
    together = lm.write(lm.start(many), choose, uniforms)
    for row in range(0, many, 60):
        alone = lm.write(lm.start(1), choose, uniforms[row : row + 1])
        assert together is not None and alone is not None
        np.testing.assert_array_equal(together[1][row], alone[1][0])


@pytest.mark.parametrize("settings", [{}, {"prune": "0,0,1"}, {"bits": 4}], ids=str)
def test_stupid_backoff_charges_for_contexts_that_were_never_seen(settings: dict[str, object]) -> None:
    for strategy in STRATEGIES.values():
        check(model("stupid-backoff", **settings), strategy, None)


def test_the_kernels_sample_once_that_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sampler, "is_ready", IS_READY)
    lm = cr.train("ngram", corpus(), order=3, tokenizer="word")
    assert isinstance(lm, NgramModel)
    choose, uniforms = Choice(cr.TopP(0.9), None), np.random.default_rng(2).random((1, 40))
    assert lm.write(lm.start(1), choose, uniforms[:, :1]) is None, "a kernel takes longer to load than a token"
    NgramSampler(lm.automaton).sample(lm.start(1).words, choose, np.tile(uniforms, 50), np.zeros((1, 0), np.int64))
    found = lm.write(lm.start(1), choose, uniforms)
    assert found is not None
    state, tokens, _ = found
    np.testing.assert_array_equal(state.words, lm.extend(lm.start(1), tokens).words)
    np.testing.assert_array_equal(state.nodes, lm.extend(lm.start(1), tokens).nodes)


def test_a_model_with_a_nan_is_an_error() -> None:
    lm = cr.train("ngram", corpus(), order=2, tokenizer="char")
    assert isinstance(lm, NgramModel)
    for array in (lm.automaton.log_prob.plain, lm.automaton.log_backoff.plain):
        known = array.copy()
        array[:] = np.where(np.arange(len(array)) % 3 == 0, np.nan, array)
        with pytest.raises(ModelError, match="NaN"):
            cr.generate(lm, "The", max_tokens=200)
        array[:] = known


def test_compiling_waits_until_it_pays_and_is_announced(monkeypatch: pytest.MonkeyPatch) -> None:
    lm, said = model(), []
    choose, uniforms, nothing = Choice(cr.TopP(0.9), None), np.full((1, 600), 0.5), np.zeros((1, 0), np.int64)
    monkeypatch.setattr(Sampler, "is_ready", IS_READY)
    monkeypatch.setattr(sampler, "is_compiled", lambda _: False)
    monkeypatch.setattr(parallel, "listeners", [said.append])
    kernels = NgramSampler(lm.automaton)
    written = [kernels.sample(lm.start(1).words, choose, uniforms, nothing) is not None for _ in range(3)]
    assert written == [False, False, True]
    assert len(said) == 1 and "compiling" in said[0]


class Odd(cr.decode.Strategy):
    """A strategy that is no named operation."""

    looks_back = False

    def apply(self, log_probs_BV: np.ndarray, read: object) -> np.ndarray:
        return np.where(np.arange(log_probs_BV.shape[1]) % 2 == 1, log_probs_BV, -math.inf)


def test_a_choice_without_a_plan_is_left_to_the_plain_way(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = model()
    uniforms, nothing = np.zeros((1, 3)), np.zeros((1, 0), np.int64)
    unknown = (
        Odd(),
        cr.TopK(3) | Forbid((4,)),
        cr.Temperature(0.5) | cr.PresencePenalty(0.7),
        cr.PresencePenalty(-5.0) | cr.RepetitionPenalty(1.2),
    )
    for strategy in unknown:
        assert (
            NgramSampler(lm.automaton).sample(lm.start(1).words, Choice(strategy, None), uniforms, nothing) is None
        )
    monkeypatch.setattr(lm, "_patience", Patience(1e12))
    assert cr.generate(lm, "The", Odd(), max_tokens=20)
