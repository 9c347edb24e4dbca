"""Networks as small as can be, and texts for them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from chainrule.arrays import PAD
from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context
from chainrule.networks.network import BatchLoss, Trainable
from chainrule.networks.training_settings import TrainingSettings
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.ids import Encoded
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.engines.torch_engine import SendingGatherer, TorchEngine
from chainrule.training.layouts import Size, choose_layout
from chainrule.training.loop import Trained, train_network
from chainrule.training.objectives import Feed, NextToken

WORDS = [letter.encode() for letter in "abcdefgh"]
TOKENIZER = WordTokenizer(WORDS)
V = TOKENIZER.vocab_size


def nats(logits_BTV: Tensor, targets_BT: Tensor) -> Tensor:
    return cross_entropy(logits_BTV.float().flatten(0, 1), targets_BT.flatten(), ignore_index=PAD, reduction="sum")


class Bigram(Trainable):
    """The next token by the last one; reads windows."""

    window = 8

    def __init__(self, width: int = 6, dropout: float = 0.0, vocab_size: int = V) -> None:
        super().__init__()
        self.embed = nn.Embedding(vocab_size, width)
        self.hidden = nn.Linear(width, width)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, vocab_size)

    def features(self, ids: Tensor) -> Tensor:
        return self.dropout(torch.tanh(self.hidden(self.embed(ids))))

    def loss(self, inputs_BT: Tensor, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        features_BTD = self.features(inputs_BT.clamp(min=0))
        penalty = 0.01 * features_BTD.square().mean() if self.training else None
        return BatchLoss(nats(self.head(features_BTD), targets_BT), penalty, None)


@dataclass(frozen=True)
class Cells:
    """What an LSTM remembers."""

    hidden: Tensor
    cell: Tensor

    def detach(self) -> Cells:
        return Cells(self.hidden.detach(), self.cell.detach())


class Recurrent(Trainable):
    """An LSTM; carries its memory on."""

    window = None

    def __init__(self, width: int = 6, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = nn.Embedding(V, width)
        self.lstm = nn.LSTM(width, width, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.head = nn.Linear(width, V)

    def loss(self, inputs_BT: Tensor, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        before = None if memory is None else (memory.hidden, memory.cell)
        features_BTD, after = self.lstm(self.embed(inputs_BT.clamp(min=0)), before)
        return BatchLoss(nats(self.head(self.dropout(features_BTD)), targets_BT), None, Cells(*after))


def text(lines: int = 60, longest: int = 20, seed: int = 0) -> Encoded:
    """Lines in which each word is mostly followed by the next of the alphabet."""
    generator = np.random.default_rng(seed)
    ids: list[int] = []
    for _ in range(lines):
        word = int(generator.integers(len(WORDS)))
        for _ in range(int(generator.integers(1, longest))):
            ids.append(3 + word)
            word = (word + 1) % len(WORDS) if generator.random() < 0.9 else int(generator.integers(len(WORDS)))
        ids.append(TOKENIZER.eos)
    return encoded(ids)


def encoded(ids: Any) -> Encoded:
    array = np.asarray(ids, dtype=np.uint16)
    lines = int((array == TOKENIZER.eos).sum())
    return Encoded(array, lines, 2 * len(array), 0, hashlib.sha256(array.tobytes()).hexdigest())


def data(
    context: Any = "stream", valid: bool = True, tokenizer: Tokenizer = TOKENIZER, **others: Any
) -> TrainingData:
    return TrainingData(tokenizer, text(), text(20, seed=1) if valid else None, context, **others)


def gatherer(ids: np.ndarray, context: Context) -> SendingGatherer:
    """Batches of a text for a language model on the CPU."""
    return SendingGatherer(ids, NextToken.of(TOKENIZER, context), torch.device("cpu"))


def feed(ids: np.ndarray, context: Context, window: int | None, size: Size, **others: Any) -> Feed:
    """A text in batches of that size, for a language model on the CPU."""
    layout = choose_layout(ids, TOKENIZER.eos, context, window, size, 0, **others)
    return Feed(layout, gatherer(ids, context))


def train(network: Any, settings: TrainingSettings, texts: TrainingData, **others: Any) -> Trained:
    """Train a network of torch on the device of the texts."""
    return train_network(TorchEngine(network, settings, texts.device), settings, texts, **others)


def seeded(make: Any, **arguments: Any) -> Any:
    """A network whose weights are always the same."""
    torch.manual_seed(0)
    return make(**arguments)
