"""The settings of each neural kind: its configuration and its training."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal, Self

from chainrule.designs.networks import AveragingConfig, FeedforwardConfig, RecurrentConfig
from chainrule.designs.training import TrainingSettings
from chainrule.designs.transformer import TransformerConfig
from chainrule.devices import has_torch
from chainrule.errors import SettingsError
from chainrule.settings import setting

RUNG: dict[str, Any] = {
    "epochs": 20,
    "minutes": 0.5,
    "patience": 3,
    "batch": 256,  # with so little time, many small steps learn more than a few large ones
    "learning_rate": 4e-3,
    "tied": True,
}
"""The settings that rungs of the ladder share, chosen for half a minute of training."""
SMALL = {"embedding": 128, "hidden": 256}
"""The sizes of most rungs."""


@dataclass(frozen=True)
class NeuralSettings(TrainingSettings):
    """The settings of every neural kind, beside those of its architecture."""

    vectors: str | None = setting(None, "a file of word vectors (GloVe or word2vec, text) to begin with")

    @property
    def slide_share(self) -> float:
        """The share of its tokens that a full window drops for new ones, for a network that has a window."""
        return 0.5

    @property
    def chosen_engine(self) -> Literal["torch", "tape"]:
        """The engine that computes the network."""
        return "torch"

    def with_chosen_engine(self) -> Self:
        """These settings with `chosen_engine` instead of auto, for the model folder."""
        return self


@dataclass(frozen=True)
class WindowSettings(NeuralSettings):
    """The settings of a kind that reads through a window."""

    slide: float = setting(0.5, "share of a full window that is dropped to go on; less is slower and sees more")

    @property
    def slide_share(self) -> float:
        return self.slide

    def __post_init__(self) -> None:
        if not 0 < self.slide <= 1:
            raise SettingsError(f"slide should be above 0 and at most 1, not {self.slide}")
        super().__post_init__()


@dataclass(frozen=True)
class AveragingSettings(WindowSettings, AveragingConfig):
    """A bag-of-words network and its training."""


@dataclass(frozen=True)
class TransformerSettings(WindowSettings, TransformerConfig):
    """A Transformer and its training."""


@dataclass(frozen=True)
class EngineSettings(NeuralSettings):
    """The settings of a kind that has two engines."""

    engine: Literal["auto", "torch", "tape"] = setting(
        "auto", "what computes: torch, or the tape, in NumPy; auto: torch where it is installed"
    )

    @property
    def chosen_engine(self) -> Literal["torch", "tape"]:
        if self.engine == "auto":
            return "torch" if has_torch() else "tape"
        return self.engine

    def with_chosen_engine(self) -> Self:
        return replace(self, engine=self.chosen_engine)


@dataclass(frozen=True)
class FeedforwardSettings(EngineSettings, FeedforwardConfig):
    """A feed-forward network and its training."""


@dataclass(frozen=True)
class ElmanSettings(EngineSettings, RecurrentConfig):
    """An Elman network and its training."""

    cell: Literal["elman"] = setting("elman", "what a layer is made of")


@dataclass(frozen=True)
class LstmSettings(EngineSettings, RecurrentConfig):
    """An LSTM and its training."""

    cell: Literal["lstm"] = setting("lstm", "what a layer is made of")


@dataclass(frozen=True)
class GruSettings(EngineSettings, RecurrentConfig):
    """A GRU and its training."""

    cell: Literal["gru"] = setting("gru", "what a layer is made of")
