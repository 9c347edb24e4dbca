"""The configuration of masked models: Transformer encoders that fill gaps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

from chainrule.errors import SettingsError
from chainrule.networks.defaults import Cost, Prospect, Values, batch_size, least_batch
from chainrule.networks.settings import BlockSettings
from chainrule.networks.transformer.config import AS_PRESET
from chainrule.settings import Groups, setting

SHARE = 0.15
"""The share of the tokens that are predicted (Devlin and others 2019)."""


@dataclass(frozen=True)
class MaskedSettings(BlockSettings):
    """A masked model and its training."""

    GROUPS: ClassVar[Groups] = {"design": ("share", "head_layer")}

    share: float = setting(SHARE, "share of the tokens that are hidden and predicted")

    head_layer: bool = setting(
        AS_PRESET, "a layer before the logits, Norm(φ(W h + b)) with φ the activation (default: if preset=bert)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_layer is AS_PRESET:
            object.__setattr__(self, "head_layer", self.preset == "bert")
        if self.head_layer and self.activation == "swiglu":
            raise SettingsError("head_layer has no gate: set another activation than swiglu, or head_layer=false")
        if not 0 < self.share < 1:
            raise SettingsError(f"share should be above 0 and below 1, not {self.share}")
        if self.window is not None and self.window < 2:
            raise SettingsError(f"window should be at least 2, the start of a text and a token: {self.window}")
        if self.vary_length:
            raise SettingsError("vary_length is for networks that carry their memory on: set it to no")

    def cost(self, vocab_size: int) -> Cost:
        whole = super().cost(vocab_size)
        # only tokens that are predicted reach the output layer
        return replace(whole, head=int(whole.head * self.share))

    def habits(self, prospect: Prospect) -> Values:
        # a text of which other tokens are predicted in each epoch is learned by heart more slowly
        habits = super().habits(replace(prospect, seen=prospect.seen * self.share))
        as_read = super().habits(prospect)
        # a step should learn from as many tokens as that of another network: so it reads more of them
        least = least_batch(as_read["optimiser"], self.width)
        batch = batch_size(replace(prospect, seen=prospect.seen / self.share), least)
        return {**habits, "batch": batch, "window": as_read["window"]}
