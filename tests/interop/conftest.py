"""Small models of each design, and the peers."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cli.conftest import run  # noqa: F401 (a fixture)

from chainrule.inference.neural_model import NeuralModel
from chainrule.interop import huggingface
from chainrule.networks.transformer.decoder import Transformer
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_tokenizer
from chainrule.tokens.vocabulary import Limit


@dataclass
class Request:
    """A request as lm-evaluation-harness passes it to a model."""

    args: tuple[Any, ...]


@pytest.fixture(scope="session")
def transformers() -> Any:
    """The library, which must not look for anything elsewhere."""
    os.environ["HF_HUB_OFFLINE"] = "1"
    return pytest.importorskip("transformers", reason="transformers, the peer of these tests, is not installed")


@pytest.fixture(scope="session")
def bpe() -> Tokenizer:
    return train_tokenizer("bpe", Corpus.open("builtin:python"), Limit(top=500))


def both_ways(model: Any, folder: Path) -> list[Any]:
    """The model, which is exported to the folder, and the model that is read from there."""
    huggingface.export(model, folder)
    return [model, huggingface.load(folder)]


def small(tokenizer: Tokenizer, context: Any = "stream", **design: Any) -> NeuralModel:
    """A model with weights that give each token another probability, and gains and biases other than 1 and 0."""
    torch.manual_seed(5)
    sizes = {"layers": 2, "width": 32, "heads": 4, "window": 48, "initial_std": 0.3, "zero_init": False}
    settings = TransformerSettings(**{**sizes, **design}, engine="torch")
    network = Transformer(settings, tokenizer.vocab_size, tokenizer.bos)
    with torch.no_grad():
        for name, weight in network.named_parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn_like(weight), alpha=0.2 if name.endswith("weight") else 0.1)
    return NeuralModel(network, tokenizer, context, kind="transformer", settings=settings)
