"""Toy sentences, and a masked model that stands in for a pretrained one."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from chainrule.contract.kinds import Kind
from chainrule.contract.model import Model
from chainrule.folder import TEXT, ModelFolder
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.stack import Encoder
from chainrule.settings import parse
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer

TINY: dict[str, Any] = {
    "width": 16,
    "embedding": 8,
    "spelling": 8,
    "layers": 1,
    "batch": 64,
    "precision": "float32",
}
_NOUNS, _VERBS = ["cat", "dog", "mouse", "house"], ["sees", "likes", "hears"]


def sentences(count: int = 60, seed: int = 0) -> list[list[tuple[str, str]]]:
    """Sentences such as the/DET cat/NOUN sees/VERB a/DET dog/NOUN."""
    draw = random.Random(seed)

    def phrase() -> list[tuple[str, str]]:
        return [(draw.choice(["the", "a"]), "DET"), (draw.choice(_NOUNS), "NOUN")]

    return [[*phrase(), (draw.choice(_VERBS), "VERB"), *phrase()] for _ in range(count)]


def tagged_by_the_last_word(count: int, seed: int = 0, *, longest: int = 6) -> list[list[tuple[str, str]]]:
    """Sentences whose words are all tagged by the last one, which only the other direction has read."""
    return [[(word, words[-1].upper()) for word in words] for words in _letters(count, seed, longest)]


def tagged_by_the_first_word(count: int, seed: int = 0, *, longest: int = 6) -> list[list[tuple[str, str]]]:
    """Sentences whose end, a question mark, is tagged by their first word: many to one."""
    every = _letters(count, seed, longest)
    return [[*((word, "O") for word in words), ("?", words[0].upper())] for words in every]


def _letters(count: int, seed: int, longest: int) -> list[list[str]]:
    draw = random.Random(seed)
    return [[draw.choice("abc") for _ in range(draw.randint(2, longest))] for _ in range(count)]


# -- a masked model ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StandInSettings:
    """The sizes of the stand-in."""

    width: int = 16
    window: int = 8


class _Network(nn.Module):
    def __init__(self, settings: StandInSettings, vocab_size: int) -> None:
        super().__init__()
        config = TransformerConfig(layers=1, width=settings.width, heads=2, window=settings.window)
        self.encoder = Encoder(config, vocab_size)


class StandIn(Model):
    """What a tagger needs of a masked model: a network with an encoder, and a tokenizer."""

    kind = "masked"

    def __init__(self, tokenizer: Tokenizer, settings: StandInSettings) -> None:
        torch.manual_seed(0)
        self.network = _Network(settings, tokenizer.vocab_size).eval()
        self.tokenizer, self.settings = tokenizer, settings

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        return {TEXT: self.tokenizer}

    def tensors(self) -> dict[str, np.ndarray]:
        return {name: weight.detach().numpy() for name, weight in self.network.named_parameters()}

    def on(self, device: str, dtype: str = "float32") -> StandIn:
        return self


def _load(folder: ModelFolder) -> StandIn:
    model = StandIn(parse_tokenizer(folder.tokenizer, ""), parse(StandInSettings, folder.config))
    weights = {name: torch.from_numpy(np.array(array)) for name, array in folder.tensors.items()}
    model.network.load_state_dict(weights)
    return model


def _train(settings: Any, data: Any) -> Any:
    raise NotImplementedError


MASKED = Kind("masked", "a stand-in", StandInSettings, _train, _load, task="masked")
tiny = partial(dict, **TINY)
