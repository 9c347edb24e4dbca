"""The settings of kinds whose layers are recurrent cells or Transformer blocks: encoder-decoders and taggers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.config import CellName, leaves_open, share, size
from chainrule.networks.defaults import RunEstimate, Values, batch_size, dropout_share, least_batch
from chainrule.networks.recurrent.settings import CELL_RATES
from chainrule.networks.settings import NeuralSettings, scaled_rate
from chainrule.networks.training_settings import Optimiser
from chainrule.networks.transformer.config import Preset, TransformerConfig
from chainrule.networks.transformer.settings import BLOCK_RATES, heads_for
from chainrule.settings import setting

AnyCell: TypeAlias = Literal["transformer", "lstm", "gru", "elman"]


@dataclass(frozen=True)
@leaves_open("optimiser", "average")
class CellOrBlockSettings(NeuralSettings):
    """The settings of a kind whose layers are recurrent cells or Transformer blocks."""

    # of a Transformer, the fields that are set as the preset says unless they have a value
    BLOCK_FIELDS: ClassVar[tuple[str, ...]] = ("positions", "hidden", "attention_dropout")

    cell: AnyCell = setting("transformer", "the kind of its layers", common=True)  # noqa: RUF009 (a field)
    bidirectional: bool = setting(True, "cells: layers read in both directions, half of the units each")
    layers: int = size(2, "layers", most=1000, common=True, chosen=True)
    width: int = size(256, "features of a token, and units of a layer", common=True, chosen=True)
    heads: int = size(4, "transformer: heads of each attention", common=True, chosen=True)
    hidden: int | None = size(None, "transformer: features inside a block; none: as the preset")
    window: int = size(256, "transformer: the most tokens read at once", most=1 << 20)
    preset: Preset = setting("fast", "transformer: the design of blocks")  # noqa: RUF009
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] | None = setting(
        None, "transformer: how it knows the position of a token; none: as the preset"
    )
    dropout: float = share(0.1, "share of features left out in training", common=True, chosen=True)
    attention_dropout: float | None = share(
        None, "transformer: share of attention weights left out in training", chosen=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vary_length:
            raise SettingsError("vary_length is for streams of text: set it to no")
        if self.has_blocks and self.layers != 0 and None not in (self.width, self.heads):
            self.transformer()  # its own checks

    @property
    def has_blocks(self) -> bool:
        """True if the layers are Transformer blocks."""
        return self.cell == "transformer"

    def transformer(self, **values: Any) -> TransformerConfig:
        """Return the configuration of the blocks, for cell=transformer; `values` of further fields."""
        chosen = {name: found for name in self.BLOCK_FIELDS if (found := getattr(self, name)) is not None}
        sizes = {name: getattr(self, name) for name in ("preset", "layers", "width", "heads", "window")}
        dropout = self.dropout or 0.0
        return TransformerConfig(**sizes, dropout=dropout, hidden_dropout=dropout, **values, **chosen)

    @property
    def recurrent_cell(self) -> CellName:
        """The cell, where it is a recurrent one."""
        assert self.cell != "transformer"
        return self.cell

    def best_dropout(self, run: RunEstimate) -> float:
        """Return the dropout for a run, where none is set."""
        return dropout_share(run)

    rates: ClassVar[Mapping[str, Mapping[str, float]]] = {"transformer": BLOCK_RATES, **CELL_RATES}
    """The learning rate of each cell times the square root of the width, by optimiser."""

    def values_for(self, run: RunEstimate) -> Values:
        optimiser: Optimiser = self.set_or("optimiser", "muon" if self.has_blocks else "adamw")
        dropout = self.set_or("dropout", self.best_dropout(run))
        return {
            **super().values_for(run),
            "batch": batch_size(run, least_batch(optimiser, self.width)),
            "optimiser": optimiser,
            "learning_rate": scaled_rate(self.rates[self.cell], optimiser, self.width),
            "heads": heads_for(self.width, None),
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "average": "ema" if dropout else "none",
        }
