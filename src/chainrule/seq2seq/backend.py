"""Encoder-decoders of torch as conditional models, and their engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from chainrule.contract.kinds import TrainingData
from chainrule.errors import DamagedFileError, SettingsError
from chainrule.folder import TENSORS, ModelFolder, read_folder
from chainrule.inference.torch_model import load_network
from chainrule.networks.seq2seq.encoder_decoder import EncoderDecoder
from chainrule.networks.seq2seq.recurrent import RecurrentEncoderDecoder
from chainrule.networks.seq2seq.transformer import TransformerEncoderDecoder
from chainrule.seq2seq.contract import SOURCE
from chainrule.seq2seq.model import EncoderDecoderModel
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import dump_tokenizer, parse_tokenizer
from chainrule.training.backends.torch_backend import TorchBackend


class Seq2SeqBackend(TorchBackend):
    """Builds, trains and loads encoder-decoders."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, make_network)

    def build(self, settings: Any, data: TrainingData) -> EncoderDecoderModel:
        source = data.tokenizer if data.sources is None else data.sources.tokenizer
        network = self._drawn(_maker(settings, data.tokenizer, source), data)
        if settings.pretrained is not None:
            _begin_with(network, read_folder(settings.pretrained), data.tokenizer)
        return EncoderDecoderModel(network, data.tokenizer, source, kind=self.kind, settings=settings)

    def load(self, settings: Any, folder: ModelFolder) -> EncoderDecoderModel:
        tokenizer = source = parse_tokenizer(folder.tokenizer, str(folder.path))
        if SOURCE in folder.tokenizers:
            source = parse_tokenizer(folder.tokenizers[SOURCE], str(folder.path))
        try:
            network = load_network(_maker(settings, tokenizer, source), folder.tensors)
        except ValueError as error:
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
        assert isinstance(network, EncoderDecoder)
        return EncoderDecoderModel(network, tokenizer, source, kind=self.kind, settings=settings)


def make_network(settings: Any, vocab_size: int, bos: int, source_size: int, *, shares: bool) -> EncoderDecoder:
    """The network of the settings; `shares`: sources and targets have one table of embeddings."""
    network = TransformerEncoderDecoder if settings.cell == "transformer" else RecurrentEncoderDecoder
    return network(settings, vocab_size, bos, source_size, shares=shares)


def _maker(settings: Any, tokenizer: Tokenizer, source: Tokenizer) -> Callable[[], EncoderDecoder]:
    shares = settings.shared and source is tokenizer
    return partial(make_network, settings, tokenizer.vocab_size, tokenizer.bos, source.vocab_size, shares=shares)


@torch.no_grad()
def _begin_with(network: EncoderDecoder, folder: ModelFolder, tokenizer: Tokenizer) -> None:
    """Put the weights of a folder into a network; of its tables the rows of the vocabulary, without extra ids."""
    if dump_tokenizer(parse_tokenizer(folder.tokenizer, str(folder.path))) != dump_tokenizer(tokenizer):
        raise SettingsError(
            f"pretrained={folder.path} has another tokenizer: leave out the tokenizer, to take that one"
        )
    for name, weight in network.named_parameters():
        array = folder.tensors.get(name)
        if array is None or array.shape[1:] != weight.shape[1:]:
            raise SettingsError(f"pretrained={folder.path} is another network: {name} does not fit")
        given = torch.from_numpy(array.copy())
        if given.shape == weight.shape:
            weight.copy_(given)
        else:
            weight[: tokenizer.vocab_size] = given[: tokenizer.vocab_size]
