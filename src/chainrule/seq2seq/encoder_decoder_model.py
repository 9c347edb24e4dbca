"""An encoder-decoder network as a conditional language model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from chainrule.arrays import PAD, check_ids, pad, to_numpy
from chainrule.contract.lm import State, start_token
from chainrule.errors import SettingsError
from chainrule.folder import ModelFolder
from chainrule.inference.neural_model import NeuralModel
from chainrule.inference.state import NeuralState
from chainrule.networks.memory import Memory
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.networks.seq2seq.recurrent import RecurrentEncoderDecoder
from chainrule.networks.seq2seq.transformer import TransformerEncoderDecoder
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import dump_tokenizer


class EncoderDecoderModel(ConditionalModel, NeuralModel):
    """An encoder-decoder, and the tokenizers of both sides."""

    network: EncoderDecoder
    _scores_by_windows = False  # windows are scored without a memory, which holds the source

    def __init__(
        self,
        network: EncoderDecoder,
        tokenizer: Tokenizer,
        source_tokenizer: Tokenizer,
        *,
        kind: str,
        settings: Any,
    ) -> None:
        NeuralModel.__init__(self, network, tokenizer, "line", kind=kind, settings=settings)
        self.source_tokenizer = source_tokenizer

    @property
    def longest_source(self) -> int | None:
        return self.network.source_window

    def start(self, batch_size: int) -> NeuralState:
        state = ConditionalModel.start(self, batch_size)
        assert isinstance(state, NeuralState)
        return state

    @torch.inference_mode()
    def begin(self, sources: Sequence[np.ndarray]) -> NeuralState:
        if not sources:
            return self.start(1).select(np.zeros(0, np.int64))
        source_BS = pad(sources)
        check_ids(source_BS, self.source_tokenizer.vocab_size)
        ids_BS = torch.from_numpy(source_BS).to(self.torch_device)
        memory = self.network.begin_from(ids_BS.clamp(min=0), ids_BS != PAD)
        return self._after_start(memory, len(sources))

    def _restarted(self, state: State) -> Memory:
        assert isinstance(state, NeuralState)
        return self.network.restart(state.memory)  # type: ignore[arg-type]

    @torch.inference_mode()
    def attention_weights(self, source: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        source_BS = torch.from_numpy(pad([source])).to(self.torch_device)
        memory = self.network.begin_from(source_BS, source_BS != PAD)
        # the token before each target token is read when that is predicted
        read = torch.from_numpy(pad([[start_token(self.tokenizer, self.context), *target[:-1]]])).to(
            self.torch_device
        )
        kept: list[torch.Tensor] = []
        self.network(read, memory, None, kept)
        # without that of <s> before the source, where the network puts one
        return (
            to_numpy(torch.stack([weights_BHTS[0, ..., -len(source) :] for weights_BHTS in kept])) if kept else None
        )


def make_network(settings: Any, vocab_size: int, bos: int, source_size: int, *, shares: bool) -> EncoderDecoder:
    """Return the network of the settings; `shares`: sources and targets have one table of embeddings."""
    network = TransformerEncoderDecoder if settings.cell == "transformer" else RecurrentEncoderDecoder
    return network(settings, vocab_size, bos, source_size, shares=shares)


@torch.no_grad()
def copy_pretrained(folder: ModelFolder, model: EncoderDecoderModel) -> EncoderDecoderModel:
    """Copy the weights of a folder into a model, and return it; tables get the rows of the vocabulary alone."""
    tokenizer = model.tokenizer
    if dump_tokenizer(folder.parsed_tokenizer()) != dump_tokenizer(tokenizer):
        raise SettingsError(
            f"pretrained={folder.path} has another tokenizer: leave out the tokenizer, to take that one"
        )
    for name, weight in model.network.named_parameters():
        array = folder.tensors.get(name)
        if array is None or array.shape[1:] != weight.shape[1:]:
            raise SettingsError(f"pretrained={folder.path} is another network: {name} does not fit")
        given = torch.from_numpy(array.copy())
        if given.shape == weight.shape:
            weight.copy_(given)
        else:  # the extra ids of pretraining are left out
            weight[: tokenizer.vocab_size] = given[: tokenizer.vocab_size]
    return model
