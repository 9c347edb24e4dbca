from __future__ import annotations

from typing import Any

import pytest
import torch
from network_laws import BOS, IDS_BT, VOCABULARY, check, same

from chainrule.errors import SettingsError
from chainrule.networks.config import FeedforwardConfig, count_parameters, padded_size
from chainrule.networks.feedforward import Feedforward


def made(**settings: Any) -> Feedforward:
    torch.manual_seed(3)
    sizes = {"embedding": 3, "hidden": 4, **settings}
    return Feedforward(FeedforwardConfig(**sizes), VOCABULARY, BOS)


@pytest.mark.parametrize(
    "settings",
    [
        {"order": 2},
        {"order": 3, "activation": "tanh"},
        {"order": 9, "activation": "sigmoid", "layers": 3},
        {"order": 4, "direct": True},
        {"order": 3, "activation": "leaky-relu", "bias": False},
        {"order": 4, "tied": True},
        {"order": 4, "tied": True, "hidden": 3},
        {"order": 4, "tied": True, "direct": True},
    ],
    ids=str,
)
def test_laws(settings: dict[str, Any]) -> None:
    check(made(**settings))


def test_it_is_a_hidden_layer_over_embeddings_one_after_the_other() -> None:
    """The lecture's equations, a token at a time: h = tanh(W [E x_1; E x_2; E x_3] + b), and U h + U' x + c."""
    network = made(order=4, activation="tanh", direct=True, layers=2).double().eval()
    first, second = network.hidden.linears
    logits_BTV = network.head(network(IDS_BT).features_BTD)
    for row in range(3):
        tokens = [BOS, BOS, *IDS_BT[row].tolist()]
        for t in range(6):
            x = torch.cat([network.embedding.weight[i] for i in tokens[t : t + 3]])
            h = torch.tanh(first.weight @ x + first.bias)
            h = h + torch.tanh(second.weight @ h + second.bias)
            hidden, direct = network.head.weight[:VOCABULARY].split([4, 9], dim=1)
            same(logits_BTV[row, t], hidden @ h + direct @ x + network.head.bias[:VOCABULARY])


def test_it_remembers_n_minus_1_tokens_and_no_more() -> None:
    network = made(order=4).eval()
    before_BTD = network(IDS_BT).features_BTD
    changed_BT = IDS_BT.clone()
    changed_BT[:, 1] = 0
    same_BT = (network(changed_BT).features_BTD == before_BTD).all(dim=2)
    # token 1 is read for the features at 1, 2 and 3
    assert same_BT.tolist() == [[True, False, False, False, True, True]] * 3


def test_parameters_of_the_lectures_network() -> None:
    """V = 10,000, d = 300, m = 500, n = 3: V d + (n-1) d m + m V = 3.0 M + 0.3 M + 5.0 M = 8.3 M, biases apart."""
    config = FeedforwardConfig(order=3, embedding=300, hidden=500)
    with torch.device("meta"):
        sizes = {name: weight.shape for name, weight in Feedforward(config, 10_000, BOS).named_parameters()}
    assert sizes["head.weight"] == (padded_size(10_000), 500) == (10_048, 500)  # 157 times 64
    assert count_parameters(sizes, 10_000) == 8_300_000 + 10_500


def test_dropout_is_for_training() -> None:
    network = made(dropout=0.5)
    assert not torch.equal(network.train()(IDS_BT).features_BTD, network(IDS_BT).features_BTD)
    assert torch.equal(network.eval()(IDS_BT).features_BTD, network(IDS_BT).features_BTD)


@pytest.mark.parametrize("tied", [False, True])
def test_the_first_loss_is_that_of_a_uniform_guess(tied: bool) -> None:
    """It is a little above ln V: at the beginning all tokens should be about equally likely."""
    torch.manual_seed(5)
    network = Feedforward(FeedforwardConfig(tied=tied), 1000, BOS)
    ids_BT = torch.randint(1000, (8, 33))
    nats = network.loss(ids_BT[:, :-1], ids_BT[:, 1:]).nats / (8 * 32)
    assert 6.9 < nats < 7.5  # ln 1000 = 6.908


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"order": 1}, "order should be from 2 to 1000, not 1"),
        ({"hidden": 0}, "hidden should be at least 1, not 0"),
        ({"layers": 1001}, "layers should be at most 1,000, not 1,001"),
        ({"dropout": 1.0}, "dropout should be at least 0 and below 1"),
    ],
)
def test_settings_that_make_no_network(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        made(**settings)
