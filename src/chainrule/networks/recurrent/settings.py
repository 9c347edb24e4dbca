"""The settings of recurrent kinds: their configuration and their training."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from chainrule.networks.config import GATES, QrnnConfig, RecurrentConfig, leaves_open, share
from chainrule.networks.defaults import (
    TOKENS_PER_PARAMETER,
    Cost,
    RunEstimate,
    Values,
    dropout_share,
    rate_of_few_steps,
)
from chainrule.networks.settings import LITTLE_REGULARISED, TunedSettings, named, scaled_rate
from chainrule.settings import Presets, setting

CELL_RATES = {
    cell: {"adam": rate, "adamw": rate}
    for cell, rate in {"elman": 0.048, "gru": 0.16, "lstm": 0.18, "qrnn": 0.1}.items()
}
"""The learning rate of each cell times the square root of its units, by optimiser."""

_RECURRENT_SIZES = (
    *((32, 64, 1), (48, 96, 1), (64, 128, 1), (64, 192, 1), (64, 256, 1), (128, 384, 1), (192, 512, 1)),
    *((256, 640, 1), (320, 896, 1), (256, 640, 2), (320, 896, 2), (400, 1152, 3)),
)
"""Numbers of an embedding, units of a layer, and layers of recurrent networks."""

_DEEP = 10.0
"""Tokens read for each parameter before several recurrent layers pay: with 5, one was better (docs/defaults.md)."""

_GRU_RATE = 1.8
"""The learning rate of a wide GRU times its units, at most (docs/defaults.md)."""

_QRNN_SIZES = (
    *((32, 64, 2), (48, 96, 2), (64, 128, 2), (96, 192, 2), (128, 256, 2)),
    *((128, 256, 3), (192, 384, 3), (256, 512, 3), (320, 896, 3), (400, 1536, 4)),
)
"""The same of quasi-recurrent networks, whose layers are cheaper and remember less: deeper networks are better."""

_FULL_DROPOUT, _LONG_RUN = 0.35, 0.11
"""The dropout that is all of AWD-LSTM's, and the share of it for each doubling of epochs in long runs: WikiText-2's
best were 0.4 after 28 epochs and 0.5 to 0.75 after 76 (docs/defaults.md)."""

_FULL_REGULARISATION = {
    "input_dropout": 0.6,
    "hidden_dropout": 0.2,
    "output_dropout": 0.4,
    "embedding_dropout": 0.1,
    "weight_dropout": 0.5,
    "alpha": 3.0,
    "beta": 2.0,
}
"""The regularisation of a recurrent network that reads its text hundreds of times: that of AWD-LSTM."""


@dataclass(frozen=True)
@leaves_open("embedding", "hidden", "layers", *_FULL_REGULARISATION, "beta1", "beta2", "clip", "warmup")
class RecurrentSettings(TunedSettings, RecurrentConfig):
    """A recurrent network and its training."""

    PRESETS: ClassVar[Presets] = {"lecture": {"biases": 1, "tied": False, "layers": 1}}

    preset: Literal["none", "lecture"] = setting(
        "none", "lecture: one layer, one bias a sum, two tables; gru: reset=before; for settings that are not set"
    )

    def sizes(self) -> list[Values]:
        return named(("embedding", "hidden", "layers"), _RECURRENT_SIZES)

    def cost(self, vocab_size: int) -> Cost:
        widths = self.widths
        hidden = sum(self.layer_cost(*pair) for pair in zip([self.embedding, *widths], widths, strict=False))
        wanted = self.tokens_per_parameter
        if not self.tied:
            return Cost(hidden, vocab_size * widths[-1], wanted)
        projection = widths[-1] * self.embedding if widths[-1] != self.embedding else 0
        return Cost(hidden + projection, vocab_size * self.embedding, wanted)

    @property
    def tokens_per_parameter(self) -> float:
        """The tokens that the network has to read for each parameter of its hidden layers."""
        return _DEEP if self.layers > 1 else TOKENS_PER_PARAMETER

    def layer_cost(self, below: int, width: int) -> int:
        """Return the parameters of a layer of `width` units over one of `below`."""
        return GATES[self.cell] * (below + width) * width

    def awd_share(self, run: RunEstimate) -> float:
        """Return the share of AWD-LSTM's regularisation that a run gets, from 0 to 1."""
        return min(dropout_share(run) / _FULL_DROPOUT, _LONG_RUN * math.log2(max(1.0, run.epochs)), 1.0)

    def values_for(self, run: RunEstimate) -> Values:
        awd = self.awd_share(run)
        return {
            **super().values_for(run),
            "learning_rate": scaled_rate(CELL_RATES[self.cell], self.optimiser, self.hidden),
            **{name: round(value * awd, 3) for name, value in _FULL_REGULARISATION.items()},
            # gradients of a network with much dropout are noisy: small and cautious steps, at first above all
            "beta1": round(0.9 - 0.15 * awd, 3),
            "beta2": 0.99,
            "clip": round(0.1**awd, 3),
            "warmup": round(0.02 + 0.23 * awd, 3),
            "schedule": "cosine" if awd else "linear",
        }


@dataclass(frozen=True)
class ElmanSettings(RecurrentSettings):
    """An Elman network and its training."""

    parameters_per_token: ClassVar[float] = LITTLE_REGULARISED

    cell: Literal["elman"] = setting("elman", "the kind of cells in a layer")

    def sizes(self) -> list[Values]:
        # three layers without gates learned far less than one (docs/defaults.md)
        return [{**sizes, "layers": 1} for sizes in super().sizes()]

    def awd_share(self, run: RunEstimate) -> float:
        return 0.0

    def values_for(self, run: RunEstimate) -> Values:
        values, dropout = super().values_for(run), round(min(0.5, 2 * dropout_share(run)), 3)
        if self.optimiser in CELL_RATES["elman"]:
            batch = self.set_or("batch", values["batch"])
            values["learning_rate"] = rate_of_few_steps(values["learning_rate"], run, batch)
        return {**values, "input_dropout": dropout, "output_dropout": dropout}


@dataclass(frozen=True)
class LstmSettings(RecurrentSettings):
    """An LSTM and its training."""

    cell: Literal["lstm"] = setting("lstm", "the kind of cells in a layer")


@dataclass(frozen=True)
class GruSettings(RecurrentSettings):
    """A GRU and its training."""

    PRESETS: ClassVar[Presets] = {"lecture": {**RecurrentSettings.PRESETS["lecture"], "reset": "before"}}

    cell: Literal["gru"] = setting("gru", "the kind of cells in a layer")

    def values_for(self, run: RunEstimate) -> Values:
        # its one state is what it remembers and what it shows: what these three did to it cost far more than they
        # brought (docs/defaults.md)
        values = {**super().values_for(run), "weight_dropout": 0.0, "alpha": 0.0, "beta": 0.0}
        if self.optimiser in CELL_RATES[self.cell]:
            values["learning_rate"] = min(values["learning_rate"], float(f"{_GRU_RATE / self.hidden:.2g}"))
        return values


@dataclass(frozen=True)
class QrnnSettings(RecurrentSettings, QrnnConfig):
    """A quasi-recurrent network and its training."""

    cell: Literal["qrnn"] = setting("qrnn", "the kind of cells in a layer")
    weight_dropout: float = share(0.0, "share of the weights of a layer left out", chosen=True)

    def sizes(self) -> list[Values]:
        return named(("embedding", "hidden", "layers"), _QRNN_SIZES)

    @property
    def tokens_per_parameter(self) -> float:
        return TOKENS_PER_PARAMETER

    def layer_cost(self, below: int, width: int) -> int:
        return GATES[self.cell] * self.kernel * below * width

    def values_for(self, run: RunEstimate) -> Values:
        # all its weights lead from inputs, and every part left out cost something (docs/defaults.md)
        return {**super().values_for(run), "weight_dropout": 0.0}
