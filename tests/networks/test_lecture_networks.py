"""The networks of the lectures: their numbers of parameters, and how they follow from each other."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from network_laws import BOS, IDS_BT, VOCABULARY

import chainrule as cr
from chainrule.contract.counting import Traced, _inferred, count_parameters
from chainrule.contract.kinds import find_kind
from chainrule.errors import SettingsError
from chainrule.networks.config import FeedforwardConfig, RecurrentConfig
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.settings import parse

TOY = "i love cats\ni love dogs\ncats chase mice\n"
SMALL = {"preset": "lecture", "embedding": 64, "hidden": 64}


@pytest.mark.parametrize(
    ("kind", "gates", "tied"), [("elman", 1, 138_451), ("lstm", 4, 163_219), ("gru", 3, 154_963)]
)
def test_a_recurrent_network_has_the_slides_number_of_parameters(kind: str, gates: int, tied: int) -> None:
    """W, U and one b for each gate; then an output layer of its own, or the table of the embeddings."""
    V, d, h = 2003, 64, 64
    layer = gates * (h * d + h * h + h)
    assert count_parameters(kind, V, SMALL).parameters == V * d + layer + V * h + V
    assert count_parameters(kind, V, {**SMALL, "tied": True}).parameters == V * d + layer + V == tied
    two = {**SMALL, "tied": True, "biases": 2}
    assert count_parameters(kind, V, two).parameters == tied + gates * h


def test_a_formula_may_be_a_sum_of_sizes_times_others() -> None:
    """It is found from the values that a number has when one size at a time is doubled."""
    sizes = {name: Traced.of(value, name) for name, value in (("a", 6), ("b", 3), ("c", 2))}
    assert str(_inferred(30, {"a": 60, "b": 48, "c": 42}, sizes)) == "(b + c) · a"


def test_a_preset_only_sets_settings_that_are_not_given() -> None:
    gru = parse(find_kind("gru").settings, {"preset": "lecture", "layers": "3"})
    assert (gru.reset, gru.biases, gru.tied, gru.layers) == ("before", 1, False, 3)
    assert parse(find_kind("gru").settings, vars(gru)) == gru
    lstm = parse(find_kind("lstm").settings, {"preset": "lecture"})
    assert (lstm.reset, lstm.biases, lstm.tied, lstm.layers) == ("after", 1, False, 1)
    network = parse(find_kind("feedforward").settings, {"preset": "lecture", "activation": "sigmoid"})
    assert (network.activation, network.tied, network.layers, network.bias) == ("sigmoid", False, 1, True)
    plain: Any = parse(find_kind("lstm").settings, {})
    assert (plain.biases, plain.tied, plain.layers) == (2, True, None)


@pytest.mark.parametrize("engine", ["torch", "tape"])
@pytest.mark.parametrize("kind", ["elman", "gru", "feedforward"])
def test_a_lecture_network_is_saved_and_loaded(kind: str, engine: str, tmp_path: Any) -> None:
    settings: dict[str, Any] = {"preset": "lecture", "embedding": 4, "hidden": 6, "engine": engine}
    if kind == "feedforward":
        settings["bias"] = False
    lm = cr.train(kind, cr.Corpus.from_text(TOY), tokenizer="word", steps=2, **settings)
    lm.save(tmp_path / "m")
    again = cr.load(tmp_path / "m")
    assert again.settings == lm.settings and not again.settings.tied
    assert again.log_prob("i love mice") == pytest.approx(lm.log_prob("i love mice"), abs=1e-9)
    assert "i love" in cr.generate(again, "i love", max_tokens=2)
    text = cr.explain(again, "i love cats")
    assert "projection" not in str(text) and "Scale" not in str(text)


def test_one_step_of_an_elman_network_is_a_feed_forward_network() -> None:
    """With T = 1 and zeros before it, h = f(W x + b): U is multiplied by nothing."""
    sizes: dict[str, Any] = {"embedding": 3, "hidden": 4, "layers": 1, "tied": False, "activation": "sigmoid"}
    torch.manual_seed(1)
    elman = Recurrent(RecurrentConfig("elman", **sizes, biases=1), VOCABULARY, BOS).double().eval()
    plain = Feedforward(FeedforwardConfig(**sizes, order=2), VOCABULARY, BOS).double().eval()
    with torch.no_grad():
        elman.layers[0].weights.bias_ih_l0.normal_()
    weights = elman.state_dict()
    layer = "layers.0.weights."
    plain.load_state_dict(
        {
            "hidden.linears.0.weight": weights[f"{layer}weight_ih_l0"],
            "hidden.linears.0.bias": weights[f"{layer}bias_ih_l0"],
            **{name: value for name, value in weights.items() if not name.startswith("layers")},
        }
    )
    first = elman(IDS_BT[:, :1]).features_BTD
    torch.testing.assert_close(plain(IDS_BT[:, :1]).features_BTD, first, rtol=1e-12, atol=1e-12)
    # from the second step on the Elman network remembers, and the other one does not
    assert not torch.allclose(plain(IDS_BT).features_BTD[:, 1], elman(IDS_BT).features_BTD[:, 1])


def test_the_reset_gate_comes_before_or_after_the_product() -> None:
    """The two agree where r is 1, and at the first step, and nowhere else."""
    torch.manual_seed(0)
    sizes: dict[str, Any] = {"embedding": 3, "hidden": 4, "layers": 1, "tied": False, "biases": 1}
    before, after = (
        Recurrent(RecurrentConfig("gru", **sizes, reset=reset), VOCABULARY, BOS).double().eval()
        for reset in ("before", "after")
    )
    after.load_state_dict(before.state_dict())
    one, other = (network(IDS_BT).features_BTD for network in (before, after))
    torch.testing.assert_close(one[:, 0], other[:, 0])
    assert not torch.allclose(one[:, 1:], other[:, 1:], atol=1e-4)
    with torch.no_grad():
        for network in (before, after):
            network.layers[0].weights.bias_ih_l0[:4] = 50.0  # r = 1
    torch.testing.assert_close(before(IDS_BT).features_BTD, after(IDS_BT).features_BTD)


def test_recurrent_matrices_need_not_begin_orthogonal() -> None:
    config = RecurrentConfig("elman", embedding=8, hidden=8, layers=1, orthogonal=False)
    torch.manual_seed(0)
    U = Recurrent(config, VOCABULARY, BOS).layers[0].weights.weight_hh_l0.detach()
    assert not torch.allclose(U @ U.T, torch.eye(8), atol=0.1)
    assert U.abs().max() <= (6 / 16) ** 0.5  # Glorot's uniform numbers


@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_sgd_with_one_example_a_step(engine: str) -> None:
    settings: dict[str, Any] = {
        "engine": engine,
        "optimiser": "sgd",
        "examples": 1,
        "epochs": 2,
        "learning_rate": 0.1,
    }
    lm = cr.train(
        "elman", cr.Corpus.from_text(TOY), valid=cr.Corpus.from_text(TOY), tokenizer="word", hidden=4, **settings
    )
    assert lm.metrics["steps"] == 2 * 3  # as many as there are lines


def test_without_residual_connections_little_of_the_gradient_arrives() -> None:
    """The gradient of the embeddings, twelve blocks below the loss: the same weights with and without."""
    found = {}
    for residual in (True, False):
        sizes: dict[str, Any] = {"preset": "gpt2", "width": 16, "heads": 2, "window": 16, "layers": 12}
        lm = cr.train(
            "transformer", cr.Corpus.from_text(TOY), tokenizer="word", steps=1, residual=residual, seed=3, **sizes
        )
        found[residual] = float(np.mean(cr.diagnose(lm, "i love cats").embedding_gradient_T))
    assert found[False] < found[True] / 10


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"zero_init": True}, "zero_init=true and residual=false: blocks would only ever give zeros"),
        ({"layer_dropout": 0.1}, "set residual=true with it"),
    ],
)
def test_what_residual_connections_are_needed_for(settings: dict[str, Any], message: str) -> None:
    sizes = {"width": 8, "heads": 2, "layers": 1, "window": 4}
    with pytest.raises(SettingsError, match=message):
        parse(find_kind("transformer").settings, {**sizes, "residual": False, **settings})
