"""The settings of Transformers, decoders and masked ones: their configuration and their training."""

from __future__ import annotations

from dataclasses import dataclass, replace

from chainrule.errors import SettingsError
from chainrule.networks.config import Bounds, leaves_open
from chainrule.networks.defaults import (
    Cost,
    RunEstimate,
    Values,
    batch_size,
    dropout_share,
    least_batch,
    rate_of_few_steps,
)
from chainrule.networks.settings import NeuralSettings, TunedSettings, WindowSettings, named, scaled_rate
from chainrule.networks.training_settings import DECAYING, Optimiser
from chainrule.networks.transformer.config import AS_PRESET, TransformerConfig
from chainrule.settings import setting

BLOCK_RATES = {"muon": 0.064, "adam": 0.032, "adamw": 0.032}
"""The learning rate of a Transformer times the square root of its width, by optimiser."""

_masked_share = Bounds("above 0 and below 1", lambda value: 0 < value < 1)

_BLOCK_SIZES = ((32, 2), (48, 3), (64, 4), (96, 4), (128, 4), (192, 4), (256, 5), (384, 6), (512, 6), (768, 12))
"""Width and layers of Transformers."""


@dataclass(frozen=True)
@leaves_open(
    "layers", "width", "heads", "window", "dropout", "attention_dropout", "hidden_dropout", "token_dropout"
)
@leaves_open("weight_decay", "average", "optimiser")
class BlockSettings(NeuralSettings, TransformerConfig):
    """The settings of a kind that is a stack of Transformer blocks."""

    def sizes(self) -> list[Values]:
        return named(("width", "layers"), _BLOCK_SIZES)

    def cost(self, vocab_size: int) -> Cost:
        # queries and outputs, keys and values, and the feed-forward part
        attention = 2 * self.width * self.head_size * (self.heads + self.kv_heads)
        feed_forward = (3 if self.activation == "swiglu" else 2) * self.width * self.hidden
        return Cost(int(self.layers * (attention + feed_forward)), vocab_size * self.width)

    def values_for(self, run: RunEstimate) -> Values:
        on_tape = self.chosen_engine == "tape"  # which does not average weights
        optimiser: Optimiser = self.set_or("optimiser", "muon")
        dropout = self.set_or("dropout", dropout_share(run))
        return {
            **super().values_for(run),
            "batch": batch_size(run, least_batch(optimiser, self.width)),
            "optimiser": optimiser,
            "learning_rate": scaled_rate(BLOCK_RATES, optimiser, self.width),
            "heads": heads_for(self.width, self.kv_heads),
            "window": 256 if run.seen > 1e7 else 128,
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "hidden_dropout": dropout,
            "token_dropout": round(dropout / 3, 3),
            "weight_decay": max(DECAYING[optimiser], dropout) if optimiser in DECAYING else 0.0,
            "average": "ema" if dropout and not on_tape else "none",
        }


@dataclass(frozen=True)
class TransformerSettings(BlockSettings, TunedSettings, WindowSettings):
    """A Transformer and its training."""

    def values_for(self, run: RunEstimate) -> Values:
        values = super().values_for(run)
        if values["optimiser"] in BLOCK_RATES:
            batch = self.set_or("batch", values["batch"])
            values["learning_rate"] = rate_of_few_steps(values["learning_rate"], run, batch)
        return values


MASKED_SHARE = 0.15
"""The share of the tokens that a masked model predicts (Devlin and others 2019)."""


@dataclass(frozen=True)
class MaskedSettings(BlockSettings):
    """A masked model, a Transformer encoder that fills gaps, and its training."""

    share: float = _masked_share(MASKED_SHARE, "share of the tokens that are hidden and predicted", common=True)
    head_layer: bool = setting(
        AS_PRESET, "a layer before the logits, Norm(φ(W h + b)) with φ the activation (default: if preset=bert)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_layer is AS_PRESET:
            object.__setattr__(self, "head_layer", self.preset == "bert")
        if self.head_layer and self.activation == "swiglu":
            raise SettingsError("head_layer has no gate: set another activation than swiglu, or head_layer=false")
        if self.window is not None and self.window < 2:
            raise SettingsError(f"window should be at least 2, the start of a text and a token: {self.window}")
        if self.vary_length:
            raise SettingsError("vary_length is for networks that carry their memory on: set it to no")

    def cost(self, vocab_size: int) -> Cost:
        whole = super().cost(vocab_size)
        # only tokens that are predicted reach the output layer
        return replace(whole, head=int(whole.head * self.share))

    def values_for(self, run: RunEstimate) -> Values:
        # each epoch predicts other tokens of the text, so that it is learned by heart more slowly
        values = super().values_for(replace(run, seen=run.seen * self.share))
        as_read = super().values_for(run)
        # a step should predict as many tokens as that of another network, so it reads more of them
        least = least_batch(as_read["optimiser"], self.width)
        batch = batch_size(replace(run, seen=run.seen / self.share), least)
        return {**values, "batch": batch, "window": as_read["window"]}


def heads_for(width: int, kv_heads: int | None) -> int:
    """Return the number of heads: of 32 features each in narrow networks, of about 64 in others."""
    wanted = width / (64 if width >= 256 else 32)
    fitting = [heads for heads in range(1, width + 1) if width % (2 * heads) == 0 and heads % (kv_heads or 1) == 0]
    return min(fitting, key=lambda heads: (abs(heads - wanted), -heads), default=kv_heads or 1)
