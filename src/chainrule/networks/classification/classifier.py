"""The network of a classifier.

    h_0 .. h_T = encoder(<s>, x_1 .. x_T)            recurrent, a Transformer, or the vectors of the tokens
    v = 1/(T+1) Σ h_t, the last state, or h_0        the pool: one vector for a text of any length
    p(label | x) = softmax(W v + b)

A bag of words has hidden layers over its mean, v = f(V Σ h_t / (T+1) + c), since nothing else in it is computed.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from chainrule.arrays import PAD
from chainrule.networks.classification.config import ClassifierSettings
from chainrule.networks.layers import Embedding, Head, Table, last_of_rows
from chainrule.networks.network import BatchLoss, Trainable
from chainrule.networks.recurrent.both_ways import BothWays
from chainrule.networks.regularise import Dropout, VariationalDropout
from chainrule.networks.transformer.stack import Encoder

ENCODER = "body.encoder."
"""The beginning of the names of a pretrained encoder's weights in a classifier's network."""


class Read(NamedTuple):
    """What an encoder makes of a batch of texts."""

    features_BSD: Tensor
    """The features of each token; those of padding mean nothing."""
    last_BD: Tensor
    """The features of each text after its last token, by both directions if there are two."""


class ClassifierNetwork(Trainable):
    """Texts in, a distribution over labels for each out."""

    window = None  # the batches cut texts, not the loop

    def __init__(
        self, config: ClassifierSettings, vocab_size: int, labels: int, encoder: Encoder | None = None
    ) -> None:
        """`encoder` is that of a pretrained masked model."""
        super().__init__()
        self.config = config
        self.body: EncoderBody | BagBody
        self.hidden = nn.ModuleList()
        if encoder is not None or config.encoder == "transformer":
            self.body = EncoderBody(encoder or Encoder(config.transformer(), vocab_size))
        elif config.is_recurrent:
            self.body = RecurrentBody(config, vocab_size)
        else:
            self.body = BagBody(config, vocab_size)
            sizes = [config.embedding, *[config.width] * config.layers]
            self.hidden.extend(map(nn.Linear, sizes[:-1], sizes[1:]))
        if encoder is not None and config.frozen:
            encoder.freeze()
        self.dropout = Dropout(config.dropout)
        # not named head: a head predicts tokens of the text
        self.label_head = Head(config.width, labels, bias=True)

    @property
    def head(self) -> Head:
        """The layer that predicts the label."""
        return self.label_head

    def table(self) -> Table:
        """Return the table of tokens, which may be filled with word vectors."""
        return self.body.table()

    def features(self, ids_BS: Tensor) -> Tensor:
        """Return v, the input of the head, [B, D]; rows begin with the start token, and end in PAD."""
        is_token_BS = ids_BS != PAD
        read = self.body(ids_BS.clamp(min=0), is_token_BS)
        if self.config.pooling == "last":
            pooled_BD = read.last_BD
        elif self.config.pooling == "first":
            pooled_BD = read.features_BSD[:, 0]
        else:
            # v = 1/(T+1) Σ h_t
            sums_BD = read.features_BSD.masked_fill(~is_token_BS[..., None], 0.0).sum(dim=1)
            pooled_BD = sums_BD / is_token_BS.sum(dim=1, keepdim=True)
        for linear in self.hidden:
            pooled_BD = torch.relu(linear(self.dropout(pooled_BD)))
        found_BD: Tensor = self.dropout(pooled_BD)
        return found_BD

    def forward(self, ids_BS: Tensor) -> Tensor:
        """Return the logits of the labels of each text, [B, labels]."""
        logits_BK: Tensor = self.label_head(self.features(ids_BS))
        return logits_BK

    def loss(self, inputs: Any, targets_BT: Tensor, memory: Any = None) -> BatchLoss:
        """Return the loss of the labels, [B, 1], of texts; a label that is PAD is not predicted."""
        return BatchLoss(self.label_head.nats(self.features(inputs)[:, None], targets_BT), None, None)

    def step_scale(self, name: str) -> float:
        """Return a small share for a pretrained encoder: small steps keep its knowledge."""
        is_pretrained = self.config.pretrained is not None and name.startswith(ENCODER)
        return self.config.encoder_rate if is_pretrained else 1.0


class BagBody(nn.Module):
    """The vectors of the tokens, whatever their order."""

    def __init__(self, config: ClassifierSettings, vocab_size: int) -> None:
        super().__init__()
        self.embedding = Embedding(vocab_size, config.embedding, tied=False)

    def table(self) -> Table:
        return self.embedding.table()

    def forward(self, ids_BS: Tensor, is_token_BS: Tensor) -> Read:
        vectors_BSD = self.embedding(ids_BS)
        return Read(vectors_BSD, vectors_BSD[:, 0])


class RecurrentBody(BagBody):
    """Recurrent layers over the vectors of the tokens, in one direction or two."""

    def __init__(self, config: ClassifierSettings, vocab_size: int) -> None:
        super().__init__(config, vocab_size)
        self.dropout = VariationalDropout(config.dropout)
        self.stack = BothWays(
            config.cell, config.embedding, config.width, config.layers, config.dropout, both=config.bidirectional
        )

    def forward(self, ids_BS: Tensor, is_token_BS: Tensor) -> Read:
        x_BSD = self.dropout(self.embedding(ids_BS))
        h_BSD, last = self.stack(x_BSD, is_token_BS.sum(dim=1))
        return Read(h_BSD, last[-1][0])


class EncoderBody(nn.Module):
    """A Transformer encoder, in which each token attends to all tokens of its text."""

    def __init__(self, encoder: Encoder) -> None:
        super().__init__()
        self.encoder = encoder

    def table(self) -> Table:
        return self.encoder.table()

    def forward(self, ids_BS: Tensor, is_token_BS: Tensor) -> Read:
        h_BSD = self.encoder(ids_BS, None if bool(is_token_BS.all()) else is_token_BS)
        return Read(h_BSD, last_of_rows(h_BSD, is_token_BS.sum(dim=1), h_BSD[:, 0]))
