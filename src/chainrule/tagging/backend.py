"""Tagging networks of torch as taggers, and their engine."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import numpy as np

from chainrule.contract.kinds import TrainingData, load_content
from chainrule.errors import DamagedFileError, SettingsError
from chainrule.folder import TENSORS, ModelFolder, read_folder
from chainrule.inference.torch_model import load_network
from chainrule.networks.tagging.tagger import ENCODER, TaggerNetwork
from chainrule.networks.transformer.stack import Encoder
from chainrule.tagging.contract import TAGS
from chainrule.tagging.examples import TaggingData
from chainrule.tagging.model import FREQUENT, PRETRAINED, NeuralTagger
from chainrule.tagging.reading import WordReader
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.backends.torch_backend import TorchBackend


class TaggerBackend(TorchBackend):
    """Builds, trains and loads taggers, which are no language models."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind, TaggerNetwork)

    def build(self, settings: Any, data: TrainingData) -> Any:
        assert isinstance(data, TaggingData)
        tags, pretrained = data.tag_tokenizer, pretrained_model(settings)
        encoder = None
        if pretrained is not None:
            encoder = _with_dropout(pretrained.network.encoder, settings.encoder_dropout)
        network = self._drawn(lambda: _network(settings, data.tokenizer, tags, encoder), data)
        frequent_V = data.most_frequent(WordReader(data.tokenizer, spells=False))
        return NeuralTagger(
            network, data.tokenizer, tags, frequent_V, kind=self.kind, settings=settings, pretrained=pretrained
        )

    def load(self, settings: Any, folder: ModelFolder) -> Any:
        words = parse_tokenizer(folder.tokenizer, str(folder.path))
        if TAGS not in folder.tokenizers:
            raise DamagedFileError(
                f"{folder.path}: it has no tokenizer {TAGS!r}, which the kind {self.kind!r} needs"
            )
        tags = parse_tokenizer(folder.tokenizers[TAGS], str(folder.path))
        pretrained, encoder, arrays = None, None, dict(folder.tensors)
        if settings.pretrained is not None:
            pretrained = load_content(folder.part(PRETRAINED))
            encoder = _encoder_of(pretrained, str(folder.path))
            arrays |= {f"{ENCODER}{name}": weight.numpy() for name, weight in encoder.state_dict().items()}
        try:
            network = load_network(lambda: _network(settings, words, tags, copy.deepcopy(encoder)), arrays)
        except ValueError as error:
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
        frequent_V = np.array(folder.tensor(FREQUENT))
        if (
            frequent_V.shape != (words.vocab_size,)
            or not 0 <= frequent_V.min() <= frequent_V.max() < tags.vocab_size
        ):
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {FREQUENT} is not a tag for each word")
        return NeuralTagger(
            network, words, tags, frequent_V, kind=self.kind, settings=settings, pretrained=pretrained
        )


def pretrained_model(settings: Any) -> Any:
    """The masked model of the settings; None if they name none."""
    if settings.pretrained is None:
        return None
    model = load_content(read_folder(settings.pretrained))
    _encoder_of(model, settings.pretrained)
    return model


def _encoder_of(model: Any, name: str) -> Encoder:
    encoder = getattr(getattr(model, "network", None), "encoder", None)
    if model.kind != "masked" or not isinstance(encoder, Encoder):
        raise SettingsError(
            f"pretrained={name}: a tagger begins from a masked model, and this is one of the kind {model.kind!r}: "
            "chainrule train masked makes one"
        )
    return encoder


def _with_dropout(encoder: Encoder, share: float) -> Encoder:
    """A copy of the encoder that leaves out features in training: it reads few sentences many times."""
    config = dataclasses.replace(encoder.config, dropout=share, attention_dropout=share)
    copied = Encoder(config, len(encoder.embedding))
    copied.load_state_dict(encoder.state_dict())
    return copied


def _network(settings: Any, words: Tokenizer, tags: Tokenizer, encoder: Encoder | None) -> TaggerNetwork:
    return TaggerNetwork(settings, words.vocab_size, len(tags.words), encoder)
