"""The settings of taggers: recurrent networks, in one direction or two, and Transformers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.cells_or_blocks import AnyCell, CellOrBlockSettings
from chainrule.networks.config import GATES, from_zero, share, size
from chainrule.networks.defaults import Cost, RunEstimate, Values, batch_size, dropout_share
from chainrule.networks.settings import check_encoder, named, rate_of_encoder
from chainrule.settings import Groups, setting

Characters: TypeAlias = Literal["none", "lstm", "cnn"]

BYTES = 256
"""A spelling is the bytes of a word between two marks, for its beginning and its end."""
BEGINNING, END = BYTES, BYTES + 1
LONGEST_SPELLING = 32
"""The most bytes of a spelling, marks included; a longer word loses bytes in its middle."""
SPELLED = 32
"""The size of the vector of a byte."""
FILTERS = (2, 3, 4, 5)
"""The number of bytes that each kind of filter of characters=cnn sees at once."""


class WordInputs(NamedTuple):
    """The inputs of a tagger's network for a batch of sentences; arrays that it does not use are empty."""

    words_BT: Any
    """The ids of the words in the table of words; PAD after the last one."""
    distinct_BT: Any
    """The row of `spellings_UC` that has the spelling of each word."""
    spellings_UC: Any
    """The bytes of each distinct word of the batch, then PAD."""
    subwords_BS: Any
    """The subwords of each sentence, for a pretrained encoder; PAD after the last one."""
    word_of_BS: Any
    """The position in its sentence of the word of each subword; the number of columns T if there is no word."""


@dataclass(frozen=True)
class TaggerSettings(CellOrBlockSettings):
    """A tagger and its training."""

    GROUPS: ClassVar[Groups] = {"size": ("layers",)}

    cell: AnyCell = setting("lstm", "the kind of its layers", common=True)  # noqa: RUF009 (a field, as the others)
    characters: Characters = setting(  # noqa: RUF009
        "lstm", "how the spelling of a word is read, also that of an unknown one", common=True
    )
    layers: int = from_zero(
        2,
        "layers over the words of a sentence; 0: each word is tagged by itself",
        most=1000,
        common=True,
        chosen=True,
    )
    embedding: int = size(128, "size of a word's vector", common=True, chosen=True)
    spelling: int = size(128, "size of the features from a word's spelling", chosen=True)
    window: int = size(
        256, "transformer: the most words read at once; a longer sentence is read in pieces", most=1 << 20
    )
    pretrained: str | None = setting(
        None, "the folder of a masked model whose features of words to begin from", common=True
    )
    frozen: bool = setting(False, "pretrained: leave the encoder as it is, and train the layers above it")
    encoder_rate: float = rate_of_encoder(
        0.05, "pretrained: the encoder's learning rate, as a share of that of the rest"
    )
    encoder_dropout: float = share(
        0.1, "pretrained: share of features and attention weights left out in the encoder while it is tuned"
    )
    dropout: float = share(0.33, "share of features left out in training", common=True, chosen=True)
    attention_dropout: float | None = share(
        0.1, "transformer: share of attention weights left out in training", chosen=True
    )
    word_dropout: float = from_zero(
        2.0,
        "a: a word seen n times is read as an unknown one with probability a / (a + n) in training",
        chosen=True,
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("width", "spelling"):
            number = getattr(self, name)
            if number is not None and number % 2:
                raise SettingsError(f"{name} should be even, for two directions of half of it: {number}")
        check_encoder(self, "sentences")

    @property
    def longest(self) -> int | None:
        """The most words that are read at once; None: any number."""
        return self.window if self.has_blocks else None

    def sizes(self) -> list[Values]:
        return named(("width", "layers", "embedding", "spelling"), _BLOCKS if self.has_blocks else _CELLS)

    def cost(self, vocab_size: int) -> Cost:
        below = self.embedding + (self.spelling if self.characters != "none" else 0)
        inner = self._cost_of_spelling()
        if self.has_blocks:
            hidden = self.transformer().hidden if self.layers else 0
            inner += below * self.width + self.layers * (4 * self.width**2 + 2 * self.width * hidden)
        elif self.layers:
            units = self.width // 2 if self.bidirectional else self.width
            sums = below + self.width * (self.layers - 1) + units * self.layers
            inner += GATES[self.recurrent_cell] * self.width * sums
        return Cost(inner, _TAGS * self.width)

    def _cost_of_spelling(self) -> int:
        """Return the parameters for all bytes of a word, halved: half of the words stand in their batch twice."""
        if self.characters == "none":
            return 0
        weights = 4 * self.spelling * (SPELLED + self.spelling // 2)
        if self.characters == "cnn":
            weights = self.spelling * SPELLED * sum(FILTERS) // len(FILTERS)
        return weights * _BYTES_OF_A_WORD // 2

    def best_dropout(self, run: RunEstimate) -> float:
        # rare words are learned by heart in the first epochs
        return min(dropout_share(run) + 0.33, 0.5) if run.epochs > 1 else 0.0

    rates: ClassVar[Mapping[str, Mapping[str, float]]] = {
        cell: {"adam": rate, "adamw": rate, "muon": 0.064}
        for cell, rate in {"lstm": 0.048, "gru": 0.04, "elman": 0.02, "transformer": 0.016}.items()
    }

    def values_for(self, run: RunEstimate) -> Values:
        values = super().values_for(run)
        return {**values, "batch": min(max(256, batch_size(run)), 512), "word_dropout": 2.0}


_TAGS = 20  # about the number of tags in a tag set
_BYTES_OF_A_WORD = 7

_CELLS = ((64, 1, 32, 32), (128, 1, 64, 64), (192, 1, 96, 64), (256, 2, 128, 96), (384, 2, 128, 128))
"""Units, layers, and the sizes of a word's vector and of its spelling's features, of recurrent taggers."""

_BLOCKS = ((64, 2, 64, 32), (128, 2, 128, 64), (192, 3, 192, 64), (256, 4, 256, 96))
"""Width, layers, and the sizes of a word's vector and of its spelling's features, of Transformers."""
