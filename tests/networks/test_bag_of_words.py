from __future__ import annotations

from typing import Any

import pytest
import torch
from network_laws import BOS, IDS_BT, VOCABULARY, check, same

from chainrule.networks.bag_of_words import BagOfWords
from chainrule.networks.config import BagOfWordsConfig, padded_size
from chainrule.networks.network import Network


def made(**settings: Any) -> BagOfWords:
    torch.manual_seed(3)
    sizes = {"embedding": 3, "hidden": 4, **settings}
    return BagOfWords(BagOfWordsConfig(**sizes), VOCABULARY, BOS)


@pytest.mark.parametrize(
    "settings",
    [{}, {"window": None}, {"layers": 1, "activation": "tanh"}, {"activation": "sigmoid"}, {"tied": True}],
    ids=str,
)
def test_laws(settings: dict[str, Any]) -> None:
    check(made(**settings))


def test_it_is_a_hidden_layer_over_the_mean() -> None:
    """The lecture's equations, a token at a time: h = tanh(W mean(E x_1, ..., E x_t) + b)."""
    network = made(layers=1, activation="tanh").double().eval()
    (linear,) = network.hidden.linears
    features_BTD = network(IDS_BT).features_BTD
    for row in range(3):
        for t in range(6):
            mean = network.embedding(IDS_BT[row, : t + 1]).mean(dim=0)
            same(features_BTD[row, t], torch.tanh(linear.weight @ mean + linear.bias))


def test_the_order_of_the_prefix_does_not_matter() -> None:
    network = made().double().eval()
    mixed_BT = IDS_BT[:, [3, 0, 5, 1, 4, 2]]
    same(network(mixed_BT).features_BTD[:, -1], network(IDS_BT).features_BTD[:, -1])
    assert not torch.allclose(network(mixed_BT).features_BTD[:, 1], network(IDS_BT).features_BTD[:, 1])


def test_a_network_with_a_window_gives_memory_only_for_memory() -> None:
    network = made(window=7)
    assert network.window == 7
    assert network(IDS_BT).memory is None
    assert network(IDS_BT, network.begin(3)).memory.count_B.tolist() == [6, 6, 6]


def test_a_window_is_read_as_by_reading_all_of_it() -> None:
    """Rows of 6, 1 and 0 tokens; the features of a row without tokens mean nothing."""
    network = made(layers=2).double().eval()
    is_token_BT = torch.arange(6) < torch.tensor([6, 1, 0])[:, None]
    features_BD, sums = network.read_window(IDS_BT, is_token_BT)
    plain_BD, plain = Network.read_window(network, IDS_BT, is_token_BT)
    same(features_BD[:2], plain_BD[:2])
    same(sums.sum_BD, plain.sum_BD)
    assert sums.count_B.tolist() == plain.count_B.tolist() == [6, 1, 0]


def test_without_a_window_the_mean_is_over_everything() -> None:
    """It also covers the first half of a text that is read in two pieces."""
    network = made(window=None).double().eval()
    first = network(IDS_BT[:, :3])
    whole_BTD = network(IDS_BT).features_BTD
    same(torch.cat([first.features_BTD, network(IDS_BT[:, 3:], first.memory).features_BTD], dim=1), whole_BTD)
    assert not torch.allclose(network(IDS_BT[:, 3:]).features_BTD, whole_BTD[:, 3:])


def test_a_long_sum_keeps_its_small_terms() -> None:
    """In bfloat16 alone, 1 + 1 + ... stops at 256, and the mean of 1000 ones would be about a quarter."""
    network = made().to(torch.bfloat16).eval()
    torch.nn.init.ones_(network.embedding.weight)
    memory = network(torch.zeros(1, 1000, dtype=torch.long), network.begin(1)).memory
    assert memory.sum_BD.tolist() == [[1000.0, 1000.0, 1000.0]]


def test_parameters() -> None:
    """V d for the embeddings, d m and m m for the layers, m V for the head, and m + m + V biases."""
    rows, d, m = padded_size(VOCABULARY), 3, 4
    count = sum(p.numel() for p in made().parameters())
    assert count == rows * d + d * m + m * m + m * rows + (m + m + rows) == 16 * 3 + 12 + 16 + 64 + 24
