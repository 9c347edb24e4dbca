"""Whole recurrent layers give what their cells give step by step: values, states and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from chainrule.autodiff.networks.recurrent import TapeQrnn, TapeRecurrent
from chainrule.autodiff.tape.losses import SoftmaxCrossEntropy
from chainrule.autodiff.tape.nodes import Value
from chainrule.autodiff.tape.recurrence import LstmLayer
from chainrule.autodiff.tape.tape import Tape, no_grad
from chainrule.networks.config import QrnnConfig, RecurrentConfig

V, B, T = 11, 3, 5
PLAIN = {"input_dropout": 0.0, "hidden_dropout": 0.0, "output_dropout": 0.0}
CELLS = [
    {"cell": "elman"},
    {"cell": "elman", "activation": "relu"},
    {"cell": "elman", "activation": "sigmoid"},
    {"cell": "elman", "activation": "leaky-relu"},
    {"cell": "lstm"},
    {"cell": "lstm", "biases": 1},
    {"cell": "gru"},
    {"cell": "gru", "reset": "before"},
    {"cell": "qrnn"},
]
WHOLE = {"ElmanLayer", "LstmLayer", "GruLayer", "QrnnLayer"}


def network(**settings: Any) -> TapeRecurrent:
    kind, design = (TapeQrnn, QrnnConfig) if settings["cell"] == "qrnn" else (TapeRecurrent, RecurrentConfig)
    config = design(embedding=6, hidden=7, layers=2, tied=False, **PLAIN, **settings)
    randomness = np.random.default_rng(1)
    tensors = {name: randomness.normal(size=shape) * 0.3 for name, shape in kind.shapes(config, V).items()}
    return kind(config, V, 0, tensors)


def gradients(net: TapeRecurrent, memory: Any, randomness: Any) -> tuple[Any, Any, dict[str, Any], set[str]]:
    """The features, the memory after them, the gradients of all parameters, and the names of the modules."""
    draw = np.random.default_rng(2)
    ids_BT, targets = draw.integers(1, V, (B, T)), draw.integers(1, V, B * T)
    for parameter in net.parameters.values():
        parameter.forget()
    with Tape() as tape:
        reading = net.read(ids_BT, memory, randomness=randomness)
        logits = net.logits(reading.features)
        names = {module.name for module in tape.modules}
        features = reading.features.out_tensor.copy()
        SoftmaxCrossEntropy().apply_fwd(logits, Value(targets.reshape(B, T), "y"))
        tape.backward()
    found = {name: parameter.dense_gradient().copy() for name, parameter in net.parameters.items()}
    return features, reading.memory, found, names


@pytest.mark.parametrize(
    "settings",
    [*CELLS, {"cell": "lstm", "learned_start": True}, {"cell": "qrnn", "learned_start": True, "kernel": 1}],
    ids=str,
)
@pytest.mark.parametrize("has_memory", [False, True])
def test_a_whole_layer_is_its_steps(settings: dict[str, Any], has_memory: bool) -> None:
    net = network(**settings)
    memory = net.read(np.full((B, 2), 3), None).memory if has_memory else None
    by_steps = gradients(net, memory, None)
    at_once = gradients(net, memory, np.random.default_rng(0))  # as in training, with nothing dropped
    assert not by_steps[3] & WHOLE
    assert len(at_once[3] & WHOLE) == 1  # both ways really ran
    np.testing.assert_allclose(at_once[0], by_steps[0], atol=1e-12)
    for new, old in zip(at_once[1].states, by_steps[1].states, strict=True):
        for a, b in zip(new, old, strict=True):
            np.testing.assert_allclose(a, b, atol=1e-12)
    assert at_once[2].keys() == by_steps[2].keys()
    for name, gradient in by_steps[2].items():
        assert np.abs(gradient).max() > 0 or (has_memory and name.startswith("starts")), name
        np.testing.assert_allclose(at_once[2][name], gradient, atol=1e-12, err_msg=name)


@pytest.mark.parametrize("settings", CELLS, ids=str)
def test_scoring_reads_whole_layers_too(settings: dict[str, Any]) -> None:
    net, ids_BT = network(**settings), np.random.default_rng(3).integers(1, V, (B, T))
    with no_grad():
        at_once = net.read(ids_BT).features.out_tensor
    with Tape():
        by_steps = net.read(ids_BT).features.out_tensor
        np.testing.assert_allclose(at_once, by_steps, atol=1e-12)


def test_a_wrong_gradient_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: a layer that forgets the path through the cell fails the comparison."""
    right = LstmLayer.backward

    def wrong(self: LstmLayer, g: Any) -> Any:
        h, c = self.states
        self.states = h, np.zeros_like(c)
        return right(self, g)

    monkeypatch.setattr(LstmLayer, "backward", wrong)
    with pytest.raises(AssertionError):
        test_a_whole_layer_is_its_steps({"cell": "lstm"}, True)
