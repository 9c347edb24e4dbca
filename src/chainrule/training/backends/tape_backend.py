"""Networks on the tape as language models, and their engine: none of it needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from chainrule.autodiff.model import TapeModel, from_folder
from chainrule.autodiff.networks.network import TapeNetwork
from chainrule.contract.kinds import TrainingData
from chainrule.folder import ModelFolder
from chainrule.networks.settings import NeuralSettings
from chainrule.training.backends import Backend, EmbeddingTable
from chainrule.training.engines.tape_engine import TapeEngine, check_offered


class TapeBackend(Backend):
    """Builds, trains and loads the networks of one kind on the tape."""

    network: type[TapeNetwork]

    def __init__(self, kind: str, network: type[TapeNetwork]) -> None:
        super().__init__(kind, network)
        self._randomness: WeakKeyDictionary[TapeModel, np.random.Generator] = WeakKeyDictionary()

    def check(self, settings: NeuralSettings, device: str) -> None:
        check_offered(settings, device)

    def build(self, settings: Any, data: TrainingData) -> TapeModel:
        tokenizer, context, seed = data.tokenizer, data.context, data.seed
        # weights and dropout draw from one generator, one after the other
        randomness = np.random.default_rng(seed % 2**64)
        tensors = self.network.initial(settings, tokenizer.vocab_size, randomness)
        network = self.network(settings, tokenizer.vocab_size, tokenizer.bos, tensors)
        lm = TapeModel(network, tokenizer, context, kind=self.kind, settings=settings, slide=settings.slide_share)
        self._randomness[lm] = randomness
        return lm

    def engine(self, lm: TapeModel, settings: NeuralSettings, data: TrainingData) -> TapeEngine:
        return TapeEngine(lm.network, settings, self._randomness[lm])

    def load_weights(self, lm: TapeModel, weights: Mapping[str, np.ndarray]) -> None:
        for name, parameter in lm.network.parameters.items():
            parameter.out_tensor[...] = weights[name]

    def table(self, lm: TapeModel) -> EmbeddingTable:
        table_VD = lm.network.table.out_tensor

        def write(ids_N: np.ndarray, rows_ND: np.ndarray) -> None:
            table_VD[ids_N] = rows_ND

        return EmbeddingTable(table_VD.shape[1], lm.network.table_setting, lm.network.scale, write)

    def load(self, settings: NeuralSettings, folder: ModelFolder) -> TapeModel:
        return from_folder(folder, settings, self.network)
