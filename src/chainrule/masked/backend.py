"""Masked models in torch: how they are built, trained and loaded."""

from __future__ import annotations

from functools import partial
from typing import Any

from chainrule.contract.kinds import TrainingData
from chainrule.errors import DamagedFileError
from chainrule.folder import TENSORS, ModelFolder
from chainrule.inference.torch_model import load_network
from chainrule.masked.model import EncoderModel
from chainrule.networks.transformer.masked import MaskedTransformer
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.backends.torch_backend import TorchBackend


class MaskedBackend(TorchBackend):
    """Builds, trains and loads masked models."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, MaskedTransformer)

    def build(self, settings: Any, data: TrainingData) -> EncoderModel:  # type: ignore[override]
        network = self._drawn(partial(MaskedTransformer, settings, data.tokenizer.vocab_size), data)
        return EncoderModel(network, data.tokenizer, data.context, kind=self.kind, settings=settings)

    def load(self, settings: Any, folder: ModelFolder) -> EncoderModel:  # type: ignore[override]
        tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
        try:
            network = load_network(partial(MaskedTransformer, settings, tokenizer.vocab_size), folder.tensors)
        except ValueError as error:
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
        context = folder.context or "line"
        return EncoderModel(network, tokenizer, context, kind=self.kind, settings=settings)
