"""The network of a tagger.

    x_t = [E[word_t]; spelling of word_t]            words.py
    h_t = layers(x_1..x_T)                           recurrent, in one direction or two; or blocks of a Transformer
    p(tag_t | words) = softmax(W h_t + b)

In a deep network that reads both ways, each layer takes both directions of the one below.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from chainrule.arrays import PAD
from chainrule.networks.layers import Head, Table
from chainrule.networks.network import BatchLoss, Trainable
from chainrule.networks.recurrent.both_ways import BothWays
from chainrule.networks.regularise import Dropout, VariationalDropout
from chainrule.networks.tagging.config import TaggerSettings, WordInputs
from chainrule.networks.tagging.words import WordFeatures
from chainrule.networks.transformer.stack import Encoder, Layers

ENCODER = "words.pretrained.encoder."
"""The beginning of the names of a pretrained encoder's weights in a tagger's network."""


class TaggerNetwork(Trainable):
    """Words in, a distribution over tags for each out."""

    window = None  # the batches cut sentences, not the loop

    def __init__(self, config: TaggerSettings, vocab_size: int, tags: int, encoder: Encoder | None = None) -> None:
        """`encoder` is that of a pretrained masked model."""
        super().__init__()
        self.config = config
        self.words = WordFeatures(config, vocab_size, encoder)
        self.layers: RecurrentLayers | BlocksOfWords | None = None
        if config.layers:
            self.layers = (BlocksOfWords if config.cell == "transformer" else RecurrentLayers)(
                config, self.words.width
            )
        self.dropout = Dropout(config.dropout)
        self.input_dropout = VariationalDropout(config.dropout)
        # not named head: a head predicts tokens of the text
        self.tag_head = Head(config.width if config.layers else self.words.width, tags, bias=True)

    @property
    def head(self) -> Head:
        """The layer that predicts the tags."""
        return self.tag_head

    def table(self) -> Table:
        """Return the table of words, which may be filled with word vectors."""
        return self.words.embedding.table()

    def features(self, inputs: WordInputs) -> Tensor:
        """Return h_t, the input of the head, [B, T, D]."""
        x_BTD: Tensor = self.input_dropout(self.words(inputs))
        if self.layers is not None:
            x_BTD = self.layers(x_BTD, inputs.words_BT != PAD)
        features_BTD: Tensor = self.dropout(x_BTD)
        return features_BTD

    def forward(self, inputs: WordInputs) -> Tensor:
        """Return the logits of the tags of each word, [B, T, tags]."""
        logits_BTK: Tensor = self.tag_head(self.features(inputs))
        return logits_BTK

    def loss(self, inputs: Any, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        """Return the loss of tags after `WordInputs`; PAD in the targets is not predicted."""
        return BatchLoss(self.tag_head.nats(self.features(WordInputs(*inputs)), targets_BT), None, None)

    def step_scale(self, name: str) -> float:
        """Return a small share for a pretrained encoder: small steps keep its knowledge."""
        return self.config.encoder_rate if name.startswith(ENCODER) else 1.0

    def flops_per_token(self) -> float:
        """Return the operations of any network, without the tables of words and bytes; each word has one byte."""
        named = self.named_parameters(remove_duplicate=False)
        return 6.0 * sum(weight.numel() for name, weight in named if "embed" not in name and weight.requires_grad)


class RecurrentLayers(nn.Module):
    """Recurrent layers, in one direction or two."""

    def __init__(self, config: TaggerSettings, below: int) -> None:
        super().__init__()
        self.stack = BothWays(
            config.recurrent_cell, below, config.width, config.layers, config.dropout, both=config.bidirectional
        )

    def forward(self, x_BTD: Tensor, is_word_BT: Tensor) -> Tensor:
        h_BTD: Tensor = self.stack(x_BTD, is_word_BT.sum(dim=1))[0]
        return h_BTD


class BlocksOfWords(nn.Module):
    """Blocks of a Transformer: each word attends to all words of its sentence."""

    def __init__(self, config: TaggerSettings, below: int) -> None:
        super().__init__()
        self.below = nn.Linear(below, config.width)
        self.stack = Layers(config.transformer())
        self.stack.initialise()

    def forward(self, x_BTD: Tensor, is_word_BT: Tensor) -> Tensor:
        x_BTD = self.stack.placed(self.below(x_BTD), slice(0, x_BTD.shape[1]))
        return self.stack.seeing_all(x_BTD, is_word_BT)
