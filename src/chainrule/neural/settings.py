"""What the neural kinds can be told: no torch here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from chainrule.errors import SettingsError
from chainrule.neural.designs import AveragingConfig, FeedforwardConfig, RecurrentConfig
from chainrule.neural.presets import TransformerConfig
from chainrule.settings import setting
from chainrule.training.plan import TrainingSettings

RUNG: dict[str, Any] = {
    "epochs": 20,
    "minutes": 0.5,
    "patience": 3,
    "batch": 256,  # with so little time, many small steps learn more than a few large ones
    "learning_rate": 4e-3,
    "tied": True,
}
"""A rung of the ladder: small, and as good as it gets in half a minute."""
SMALL = {"embedding": 128, "hidden": 256}
"""The sizes of most rungs."""


@dataclass(frozen=True)
class NeuralSettings(TrainingSettings):
    """What every neural kind can be told, beside its architecture."""

    vectors: str | None = setting(None, "a file of word vectors (GloVe or word2vec, text) to begin with")


@dataclass(frozen=True)
class WindowSettings(NeuralSettings):
    """What a kind that reads through a window can be told."""

    slide: float = setting(0.5, "share of a full window that is dropped to go on; less is slower and sees more")

    def __post_init__(self) -> None:
        if not 0 < self.slide <= 1:
            raise SettingsError(f"slide should be above 0 and at most 1, not {self.slide}")
        super().__post_init__()


@dataclass(frozen=True)
class AveragingSettings(WindowSettings, AveragingConfig):
    """A bag of words and its training."""


@dataclass(frozen=True)
class TransformerSettings(WindowSettings, TransformerConfig):
    """A Transformer and its training."""


@dataclass(frozen=True)
class EngineSettings(NeuralSettings):
    """What a kind that has two engines can be told."""

    engine: Literal["auto", "torch", "tape"] = setting(
        "auto", "what computes: torch, or the tape, in NumPy; auto: torch where it is installed"
    )


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
