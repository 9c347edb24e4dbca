"""The configuration of taggers: recurrent networks, in one direction or two, and Transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.config import GATES, CellName, check_shares, check_sizes
from chainrule.networks.defaults import Cost, Prospect, Values, dropout_share
from chainrule.networks.settings import NeuralSettings, by_width, heads_for
from chainrule.networks.training_settings import LEARNING_RATES, Averaging, Optimiser, TrainingSettings
from chainrule.networks.transformer.config import Preset, TransformerConfig, blocks_of
from chainrule.settings import Groups, left_open, open_names, setting

Cell: TypeAlias = Literal["lstm", "gru", "elman", "transformer"]
Characters: TypeAlias = Literal["none", "lstm", "cnn"]

BYTES = 256
"""A spelling is the bytes of a word, between two marks: where it begins and where it ends."""
BEGINNING, END = BYTES, BYTES + 1
LONGEST_SPELLING = 32
"""The most bytes of a spelling, marks included; of a longer word, those in the middle are left out."""


class WordInputs(NamedTuple):
    """What a tagger's network takes of a batch of sentences; arrays that it has no use for are empty."""

    words_BT: Any
    """The ids of the words in the table of words; PAD after the last one."""
    distinct_BT: Any
    """Which of the batch's distinct words each word is: a row of `spellings_UC`."""
    spellings_UC: Any
    """The bytes of each distinct word, filled up with PAD."""
    subwords_BS: Any
    """The subwords of each sentence, for a pretrained encoder; PAD after the last one."""
    word_of_BS: Any
    """The position in its sentence of the word that a subword is of; the number of columns T for one of no word."""


@dataclass(frozen=True)
class TaggerConfig:
    """The configuration of a tagger."""

    GROUPS: ClassVar[Groups] = {
        "size": ("layers", "width", "embedding", "spelling", "heads", "hidden", "window"),
        "design": ("cell", "bidirectional", "characters", "preset", "positions", "pretrained", "frozen"),
        "optimisation": ("encoder_rate",),
        "regularisation": ("dropout", "attention_dropout", "word_dropout", "encoder_dropout"),
    }

    cell: Cell = setting("lstm", "what its layers are made of")  # noqa: RUF009 (a field, as the others)
    bidirectional: bool = setting(True, "cells: layers read the sentence in both directions")
    characters: Characters = setting(  # noqa: RUF009
        "lstm", "how the spelling of a word is read, also that of an unknown one"
    )
    layers: int = setting(2, "layers over the words of a sentence; 0: each word is tagged by itself")
    width: int = setting(256, "units of a layer, of both directions together")
    embedding: int = setting(128, "numbers of a word's vector")
    spelling: int = setting(128, "numbers of what is read of a word's spelling")
    heads: int = setting(4, "transformer: heads of each attention")
    hidden: int | None = setting(None, "transformer: features inside a block; none: as the preset")
    window: int = setting(256, "transformer: the most words read at once; a longer sentence is read in pieces")
    preset: Preset = setting("fast", "transformer: the design of blocks")  # noqa: RUF009
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] | None = setting(
        None, "transformer: how it knows where a word stands; none: as the preset"
    )
    pretrained: str | None = setting(None, "the folder of a masked model whose features of words to begin from")
    frozen: bool = setting(False, "pretrained: leave the encoder as it is, and train what is above it")
    encoder_rate: float = setting(0.05, "pretrained: the encoder's learning rate, as a share of that of the rest")
    encoder_dropout: float = setting(
        0.1, "pretrained: share of features and attention weights left out in the encoder while it is tuned"
    )
    dropout: float = setting(0.33, "share of features left out in training")
    attention_dropout: float = setting(0.1, "transformer: share of attention weights left out in training")
    word_dropout: float = setting(
        2.0, "a: a word seen n times is read as an unknown one with probability a / (a + n) in training"
    )

    def __post_init__(self) -> None:
        check_sizes(layers=self.layers or None, width=self.width, embedding=self.embedding, spelling=self.spelling)
        check_sizes(heads=self.heads, hidden=self.hidden, window=self.window)
        check_shares(dropout=self.dropout, attention_dropout=self.attention_dropout)
        check_shares(encoder_dropout=self.encoder_dropout)
        if not 0 < self.encoder_rate < float("inf"):
            raise SettingsError(f"encoder_rate should be above 0, not {self.encoder_rate}; frozen=true is for none")
        if self.word_dropout is not None and not 0 <= self.word_dropout < float("inf"):
            raise SettingsError(f"word_dropout should be at least 0, not {self.word_dropout}")
        for name in ("width", "spelling"):
            size = getattr(self, name)
            if size is not None and size % 2:
                raise SettingsError(f"{name} should be even, for two directions of half of it: {size}")
        if self.frozen and self.pretrained is None:
            raise SettingsError("frozen=true is for a pretrained encoder: set pretrained=DIR")
        if self.cell == "transformer" and None not in (self.layers, self.width, self.heads) and self.layers:
            self.transformer()  # its own checks

    def transformer(self) -> TransformerConfig:
        """The configuration of the blocks, for cell=transformer."""
        return blocks_of(self, ("positions", "hidden"), attention_dropout=self.attention_dropout or 0.0)

    @property
    def recurrent_cell(self) -> CellName:
        """The cell, where it is a recurrent one."""
        assert self.cell != "transformer"
        return self.cell

    @property
    def longest(self) -> int | None:
        """The most words that are read at once; None: any number."""
        return self.window if self.cell == "transformer" else None


@dataclass(frozen=True)
class TaggerSettings(NeuralSettings, TaggerConfig):
    """A tagger and its training."""

    layers: int = left_open(TaggerConfig, "layers")
    width: int = left_open(TaggerConfig, "width")
    embedding: int = left_open(TaggerConfig, "embedding")
    spelling: int = left_open(TaggerConfig, "spelling")
    heads: int = left_open(TaggerConfig, "heads")
    dropout: float = left_open(TaggerConfig, "dropout")
    attention_dropout: float = left_open(TaggerConfig, "attention_dropout")
    word_dropout: float = left_open(TaggerConfig, "word_dropout")
    optimiser: Optimiser = left_open(TrainingSettings, "optimiser")  # noqa: RUF009 (a field, as the others)
    average: Averaging = left_open(TrainingSettings, "average")  # noqa: RUF009

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.compile == "yes":
            raise SettingsError("compile=yes is not offered: sentences have too many shapes")
        if self.vary_length:
            raise SettingsError("vary_length is for streams of text: set it to no")
        if self.vectors is not None and self.pretrained is not None:
            raise SettingsError("vectors and pretrained are two ways to begin: set one of them")

    def sizes(self) -> list[Values]:
        names = ("width", "layers", "embedding", "spelling")
        return [dict(zip(names, sizes, strict=True)) for sizes in (_BLOCKS if self._has_blocks else _CELLS)]

    @property
    def _has_blocks(self) -> bool:
        return self.cell == "transformer"

    def cost(self, vocab_size: int) -> Cost:
        below = self.embedding + (self.spelling if self.characters != "none" else 0)
        inner = self._cost_of_spelling()
        if self._has_blocks:
            hidden = self.transformer().hidden if self.layers else 0
            inner += below * self.width + self.layers * (4 * self.width**2 + 2 * self.width * hidden)
        elif self.layers:
            units = self.width // 2 if self.bidirectional else self.width
            sums = below + self.width * (self.layers - 1) + units * self.layers
            inner += GATES[self.recurrent_cell] * self.width * sums
        return Cost(inner, _TAGS * self.width)

    def _cost_of_spelling(self) -> int:
        """Of all bytes of a word; every other word is one that stands in its batch more than once."""
        if self.characters == "none":
            return 0
        weights = 4 * self.spelling * (SPELLED + self.spelling // 2)
        if self.characters == "cnn":
            weights = self.spelling * SPELLED * sum(FILTERS) // len(FILTERS)
        return weights * _BYTES_OF_A_WORD // 2

    def habits(self, prospect: Prospect) -> Values:
        optimiser: Optimiser = "muon" if self._has_blocks else "adamw"
        if "optimiser" not in open_names(self):
            optimiser = self.optimiser
        rate = LEARNING_RATES[optimiser]
        if optimiser in ("adam", "adamw", "muon"):
            rate = by_width(_RATES[self.cell if optimiser != "muon" else "muon"], self.width)
        dropout = min(dropout_share(prospect) + _LEAST_DROPOUT, _MOST_DROPOUT) if prospect.epochs > 1 else 0.0
        return {
            **super().habits(prospect),
            "batch": min(max(_SMALL_BATCH, super().habits(prospect)["batch"]), _LARGE_BATCH),
            "optimiser": optimiser,
            "learning_rate": rate,
            "heads": heads_for(self.width, None),
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "word_dropout": _WORD_DROPOUT,
            "average": "ema" if dropout else "none",
        }


SPELLED = 32
"""Numbers of the vector of a byte."""
FILTERS = (2, 3, 4, 5)
"""How many bytes each kind of filter of characters=cnn sees at once."""

_TAGS = 20  # about as many as there are
_BYTES_OF_A_WORD = 7
_LEAST_DROPOUT, _MOST_DROPOUT = 0.33, 0.5  # rare words are learned by heart in the first epochs
_WORD_DROPOUT = 2.0
_SMALL_BATCH, _LARGE_BATCH = 256, 512

_CELLS = ((64, 1, 32, 32), (128, 1, 64, 64), (192, 1, 96, 64), (256, 2, 128, 96), (384, 2, 128, 128))
"""Units, layers, numbers of a word and of a spelling, of recurrent taggers."""

_BLOCKS = ((64, 2, 64, 32), (128, 2, 128, 64), (192, 3, 192, 64), (256, 4, 256, 96))
"""Width, layers, numbers of a word and of a spelling, of Transformers."""

_RATES = {"lstm": 0.048, "gru": 0.04, "elman": 0.02, "transformer": 0.016, "muon": 0.064}
"""The learning rate of each cell times the square root of the width: for adam and adamw, and for muon."""
