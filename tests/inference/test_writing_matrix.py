"""A matrix of strategies, families, rows, vocabularies and precisions: the fast way writes what the plain way does.

The cases are a covering design: each pair of values of any two columns occurs, also each pair of strategies. A GPU
takes all of them (`make test-gpu`), a CPU the small ones, where captured steps run without being captured.

Two ways to compute a network round differently, and a random number may fall between their results. So the plain
way reads what the fast way wrote and chooses each token again. If it chooses another one, it must choose that of
the fast way after a change of the logits as small as rounding, and this must be rare.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from benchmarks.decode.models import random_model, some_words
from tests.inference.covering import covering

import chainrule as cr
from chainrule.arrays import PAD, Array, array_namespace, pad, placed_like, to_numpy
from chainrule.contract.lm import LanguageModel, State
from chainrule.decode.beam import beam_search
from chainrule.decode.generate import text_only
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Choice, sample, scores_for, takes_logits
from chainrule.decode.strategies import Bias, Forbid, Strategy
from chainrule.inference.neural_model import NeuralModel
from chainrule.mixtures.mixture import Mixture

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
TOKENS = 20  # more than are written before the host looks at them
SPREAD = 4.0  # of logits: then a few tokens are likely, whatever the vocabulary
ROUNDING = {"float32": 1e-3, "bfloat16": 0.1}
"""How much the logits of two ways may differ. (cuDNN multiplies float32 with 10 bits.)"""
MOST_UNCERTAIN = 0.02
"""The share of tokens that rounding may decide in float32; in bfloat16 also twice as many as in the plain way."""
TRIES, MOST_LOOKED_AT = 64, 50
"""The changes of logits that are tried for a token that differs, and the most such tokens of a case."""

CELLS: dict[str, Any] = {"layers": 2, "hidden": 48, "embedding": 32, "tied": False}
FLAT: dict[str, Any] = {"hidden": 48, "embedding": 32}
BLOCKS: dict[str, Any] = {"layers": 2, "width": 64, "heads": 4, "window": 64}
NETWORKS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("transformer", {"preset": "gpt2", **BLOCKS}),
    "llama": ("transformer", {"preset": "llama", "kv_heads": 2, **BLOCKS}),
    "fast": ("transformer", {"preset": "fast", **BLOCKS}),
    "lstm": ("lstm", CELLS),
    "gru": ("gru", CELLS),
    "elman": ("elman", CELLS),
    "qrnn": ("qrnn", CELLS),
    "feedforward": ("feedforward", FLAT),
    "bagofwords": ("bagofwords", FLAT),
    "seq2seq lstm": ("seq2seq", {"cell": "lstm", "layers": 1, "width": 32}),
    "seq2seq transformer": ("seq2seq", {"cell": "transformer", **BLOCKS}),
    "seq2seq post-norm": ("seq2seq", {"cell": "transformer", "preset": "bart", **BLOCKS}),
}
STRATEGIES: list[Strategy] = [
    cr.Sample(),
    cr.Greedy(),
    cr.Temperature(0.8),
    cr.TopK(20),
    cr.TopP(0.9),
    cr.MinP(0.05),
    cr.RepetitionPenalty(1.3),
    cr.PresencePenalty(0.7),
    cr.FrequencyPenalty(0.5),
    Bias(((3, 2.0), (5, -3.0))),
    Forbid((4, 6)),
]
FACTORS: dict[str, Sequence[Any]] = {
    "family": [*NETWORKS, "ngram", "mixture"],
    "first": STRATEGIES,
    "second": STRATEGIES,
    "rows": [1, 2, 7, 32, 256],
    "vocab": [100, 16_000, 100_000],
    "dtype": ["float32", "bfloat16"],
}
CASES = covering(FACTORS)


def is_small(case: dict[str, Any]) -> bool:
    return bool(case["vocab"] == 100 and case["rows"] <= 7)


def marked(cases: list[dict[str, Any]]) -> list[Any]:
    """Return the cases as parameters; without a GPU the large ones are skipped."""
    needs_gpu = pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU: on a CPU only small cases run")
    return [
        pytest.param(case, marks=[] if is_small(case) else needs_gpu, id=" ".join(map(str, case.values())))
        for case in cases
    ]


@cache
def made(family: str, vocab: int) -> LanguageModel:
    if family in NETWORKS:
        kind, settings = NETWORKS[family]
        return random_model(kind, vocab, settings, spread=SPREAD)
    words = np.random.default_rng(0).zipf(1.3, 20_000) % (vocab - 3)
    text = " ".join(f"w{number}" for number in words.tolist())
    ngram = cr.train("ngram", text, order=3, tokenizer=some_words(vocab), context="stream")
    return ngram if family == "ngram" else cr.mix([made("lstm", vocab), ngram], weights=[0.5, 0.5])


@cache
def on_device(family: str, vocab: int, dtype: str) -> LanguageModel:
    return made(family, vocab).on(DEVICE, dtype)


def plainly(lm: Any) -> Any:
    """Return a model that computes the same without captured steps."""
    if isinstance(lm, Mixture):
        return lm.with_models([plainly(one) for one in lm.models])
    if not isinstance(lm, NeuralModel):
        return lm
    plain = lm.with_network(lm.network)
    plain.captured.has_failed = True
    return plain


@pytest.fixture(autouse=True)
def steps_on_any_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NeuralModel, "_has_graphs", True)


def after(lm: Any, prompts: list[list[int]]) -> State:
    """Return the state after prompts of different lengths, and after a source where there is one."""
    sources = [np.asarray([3 + len(prompt), 5, lm.tokenizer.eos]) for prompt in prompts]
    state = lm.begin(sources) if lm.needs_source else lm.start(len(prompts))
    return lm.extend(state, pad(prompts))


def prompts_of(rows: int) -> list[list[int]]:
    return [[3 + (7 * row + place) % 90 for place in range(1 + row % 5)] for row in range(rows)]


def check(lm: LanguageModel, strategy: Strategy, rows: int, dtype: str) -> None:
    """Write by the fast way, and check each token by the plain way."""
    prompts, end, strategy = prompts_of(rows), lm.tokenizer.eos, text_only(lm, strategy)
    how: dict[str, Any] = {"max_tokens": TOKENS, "end": end, "read_BT": pad(prompts)}
    written = sample(lm, after(lm, prompts), strategy, Uniforms(0, prompts), **how)
    tokens_BT = np.full((rows, TOKENS), PAD)
    for row, found in enumerate(written):
        tokens_BT[row, : len(found.ids)] = found.ids
    plain = plainly(lm)
    exact: Any = None if dtype == "float32" else plainly(plain.on(DEVICE, "float32"))
    state, choose = after(plain, prompts), Choice(strategy, end, takes_logits(plain, strategy))
    exact_state: Any = None if exact is None else after(exact, prompts)
    uniforms_BT, goes_on_B = Uniforms(0, prompts).draw(np.arange(rows), TOKENS), np.ones(rows, bool)
    read_BT, uncertain, rounded, scores_B = pad(prompts), 0, 0, np.zeros(rows)
    for t in range(TOKENS):
        from_BV = scores_for(plain, strategy, state)
        chosen_B = choose_again(choose, from_BV, uniforms_BT[:, t], goes_on_B, read_BT)
        if exact is not None:
            from_exact_BV = scores_for(exact, strategy, exact_state)
            of_exact_B = choose_again(choose, from_exact_BV, uniforms_BT[:, t], goes_on_B, read_BT)
            rounded += np.count_nonzero(chosen_B != of_exact_B)
            exact_state = exact.extend(exact_state, tokens_BT[:, t : t + 1])
        for row in np.flatnonzero(chosen_B != tokens_BT[:, t]):
            uncertain += 1
            if uncertain <= MOST_LOOKED_AT:
                given = from_BV[int(row)], uniforms_BT[row, t], bool(goes_on_B[row]), read_BT[row]
                others, possible_V = choices_nearby(choose, *given, ROUNDING[dtype])
                token = tokens_BT[row, t]
                # tokens are drawn in their order, so one between two that are drawn could be drawn as well
                is_between = min(others) <= token <= max(others) and possible_V[token]
                assert token in others or is_between, (row, t, token, chosen_B[row], others)
        tokens_B, is_token_B = tokens_BT[:, t], tokens_BT[:, t] != PAD
        log_probs_BV = to_numpy(plain.next_log_probs(state))
        scores_B += np.where(is_token_B, log_probs_BV[np.arange(rows), np.maximum(tokens_B, 0)], 0.0)
        goes_on_B &= is_token_B & (tokens_B != end)
        read_BT = np.concatenate([read_BT, tokens_B[:, None]], axis=1)
        state = plain.extend(state, tokens_B[:, None])
    assert uncertain <= 2 + MOST_UNCERTAIN * (tokens_BT != PAD).sum() + 2 * rounded
    np.testing.assert_allclose([found.log_prob for found in written], scores_B, atol=TOKENS * ROUNDING[dtype])


def choose_again(
    choose: Choice, from_BV: Array, uniforms_B: np.ndarray, active_B: np.ndarray, read_BT: np.ndarray
) -> np.ndarray:
    active_B = active_B if isinstance(from_BV, np.ndarray) else torch.from_numpy(active_B).to(from_BV.device)
    tokens_B, _, _ = choose(from_BV, uniforms_B, active_B, lambda: placed_like(read_BT, from_BV))
    return to_numpy(tokens_B)


def choices_nearby(
    choose: Choice, from_V: Array, uniform: float, active: bool, read_T: np.ndarray, rounding: float
) -> tuple[set[int], np.ndarray]:
    """Return the tokens that are chosen if the logits are rounded otherwise: each by itself, and all together.

    Also return which tokens the strategy leaves possible then.
    """
    xp, z = array_namespace(from_V), to_numpy(from_V)
    together, each = noise(len(z))
    changed = z * (1 + rounding / SPREAD * together) + rounding * each
    changed_BV = xp.asarray(changed, dtype=from_V.dtype, device=from_V.device)
    many = np.full(TRIES, uniform), np.full(TRIES, active), np.repeat(read_T[None], TRIES, axis=0)
    left_BV = choose.strategy.apply(changed_BV, lambda: placed_like(many[2], changed_BV))
    return set(choose_again(choose, changed_BV, *many).tolist()), to_numpy(left_BV > -np.inf).any(axis=0)


@cache
def noise(vocab: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    shapes = (TRIES, 1), (TRIES, vocab)
    one, other = (generator.standard_normal(shape, dtype=np.float32) for shape in shapes)
    return one, other


@pytest.mark.gpu
@pytest.mark.parametrize("case", marked(CASES))
def test_every_way_writes_the_same(case: dict[str, Any]) -> None:
    lm = on_device(case["family"], case["vocab"], case["dtype"])
    strategy = case["first"] | case["second"]
    check(lm, strategy, case["rows"], case["dtype"])
    if case["family"] in NETWORKS:
        captured: Any = lm.captured  # type: ignore[attr-defined]
        assert any(captured.samplers.values()) and not captured.has_failed


def test_a_short_window_with_a_source_slides_between_steps() -> None:
    """Keys and values cannot slide within a captured step, as tokens of other small windows do."""
    design = {"cell": "transformer", "layers": 1, "width": 16, "heads": 2, "window": 12}
    lm = random_model("seq2seq", 100, design, spread=SPREAD, device=DEVICE)
    check(lm, cr.TopK(20), 2, "float32")
    assert not lm.captured.has_failed and any(lm.captured.samplers.values())


def test_each_pair_of_values_occurs() -> None:
    assert len(CASES) < 200
    for one, other in combinations(FACTORS, 2):
        pairs = {(str(case[one]), str(case[other])) for case in CASES}
        assert len(pairs) == len(FACTORS[one]) * len(FACTORS[other])


@pytest.mark.parametrize("strategy", [cr.TopK(5), cr.RepetitionPenalty(1.3), cr.Greedy()], ids=str)
def test_another_strategy_would_be_seen(strategy: Strategy, monkeypatch: pytest.MonkeyPatch) -> None:
    """A fast way that leaves the strategy out is found out."""
    lm = on_device("lstm", 100, "float32")
    real = sample

    def wrong(lm: Any, state: Any, wanted: Strategy, *arguments: Any, **others: Any) -> Any:
        return real(lm, state, text_only(lm, cr.Temperature(1.5)), *arguments, **others)

    monkeypatch.setitem(globals(), "sample", wrong)
    with pytest.raises(AssertionError):
        check(lm, strategy, 7, "float32")


BEAMS = covering({"family": FACTORS["family"], "rows": [1, 7, 32], "vocab": FACTORS["vocab"], "width": [1, 4]})


@pytest.mark.gpu
@pytest.mark.parametrize("case", marked(BEAMS))
def test_a_beam_finds_the_same(case: dict[str, Any]) -> None:
    lm, prompts = on_device(case["family"], case["vocab"], "float32"), prompts_of(case["rows"])
    how: dict[str, Any] = {"max_tokens": TOKENS, "end": lm.tokenizer.eos, "forbid": (lm.tokenizer.unk,)}
    plain = plainly(lm)
    found = beam_search(lm, after(lm, prompts), cr.Beam(case["width"]), **how)
    expected = beam_search(plain, after(plain, prompts), cr.Beam(case["width"]), way="plain", **how)
    if case["family"] in NETWORKS:
        assert any(lm.captured.searches.values()) and not lm.captured.has_failed  # type: ignore[attr-defined]
    best = [[(one.log_prob / max(len(one.ids), 1)) for (one, *_) in some] for some in (found, expected)]
    is_as_good = np.isclose(*best, rtol=0, atol=ROUNDING["float32"])
    is_same = [one[0].ids == other[0].ids for one, other in zip(found, expected, strict=True)]
    # rounding may decide which of two equally likely beginnings is kept, and so the text at the end
    assert np.sum(~(is_as_good & is_same)) <= max(1, len(prompts) // 5)


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE == "cpu", reason="needs a GPU")
@pytest.mark.parametrize("strategy", [cr.TopP(0.9), cr.MinP(0.05)], ids=str)
def test_a_choice_is_captured_for_a_second_number_of_rows(strategy: Strategy) -> None:
    """A warning that a fast path failed is an error here."""
    lm = random_model("transformer", 16_000, NETWORKS["gpt2"][1], spread=SPREAD, device=DEVICE, dtype="bfloat16")
    for rows in (1, 32, 7):
        check(lm, strategy, rows, "bfloat16")
