"""The configuration of encoder-decoders: recurrent ones, with or without attention, and Transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.config import GATES, CellName, check_shares, check_sizes
from chainrule.networks.defaults import Cost, Prospect, Values, batch_size, dropout_share, least_batch
from chainrule.networks.settings import RECURRENT_RATES, NeuralSettings, by_width, heads_for
from chainrule.networks.training_settings import LEARNING_RATES, Averaging, Optimiser, TrainingSettings
from chainrule.networks.transformer.config import Activation, Preset, TransformerConfig, blocks_of
from chainrule.settings import Groups, left_open, open_names, setting

Cell: TypeAlias = Literal["transformer", "lstm", "gru", "elman"]
Attention: TypeAlias = Literal["auto", "none", "additive", "dot", "general", "scaled"]
Pretraining: TypeAlias = Literal["none", "spans", "infilling"]

EXTRA_IDS = 64
"""How many ids above the vocabulary stand for gaps in a network that is pretrained."""

OF_A_START = (
    *("cell", "attention", "feeding", "bidirectional", "layers", "width", "heads", "hidden", "window"),
    *("shared", "tied", "preset", "positions", "norm", "placement", "activation"),
    *("scaled_embedding", "embedding_norm", "source_start"),
)
"""The settings that a network which begins with the weights of another one takes from it."""


@dataclass(frozen=True)
class Seq2SeqConfig:
    """The configuration of an encoder-decoder: its encoder and its decoder have the same sizes."""

    GROUPS: ClassVar[Groups] = {
        "size": ("layers", "width", "heads", "hidden", "window"),
        "design": (
            "cell",
            "attention",
            "feeding",
            "bidirectional",
            "shared",
            "tied",
            "preset",
            "positions",
            "norm",
            "placement",
            "activation",
            "scaled_embedding",
            "embedding_norm",
            "source_start",
            "pretrain",
        ),
        "regularisation": ("dropout", "attention_dropout", "token_dropout", "label_smoothing"),
    }

    cell: Cell = setting("transformer", "what its layers are made of")  # noqa: RUF009 (a field, as the others)
    attention: Attention = setting(  # noqa: RUF009
        "auto", "how the decoder looks at the source; auto: scaled for a Transformer, general for other cells"
    )
    feeding: bool = setting(False, "cells: feed what attention found at a step into the next step")
    bidirectional: bool = setting(True, "cells: the encoder reads the source in both directions")
    layers: int = setting(2, "layers of the encoder, and of the decoder")
    width: int = setting(256, "features of a token, and units of a layer")
    heads: int = setting(4, "transformer: heads of each attention")
    hidden: int | None = setting(None, "transformer: features inside a block; none: 4 width")
    window: int = setting(256, "transformer: the most tokens of a source or target read at once")
    shared: bool = setting(True, "one table of embeddings for sources and targets, if they share a tokenizer")
    tied: bool = setting(True, "one table for the embeddings and the logits of targets")
    preset: Preset = setting("fast", "transformer: the design of blocks")  # noqa: RUF009
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] | None = setting(
        None, "transformer: how it knows where a token stands; none: as the preset"
    )
    norm: Literal["layernorm", "rmsnorm"] | None = setting(None, "transformer: the norm; none: as the preset")
    placement: Literal["pre", "post"] | None = setting(None, "transformer: where norms are; none: as the preset")
    activation: Activation | None = setting(  # noqa: RUF009
        None, "transformer: the activation of the feed-forward part; none: as the preset"
    )
    scaled_embedding: bool | None = setting(
        None, "transformer: multiply embeddings by sqrt(width); none: as the preset"
    )
    embedding_norm: bool | None = setting(
        None, "transformer: normalise the sum of embedding and position; none: as the preset"
    )
    source_start: bool = setting(False, "transformer: put <s> before a source")
    pretrain: Pretraining = setting(  # noqa: RUF009
        "none",
        "learn from text alone, to write what was taken out of it (spans), or all of it (infilling)",
    )
    dropout: float = setting(0.1, "share of features left out in training")
    attention_dropout: float | None = setting(None, "transformer: share of attention weights left out")
    token_dropout: float = setting(0.0, "share of tokens whose embedding is left out in training")
    label_smoothing: float = setting(0.1, "share of the target's probability that is spread over all tokens")

    def __post_init__(self) -> None:
        check_sizes(layers=self.layers, width=self.width, heads=self.heads, hidden=self.hidden, window=self.window)
        check_shares(
            dropout=self.dropout,
            attention_dropout=self.attention_dropout,
            token_dropout=self.token_dropout,
            label_smoothing=self.label_smoothing,
        )
        if self.attention == "auto":
            object.__setattr__(self, "attention", "scaled" if self.cell == "transformer" else "general")
        if self.cell == "transformer" and self.attention != "scaled":
            raise SettingsError(
                f"attention={self.attention} goes with recurrent cells: set cell=lstm, gru or elman"
            )
        if self.cell == "transformer" and self.feeding:
            raise SettingsError("feeding=true goes with recurrent cells: set cell=lstm, gru or elman")
        if self.cell != "transformer" and self.source_start:
            raise SettingsError("source_start=true goes with cell=transformer")
        if self.feeding and self.attention == "none":
            raise SettingsError("feeding=true feeds what attention found: set an attention")
        if self.cell != "transformer" and self.bidirectional and self.width is not None and self.width % 2:
            raise SettingsError(f"width should be even, for two directions of half of it: {self.width}")
        if self.cell == "transformer" and None not in (self.width, self.heads):
            self.transformer()  # its own checks

    def transformer(self) -> TransformerConfig:
        """The configuration of the blocks, for cell=transformer."""
        design = ("positions", "norm", "placement", "activation", "scaled_embedding", "embedding_norm")
        return blocks_of(
            self, (*design, "hidden", "attention_dropout"), tied=self.tied, token_dropout=self.token_dropout or 0.0
        )

    @property
    def longest_sides(self) -> tuple[int | None, int | None]:
        """The most tokens of a target and of a source; None: any number."""
        if self.cell != "transformer":
            return None, None
        return self.window, self.window - self.source_start

    @property
    def extra_ids(self) -> int:
        """The number of ids above the vocabulary, which stand for gaps in sources, and in targets of spans."""
        return 0 if self.pretrain == "none" else EXTRA_IDS

    @property
    def recurrent_cell(self) -> CellName:
        """The cell, where it is a recurrent one."""
        assert self.cell != "transformer"
        return self.cell


@dataclass(frozen=True)
class Seq2SeqSettings(NeuralSettings, Seq2SeqConfig):
    """An encoder-decoder and its training."""

    GROUPS: ClassVar[Groups] = {"design": ("pretrained",)}

    pretrained: str | None = setting(
        None, "a model folder of this kind: begin with its weights, sizes and tokenizer"
    )
    layers: int = left_open(Seq2SeqConfig, "layers")
    width: int = left_open(Seq2SeqConfig, "width")
    heads: int = left_open(Seq2SeqConfig, "heads")
    dropout: float = left_open(Seq2SeqConfig, "dropout")
    token_dropout: float = left_open(Seq2SeqConfig, "token_dropout")
    attention_dropout: float | None = left_open(Seq2SeqConfig, "attention_dropout")
    optimiser: Optimiser = left_open(TrainingSettings, "optimiser")  # noqa: RUF009 (a field, as the others)
    average: Averaging = left_open(TrainingSettings, "average")  # noqa: RUF009

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile == "yes":
            raise SettingsError("compile=yes is not offered: sources and targets have too many shapes")
        if self.vary_length:
            raise SettingsError("vary_length is for streams of text: set it to no")

    @property
    def tokenizer_folder(self) -> str | None:
        """The model folder whose tokenizer the training takes."""
        return self.pretrained

    def sizes(self) -> list[Values]:
        sizes = _BLOCKS if self.cell == "transformer" else _CELLS
        return [{"width": width, "layers": layers} for width, layers in sizes]

    def cost(self, vocab_size: int) -> Cost:
        if self.cell == "transformer":
            # self-attention and the feed-forward part of both, cross-attention of the decoder
            hidden = self.transformer().hidden
            inner = self.layers * (12 * self.width**2 + 2 * 2 * self.width * hidden)
        else:
            # half as many units in each direction cost half as much
            inner = self.layers * GATES[self.recurrent_cell] * 2 * self.width**2
            inner = int(inner * (1.5 if self.bidirectional else 2)) + 4 * self.width**2
        # a token of the target comes with about one of the source, and each passes half of this
        return Cost(inner // 2, vocab_size * self.width)

    def habits(self, prospect: Prospect) -> Values:
        is_transformer = self.cell == "transformer"
        optimiser: Optimiser = "muon" if is_transformer else "adamw"
        if "optimiser" not in open_names(self):
            optimiser = self.optimiser
        rate = LEARNING_RATES[optimiser]
        if is_transformer and optimiser in _BLOCK_RATES:
            rate = by_width(_BLOCK_RATES[optimiser], self.width)
        elif not is_transformer and optimiser in ("adam", "adamw"):
            rate = by_width(RECURRENT_RATES[self.recurrent_cell], self.width)
        dropout = min(_MOST_DROPOUT, dropout_share(prospect)) if "dropout" in open_names(self) else self.dropout
        return {
            **super().habits(prospect),
            "batch": batch_size(prospect, least_batch(optimiser, self.width)),
            "optimiser": optimiser,
            "learning_rate": rate,
            "heads": heads_for(self.width, None),
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "token_dropout": round(dropout / 3, 3),
            "average": "ema" if dropout else "none",
        }


_BLOCKS = ((64, 2), (128, 2), (192, 3), (256, 4), (384, 5), (512, 6))
"""Width and layers of Transformers, in the encoder and in the decoder."""

_CELLS = ((64, 1), (128, 1), (192, 1), (256, 1), (384, 1), (512, 2), (768, 2))
"""Units and layers of recurrent encoder-decoders."""

_MOST_DROPOUT = 0.3
"""The most that is left out: a source says most of what its target is, so that less is learned by heart."""

_BLOCK_RATES = {"muon": 0.064, "adam": 0.032, "adamw": 0.032}
"""The learning rate of a Transformer times the square root of its width."""
