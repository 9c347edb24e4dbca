"""The settings of encoder-decoders: recurrent ones, with or without attention, and Transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.cells_or_blocks import CellOrBlockSettings
from chainrule.networks.config import GATES, share
from chainrule.networks.defaults import Cost, RunEstimate, Values, dropout_share
from chainrule.networks.settings import named
from chainrule.networks.transformer.config import Activation, TransformerConfig
from chainrule.settings import setting

Attention: TypeAlias = Literal["auto", "none", "additive", "dot", "general", "scaled"]
Pretraining: TypeAlias = Literal["none", "spans", "infilling"]

EXTRA_IDS = 64
"""The number of ids above the vocabulary that stand for gaps, in a network that is pretrained."""

OF_A_START = (
    *("cell", "attention", "feeding", "bidirectional", "layers", "width", "heads", "hidden", "window"),
    *("shared", "tied", "preset", "positions", "norm", "placement", "activation"),
    *("scaled_embedding", "embedding_norm", "source_start"),
)
"""The settings that a network takes from the one whose weights it begins with."""


@dataclass(frozen=True)
class Seq2SeqSettings(CellOrBlockSettings):
    """An encoder-decoder, whose encoder and decoder have the same sizes, and its training."""

    BLOCK_FIELDS = (
        *CellOrBlockSettings.BLOCK_FIELDS,
        *("norm", "placement", "activation", "scaled_embedding", "embedding_norm"),
    )

    attention: Attention = setting(  # noqa: RUF009 (a field, as the others)
        "auto",
        "how the decoder looks at the source; auto: scaled for a Transformer, general for other cells",
        common=True,
    )
    feeding: bool = setting(False, "cells: feed the output of attention at a step into the next step")
    shared: bool = setting(True, "one table of embeddings for sources and targets, if they share a tokenizer")
    tied: bool = setting(True, "one table for the embeddings and the logits of targets")
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
        "none", "learn from text alone, to restore the parts taken out of it (spans), or all of it (infilling)"
    )
    token_dropout: float = share(0.0, "share of tokens whose embedding is left out in training", chosen=True)
    split_dropout: float = share(
        0.0, "share of BPE's merges left out in training, others in each epoch: words are split in many ways"
    )
    label_smoothing: float = share(0.1, "share of the target's probability that is spread over all tokens")
    pretrained: str | None = setting(
        None, "a model folder of this kind: begin with its weights, sizes and tokenizer", common=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.attention == "auto":
            object.__setattr__(self, "attention", "scaled" if self.has_blocks else "general")
        if self.has_blocks and self.attention != "scaled":
            raise SettingsError(
                f"attention={self.attention} goes with recurrent cells: set cell=lstm, gru or elman"
            )
        if self.has_blocks and self.feeding:
            raise SettingsError("feeding=true goes with recurrent cells: set cell=lstm, gru or elman")
        if not self.has_blocks and self.source_start:
            raise SettingsError("source_start=true goes with cell=transformer")
        if self.feeding and self.attention == "none":
            raise SettingsError("feeding=true feeds the output of attention: set an attention")
        if not self.has_blocks and self.bidirectional and self.width is not None and self.width % 2:
            raise SettingsError(f"width should be even, for two directions of half of it: {self.width}")
        if self.split_dropout and self.pretrain != "none":
            raise SettingsError(f"split_dropout is for pairs: leave it out with pretrain={self.pretrain}")
        if self.compile == "yes":
            raise SettingsError("compile=yes is not offered: sources and targets have too many shapes")

    def transformer(self, **values: Any) -> TransformerConfig:
        return super().transformer(tied=self.tied, token_dropout=self.token_dropout or 0.0, **values)

    @property
    def longest_sides(self) -> tuple[int | None, int | None]:
        """The most tokens of a target and of a source; None: any number."""
        return (self.window, self.window - self.source_start) if self.has_blocks else (None, None)

    @property
    def extra_ids(self) -> int:
        """The number of ids above the vocabulary, which stand for gaps in sources, and in targets of spans."""
        return 0 if self.pretrain == "none" else EXTRA_IDS

    @property
    def tokenizer_folder(self) -> str | None:
        """The model folder whose tokenizer the training takes."""
        return self.pretrained

    def sizes(self) -> list[Values]:
        return named(("width", "layers"), _BLOCKS if self.has_blocks else _CELLS)

    def cost(self, vocab_size: int) -> Cost:
        if self.has_blocks:
            # self-attention and the feed-forward part of both, cross-attention of the decoder
            inner = self.layers * (12 * self.width**2 + 2 * 2 * self.width * self.transformer().hidden)
        else:
            # half as many units in each direction cost half as much
            inner = self.layers * GATES[self.recurrent_cell] * 2 * self.width**2
            inner = int(inner * (1.5 if self.bidirectional else 2)) + 4 * self.width**2
        # a token of the target comes with about one of the source, and each passes half of this
        return Cost(inner // 2, vocab_size * self.width)

    def best_dropout(self, run: RunEstimate) -> float:
        # a source determines most of its target, so that less is learned by heart
        return min(0.3, dropout_share(run))

    def values_for(self, run: RunEstimate) -> Values:
        values = super().values_for(run)
        return {**values, "token_dropout": values["attention_dropout"]}


_BLOCKS = ((64, 2), (128, 2), (192, 3), (256, 4), (384, 5), (512, 6))
"""Width and layers of Transformers, in the encoder and in the decoder."""

_CELLS = ((64, 1), (128, 1), (192, 1), (256, 1), (384, 1), (512, 2), (768, 2))
"""Units and layers of recurrent encoder-decoders."""
