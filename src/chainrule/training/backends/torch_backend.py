"""Networks of torch as language models, and their engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from chainrule.contract.kinds import TrainingData
from chainrule.errors import DamagedFileError, SettingsError, TrainingError
from chainrule.folder import TENSORS, Context, ModelFolder
from chainrule.inference.model import NeuralModel
from chainrule.inference.torch_model import load_network
from chainrule.networks.loss import BLOCK
from chainrule.networks.network import Network, Trainable
from chainrule.networks.settings import NeuralSettings
from chainrule.system.devices import choose_device
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.backends import Backend, EmbeddingTable
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.engines.torch_step import is_out_of_memory

N = TypeVar("N", bound=Trainable)


class TorchBackend(Backend):
    """Builds, trains and loads the torch networks of one kind."""

    def check(self, settings: NeuralSettings, device: str) -> None:
        if settings.precision == "float8":
            device = choose_device(device)
            if torch.device(device).type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
                raise SettingsError(
                    f"precision=float8 needs a GPU that multiplies 8-bit floats, and {device} does not"
                )

    def build(self, settings: NeuralSettings, data: TrainingData) -> NeuralModel:
        network = self._drawn(lambda: self.network(settings, data.tokenizer.vocab_size, data.tokenizer.bos), data)
        return self._model(network, settings, data.tokenizer, data.context)

    def _drawn(self, make: Callable[[], N], data: TrainingData) -> N:
        """The network that `make` makes, with weights that depend on the seed alone."""
        try:
            with torch.random.fork_rng([]):
                torch.manual_seed(data.seed % 2**63)
                return make()
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError("the network does not fit into memory: set a smaller width, hidden, ...") from None

    def _model(
        self, network: Network, settings: NeuralSettings, tokenizer: Tokenizer, context: Context
    ) -> NeuralModel:
        return NeuralModel(
            network, tokenizer, context, kind=self.kind, settings=settings, slide=settings.slide_share
        )

    def engine(self, lm: NeuralModel, settings: NeuralSettings, data: TrainingData) -> TorchEngine:
        lm.network.head.float8 = _is_float8(settings, lm.network.head.weight)
        return TorchEngine(lm.network, settings, data.device)

    def load_weights(self, lm: NeuralModel, weights: Mapping[str, np.ndarray]) -> None:
        lm.network.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})

    def table(self, lm: NeuralModel) -> EmbeddingTable:
        table = lm.network.table()

        @torch.no_grad()
        def write(ids_N: np.ndarray, rows_ND: np.ndarray) -> None:
            weight = table.weight_VD
            weight[torch.from_numpy(ids_N).to(weight.device)] = torch.from_numpy(rows_ND).to(weight)

        return EmbeddingTable(table.weight_VD.shape[1], table.setting, table.scale, write)

    def load(self, settings: NeuralSettings, folder: ModelFolder) -> NeuralModel:
        tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
        try:
            build = partial(self.network, settings, tokenizer.vocab_size, tokenizer.bos)
            network = load_network(build, folder.tensors)
        except ValueError as error:
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
        return self._model(network, settings, tokenizer, folder.context or "line")


def _is_float8(settings: NeuralSettings, weight_VD: Tensor) -> bool:
    """Whether the settings ask for 8-bit products in the head; a head whose shape rules them out is refused."""
    if settings.precision != "float8":
        return False
    rows, width = weight_VD.shape
    if rows % BLOCK or width % BLOCK:
        raise SettingsError(
            f"precision=float8 takes a head whose sides are multiples of {BLOCK}, not {rows} and {width}: "
            "set another width or vocabulary, or precision=bfloat16"
        )
    return True
