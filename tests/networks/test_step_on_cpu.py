"""One token a row by compiled loops is what the modules compute, in torch and on the tape."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.autodiff import no_grad
from chainrule.autodiff.networks.transformer import TapeTransformer
from chainrule.autodiff.tape.nodes import Array
from chainrule.decode.sample import Choice as SampleChoice
from chainrule.decode.strategies import Bias, Forbid, Strategy, normalised
from chainrule.inference.choice_plan import plan_of
from chainrule.networks.transformer import loops_on_cpu, step_on_cpu
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.networks.transformer.loops_on_cpu import _choose
from chainrule.networks.transformer.step_on_cpu import Step, suits
from chainrule.system.parallel import Patience

V, BOS, STEPS = 11, 1, 6
DESIGNS: dict[str, dict[str, Any]] = {
    "gpt2": {"preset": "gpt2"},
    "gpt2 without a gain": {"preset": "gpt2", "gain": False},
    "llama, shared keys": {"preset": "llama", "kv_heads": 2},
    "fast": {"preset": "fast"},
    "alibi": {"positions": "alibi", "heads": 3, "width": 12},
    "sinusoidal": {"positions": "sinusoidal", "embedding_norm": True, "bias": True},
    "no positions": {"positions": "none", "activation": "relu"},
}
OTHERS: dict[str, dict[str, Any]] = {
    "post": {"preset": "lecture"},
    "no residual": {"residual": False},
    "gain of queries and keys": {"qk_norm": True, "qk_gain": True},
}
# rows 0 to 2: all tokens, one missing token, padding from the third on
IS_TOKEN_BT = np.array([[True] * STEPS, [True, False, True, True, True, True], [True, True] + [False] * 4])


def twins(settings: dict[str, Any]) -> tuple[Transformer, TapeTransformer]:
    """The network in torch and on the tape, with weights large enough to say something."""
    small: dict[str, Any] = {"layers": 2, "width": 16, "heads": 4, "hidden": 10, "window": 8}
    config = TransformerConfig(**{**small, **settings})
    torch.manual_seed(0)
    network = Transformer(config, V, BOS).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.normal_(0, 0.4)
    tensors = {name: weight.detach().numpy().copy() for name, weight in network.named_parameters()}
    return network, TapeTransformer(config, V, BOS, tensors)


def by_torch(network: Transformer) -> Callable[[Array, Any, Array | None], tuple[Array, Any]]:
    def read(ids_B1: Array, memory: Any, is_token_B1: Array | None) -> tuple[Array, Any]:
        mask = None if is_token_B1 is None else torch.from_numpy(is_token_B1)
        reading = network(torch.from_numpy(ids_B1), network.begin(len(ids_B1)) if memory is None else memory, mask)
        return reading.features_BTD[:, 0].numpy(), reading.memory

    return read


def by_tape(network: TapeTransformer) -> Callable[[Array, Any, Array | None], tuple[Array, Any]]:
    def read(ids_B1: Array, memory: Any, is_token_B1: Array | None) -> tuple[Array, Any]:
        with no_grad():
            reading = network.read(ids_B1, network.begin(len(ids_B1)) if memory is None else memory, is_token_B1)
        return reading.features.out_tensor[:, 0], reading.memory

    return read


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows of each step that the loops have read."""
    read_by_loops, rows = Step.read, []

    def counted(step: Step, x_BD: Array, *rest: Any) -> Array:
        rows.append(len(x_BD))
        return read_by_loops(step, x_BD, *rest)

    monkeypatch.setattr(Step, "read", counted)
    return rows


@pytest.mark.parametrize("is_padded", [False, True], ids=["all tokens", "padding"])
@pytest.mark.parametrize("design", DESIGNS)
def test_loops_compute_what_modules_do(design: str, is_padded: bool, steps: list[int]) -> None:
    texts_BT = np.random.default_rng(4).integers(0, V, IS_TOKEN_BT.shape)
    for network, read_of in zip(twins(DESIGNS[design]), (by_torch, by_tape), strict=True):
        assert suits(network.config)
        read = read_of(network)  # type: ignore[operator]
        plain = slow = None
        for t in range(STEPS):
            ids_B1 = texts_BT[:, t : t + 1]
            is_token_B1 = IS_TOKEN_BT[:, t : t + 1] if is_padded else None
            features_BD, plain = read(ids_B1, plain, is_token_B1)
            assert steps.pop() == len(ids_B1) and not steps
            network._has_loops = lambda *_: False  # type: ignore[method-assign]
            expected_BD, slow = read(ids_B1, slow, is_token_B1)
            del network._has_loops  # the method of the class again
            assert not steps
            rows_B = slice(None) if is_token_B1 is None else is_token_B1[:, 0]
            np.testing.assert_allclose(features_BD[rows_B], expected_BD[rows_B], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("design", OTHERS)
def test_other_designs_are_read_by_modules(design: str, steps: list[int]) -> None:
    for network, read_of in zip(twins(OTHERS[design]), (by_torch, by_tape), strict=True):
        read_of(network)(np.array([[3]]), None, None)  # type: ignore[operator]
        assert not suits(network.config) and not steps


def test_few_tokens_do_not_load_compiled_code(steps: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("chainrule.networks.transformer.decoder.PATIENCE", Patience(1e6))
    network, _ = twins(DESIGNS["gpt2"])
    memory = None
    for _ in range(STEPS):
        _, memory = by_torch(network)(np.array([[3]]), memory, None)
    assert not steps


@pytest.mark.parametrize(
    "strategy",
    [
        cr.Greedy(),
        cr.Sample(),
        cr.TopK(4),
        cr.TopP(0.7),
        cr.MinP(0.2),
        cr.Temperature(0.7) | cr.TopK(5) | cr.TopP(0.8) | cr.MinP(0.1),
        Forbid((2, 3)) | Bias(((5, 1.5),)) | cr.TopP(0.5),
    ],
    ids=repr,
)
def test_loops_choose_what_strategies_do(strategy: Strategy) -> None:
    random = np.random.default_rng(8)
    logits_BV = np.round(random.normal(size=(50, V)), 1).astype(np.float32)  # some are equal
    logits_BV[:, BOS] = -np.inf
    log_probs_BV = normalised(logits_BV)
    choose, uniforms_B = SampleChoice(strategy, None), random.random(50)
    plan = plan_of(choose)
    assert plan is not None
    added_V = np.zeros(V, np.float32)
    added_V[list(plan.forbidden)] = -np.inf
    for token, value in plan.bias:
        added_V[token] += value
    codes_O, values_O = np.array(plan.operations, np.float64).reshape(-1, 2).T.copy()
    expected_B, scores_B, _ = choose(log_probs_BV, uniforms_B, np.ones(50, np.bool_))
    for logits_V, uniform, expected, score in zip(logits_BV, uniforms_B, expected_B, scores_B, strict=True):
        token, log_prob = _choose(logits_V, added_V, codes_O.astype(np.int64), values_O, uniform)
        assert token == expected
        assert log_prob == pytest.approx(score, abs=1e-5)


def test_loops_that_fail_leave_the_work_to_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("no compiler")

    network, _ = twins(DESIGNS["gpt2"])
    read, ids_B1 = by_torch(network), np.array([[3]])
    expected_BD, _ = read(ids_B1, None, None)
    notes: list[str] = []
    monkeypatch.setattr(step_on_cpu, "_FAULTS", [])
    monkeypatch.setattr(loops_on_cpu, "read_tokens", fail)
    monkeypatch.setattr("chainrule.system.parallel.listeners", [notes.append])
    for _ in range(2):
        features_BD, _ = read(ids_B1, None, None)
        np.testing.assert_allclose(features_BD, expected_BD, rtol=1e-4, atol=1e-5)
    assert len(notes) == 1 and "no compiler" in notes[0]


@pytest.mark.parametrize(("compiled", "tokens"), [(True, 68), (False, 6711)])
def test_loops_that_are_not_compiled_wait_for_more_tokens(
    compiled: bool, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_on_cpu, "_are_compiled", lambda: compiled)
    patience = step_on_cpu._UntilLoopsPay(1e6)
    assert not patience.count(tokens - 1)
    assert patience.count(1)
