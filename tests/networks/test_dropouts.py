"""Every dropout setting acts in training, independently of the others, and never otherwise."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest
import torch
from network_laws import BOS, IDS_BT, VOCABULARY

from chainrule.networks.bag_of_words import BagOfWords
from chainrule.networks.config import BagOfWordsConfig, FeedforwardConfig, RecurrentConfig
from chainrule.networks.feedforward import Feedforward
from chainrule.networks.recurrent.rnn import Recurrent
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer

SIZES = {"embedding": 16, "hidden": 16}
DESIGNS: dict[str, tuple[Any, Any, dict[str, Any]]] = {
    "feedforward": (Feedforward, FeedforwardConfig, SIZES),
    "bagofwords": (BagOfWords, BagOfWordsConfig, SIZES),
    "recurrent": (Recurrent, RecurrentConfig, {**SIZES, "layers": 2}),
    "transformer": (Transformer, TransformerConfig, {"width": 16, "layers": 2, "zero_init": False}),
}
CASES = [
    (design, field.name)
    for design, (_, config, _) in DESIGNS.items()
    for field in fields(config)
    if field.name.endswith("dropout")
]


def made(design: str, **shares: float) -> Any:
    network, config, sizes = DESIGNS[design]
    none = {field.name: 0.0 for field in fields(config) if field.name.endswith("dropout")}
    torch.manual_seed(3)
    return network(config(**{**sizes, **none, **shares}), VOCABULARY, BOS)


@pytest.mark.parametrize(("design", "name"), CASES)
def test_each_dropout_acts_in_training_only(design: str, name: str) -> None:
    plain, dropping = made(design).train(), made(design, **{name: 0.5}).train()
    expected = plain(IDS_BT).features_BTD
    torch.testing.assert_close(plain(IDS_BT).features_BTD, expected)
    torch.manual_seed(0)
    first, second = (dropping(IDS_BT).features_BTD for _ in range(2))
    assert not torch.allclose(first, expected) and not torch.allclose(first, second)
    torch.testing.assert_close(dropping.eval()(IDS_BT).features_BTD, expected)


@pytest.mark.parametrize(
    ("design", "name"),
    [("feedforward", "token_dropout"), ("recurrent", "embedding_dropout"), ("transformer", "token_dropout")],
)
def test_a_token_is_dropped_wherever_it_stands(design: str, name: str) -> None:
    """Rows that differ in one token only, which is dropped in both: at the first place nothing else can differ."""
    network = made(design, **{name: 0.5}).train()
    ids_BT = torch.arange(VOCABULARY)[:, None]
    torch.manual_seed(0)
    features_VD = network(ids_BT).features_BTD[:, 0]
    alike = [torch.allclose(features_VD[i], features_VD[j]) for i in range(VOCABULARY) for j in range(i)]
    kept = VOCABULARY - (1 + (1 + 8 * sum(alike)) ** 0.5) / 2  # of n that are dropped n (n - 1) / 2 pairs are alike
    assert 2 <= kept <= VOCABULARY - 2
