"""The settings of neural classifiers: a recurrent network, a Transformer or a bag of words, and a linear layer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.config import GATES, CellName, leaves_open, share, size
from chainrule.networks.defaults import Cost, RunEstimate, Values, batch_size, dropout_share
from chainrule.networks.settings import NeuralSettings, check_encoder, named, rate_of_encoder, scaled_rate
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.settings import heads_for
from chainrule.settings import setting

EncoderName: TypeAlias = Literal["lstm", "gru", "elman", "transformer", "bagofwords"]
Pooling: TypeAlias = Literal["mean", "last", "first"]


@dataclass(frozen=True)
@leaves_open("average")
class ClassifierSettings(NeuralSettings):
    """A neural classifier and its training."""

    encoder: EncoderName = setting("lstm", "what reads the tokens of a text", common=True)  # noqa: RUF009 (a field)
    pooling: Pooling = setting(  # noqa: RUF009
        "mean",
        "the vector of a text: the mean of its tokens, the last state, or that of the start token",
        common=True,
    )
    bidirectional: bool = setting(True, "lstm, gru, elman: read in both directions, half of the units each")
    layers: int = size(
        1, "layers; of a bag of words, hidden layers over the mean", most=1000, common=True, chosen=True
    )
    width: int = size(128, "features of a token, and units of a layer", common=True, chosen=True)
    embedding: int = size(64, "size of a token's vector; of a transformer, width", common=True, chosen=True)
    heads: int = size(4, "transformer: heads of each attention", chosen=True)
    window: int = size(512, "the most tokens of a text that are read, from its beginning", most=1 << 20)
    dropout: float = share(0.3, "share of features left out in training", common=True, chosen=True)
    pretrained: str | None = setting(
        None, "the folder of a masked model whose encoder and tokenizer to begin from", common=True
    )
    frozen: bool = setting(False, "pretrained: leave the encoder as it is, and train the layer above it")
    encoder_rate: float = rate_of_encoder(
        0.2, "pretrained: the encoder's learning rate, as a share of that of the rest"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.width is not None and self.width % 2 and self.is_recurrent and self.bidirectional:
            raise SettingsError(f"width should be even, for two directions of half of it: {self.width}")
        if self.encoder == "bagofwords" and self.pooling != "mean":
            raise SettingsError(f"a bag of words is a mean: leave out pooling={self.pooling}")
        if self.window < 2:
            raise SettingsError(f"window should be at least 2, the start of a text and a token: {self.window}")
        check_encoder(self, "texts")
        if self.encoder == "transformer" and self.pretrained is None and None not in (self.width, self.heads):
            self.transformer()  # its own checks

    @property
    def is_recurrent(self) -> bool:
        """True if the encoder is a recurrent network."""
        return self.encoder in GATES

    @property
    def cell(self) -> CellName:
        """The cell of a recurrent encoder."""
        assert self.encoder != "transformer" and self.encoder != "bagofwords"
        return self.encoder

    @property
    def tokenizer_folder(self) -> str | None:
        """The folder of the tokenizer that a pretrained encoder takes."""
        return self.pretrained

    @property
    def longest(self) -> int:
        """The most tokens of a text; one place in the window is that of the start token."""
        return self.window - 1

    def transformer(self) -> TransformerConfig:
        """Return the configuration of the blocks, for encoder=transformer."""
        sizes = {name: getattr(self, name) for name in ("layers", "width", "heads", "window")}
        dropout = self.dropout or 0.0
        return TransformerConfig(
            preset="fast", **sizes, dropout=dropout, hidden_dropout=dropout, attention_dropout=round(dropout / 3, 3)
        )

    def sizes(self) -> list[Values]:
        if self.encoder == "transformer":
            return named(("width", "layers"), _BLOCKS)
        return named(("width", "layers", "embedding"), _CELLS if self.is_recurrent else _BAGS)

    def cost(self, vocab_size: int) -> Cost:
        if self.encoder == "transformer":
            return Cost(12 * self.layers * self.width**2, self.width)
        if self.is_recurrent:
            units = self.width // 2 if self.bidirectional else self.width
            sums = self.embedding + self.width * (self.layers - 1) + units * self.layers
            return Cost(GATES[self.cell] * self.width * sums, self.width)
        # a hidden layer is computed once for each text
        inner = self.width * (self.embedding + self.width * (self.layers - 1))
        return Cost(self.embedding + inner // _TOKENS_OF_A_TEXT, 1)

    rates: ClassVar[Mapping[str, float]] = {
        "lstm": 0.048, "gru": 0.04, "elman": 0.02, "transformer": 0.016, "bagofwords": 0.048,
    }  # fmt: skip
    """The learning rate of each encoder times the square root of the width, for adam and adamw."""

    def values_for(self, run: RunEstimate) -> Values:
        rate = self.rates[self.encoder]
        # a text is one example: it is learned by heart in a few epochs. Blocks with much dropout hardly learned
        more, most = (0.1, 0.3) if self.encoder == "transformer" else (0.3, 0.5)
        dropout = round(min(dropout_share(run) + more, most), 3) if run.epochs > 1 else 0.0
        return {
            **super().values_for(run),
            "batch": min(max(2048, batch_size(run)), 8192),
            "learning_rate": scaled_rate({"adam": rate, "adamw": rate}, self.optimiser, self.width),
            "embedding": self.width,  # of a transformer, the only encoder that leaves it open here
            "heads": heads_for(self.width, None),
            "dropout": dropout,
            "average": "ema" if dropout else "none",
        }


_TOKENS_OF_A_TEXT = 32  # about the tokens of a sentence or two

_CELLS = ((32, 1, 32), (64, 1, 64), (128, 1, 64), (192, 1, 96), (256, 1, 128), (384, 1, 192), (512, 2, 256))
"""Units, layers, and the size of a token's vector, of recurrent encoders."""
_BLOCKS = ((32, 1), (64, 2), (128, 2), (192, 3), (256, 4))
"""Width and layers of Transformers."""
_BAGS = ((64, 1, 64), (128, 1, 128), (256, 1, 256))
"""Width, hidden layers, and the size of a token's vector, of bags of words."""
