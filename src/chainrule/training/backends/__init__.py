"""Backends: each builds networks in one framework, as language models, and the engine that trains them.

torch_backend.py   torch: networks of `chainrule.neural`
tape_backend.py    the tape: networks of `chainrule.autodiff`
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.contract.kinds import TrainingData
from chainrule.contract.lm import LanguageModel
from chainrule.folder import ModelFolder
from chainrule.networks.settings import NeuralSettings
from chainrule.training.engines.base import Engine


@dataclass(frozen=True)
class EmbeddingTable:
    """The embedding table of a network, into which word vectors can be written."""

    width: int
    setting: str
    """The name of the setting that decides the width."""
    scale: float
    """The factor by which a row is multiplied when it is looked up."""
    write: Callable[[np.ndarray, np.ndarray], None]
    """Put rows [N, D] into the table at the ids [N]."""


class Backend(ABC):
    """Builds, trains and loads the networks of one kind in one engine."""

    def __init__(self, kind: str, network: Callable[..., Any]) -> None:
        """`network` is the class of the networks."""
        self.kind, self.network = kind, network

    @abstractmethod
    def check(self, settings: NeuralSettings, device: str) -> None:
        """Refuse settings that cannot be computed on the device, which is given by its name."""

    @abstractmethod
    def build(self, settings: NeuralSettings, data: TrainingData) -> LanguageModel:
        """A model with random weights, for the tokenizers of the data."""

    @abstractmethod
    def engine(self, lm: Any, settings: NeuralSettings, data: TrainingData) -> Engine:
        """The engine that trains the network of a model that `build` returned."""

    @abstractmethod
    def load_weights(self, lm: Any, weights: Mapping[str, np.ndarray]) -> None:
        """Put weights, as the engine returned them, into a model."""

    @abstractmethod
    def table(self, lm: Any) -> EmbeddingTable:
        """The embedding table of a model."""

    @abstractmethod
    def load(self, settings: NeuralSettings, folder: ModelFolder) -> LanguageModel:
        """The model of a folder."""
