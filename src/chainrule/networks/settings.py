"""The settings of each neural kind: its configuration and its training.

What a user does not set of sizes, batch, learning rate and regularisation is left open, and chosen when training
begins: the class of a kind says which sizes there are to choose from, and what goes with a size.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal, Self

from chainrule.errors import SettingsError
from chainrule.networks.config import GATES, BagOfWordsConfig, FeedforwardConfig, RecurrentConfig
from chainrule.networks.defaults import Cost, Prospect, Values, batch_size, dropout_share, least_batch
from chainrule.networks.training_settings import (
    DECAYING,
    LEARNING_RATES,
    Averaging,
    Optimiser,
    Schedule,
    TrainingSettings,
)
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.settings import Groups, left_open, open_names, setting
from chainrule.system.devices import has_torch


@dataclass(frozen=True)
class NeuralSettings(TrainingSettings):
    """The settings of every neural kind, beside those of its architecture."""

    GROUPS: ClassVar[Groups] = {"design": ("vectors",)}

    batch: int = left_open(TrainingSettings, "batch")
    learning_rate: float | None = left_open(TrainingSettings, "learning_rate")
    schedule: Schedule = left_open(TrainingSettings, "schedule")  # noqa: RUF009 (a field, as the others)
    vectors: str | None = setting(None, "a file of word vectors (GloVe or word2vec, text) to begin with")

    @property
    def slide_share(self) -> float:
        """The share of its tokens that a full window drops for new ones, for a network that has a window."""
        return 0.5

    def sizes(self) -> list[Values]:
        """The sizes to choose from, from small to large; a kind without any is trained as it was set."""
        return [{}]

    def cost(self, vocab_size: int) -> Cost:
        """The cost of a token, once the sizes are chosen; 0 if it is not known."""
        return Cost(0, 0)

    def habits(self, prospect: Prospect) -> Values:
        """The values of all other settings that are left open, once the sizes are chosen."""
        return {
            "batch": batch_size(prospect),
            "learning_rate": LEARNING_RATES.get(self.optimiser),
            "schedule": "linear",
        }

    @property
    def chosen_engine(self) -> Literal["torch", "tape"]:
        """The engine that computes the network."""
        return "torch"

    def with_chosen_engine(self) -> Self:
        """These settings with `chosen_engine` instead of auto, for the model folder."""
        return self


@dataclass(frozen=True)
class WindowSettings(NeuralSettings):
    """The settings of a kind that reads through a window."""

    GROUPS: ClassVar[Groups] = {"design": ("slide",)}

    slide: float = setting(0.5, "share of a full window that is dropped to go on; less is slower and sees more")

    @property
    def slide_share(self) -> float:
        return self.slide

    def __post_init__(self) -> None:
        if not 0 < self.slide <= 1:
            raise SettingsError(f"slide should be above 0 and at most 1, not {self.slide}")
        super().__post_init__()


@dataclass(frozen=True)
class EngineSettings(NeuralSettings):
    """The settings of a kind that has two engines."""

    GROUPS: ClassVar[Groups] = {"hardware": ("engine",)}

    engine: Literal["auto", "torch", "tape"] = setting(
        "auto", "what computes: torch, or the tape, in NumPy; auto: torch where it is installed"
    )

    @property
    def chosen_engine(self) -> Literal["torch", "tape"]:
        if self.engine == "auto":
            return "torch" if has_torch() else "tape"
        return self.engine

    def with_chosen_engine(self) -> Self:
        return replace(self, engine=self.chosen_engine)


@dataclass(frozen=True)
class HiddenLayerSettings(EngineSettings):
    """The settings of a kind that is hidden layers over one vector, and no more."""

    embedding: int = left_open(FeedforwardConfig, "embedding")
    hidden: int = left_open(FeedforwardConfig, "hidden")
    dropout: float = left_open(FeedforwardConfig, "dropout")
    tied: bool = left_open(FeedforwardConfig, "tied")

    def sizes(self) -> list[Values]:
        return [{"embedding": size // 2, "hidden": size} for size in _HIDDEN_SIZES]

    def habits(self, prospect: Prospect) -> Values:
        habits = super().habits(prospect)
        if self.optimiser in ("adam", "adamw"):
            habits["learning_rate"] = by_width(0.064, self.hidden)
        # a wide layer has more units to spare
        dropout = round(min(0.5, dropout_share(prospect) * max(1.0, self.hidden / 512)), 3)
        # half as large as of other networks; larger with dropout, whose gradients are noisy
        factor = 0.5 / (1 - dropout) ** 1.5
        return {
            **habits,
            "batch": batch_size(replace(prospect, seen=prospect.seen * factor**2)),
            "dropout": dropout,
            "tied": prospect.vocab_size >= _WORTH_TYING,
        }


@dataclass(frozen=True)
class BagOfWordsSettings(HiddenLayerSettings, WindowSettings, BagOfWordsConfig):
    """A bag-of-words network and its training."""

    embedding: int = left_open(BagOfWordsConfig, "embedding")
    dropout: float = left_open(BagOfWordsConfig, "dropout")

    def cost(self, vocab_size: int) -> Cost:
        return _hidden_layers(self.embedding, self, vocab_size)


@dataclass(frozen=True)
class BlockSettings(NeuralSettings, TransformerConfig):
    """The settings of a kind that is a stack of Transformer blocks."""

    layers: int = left_open(TransformerConfig, "layers")
    width: int = left_open(TransformerConfig, "width")
    heads: int = left_open(TransformerConfig, "heads")
    window: int = left_open(TransformerConfig, "window")
    dropout: float = left_open(TransformerConfig, "dropout")
    attention_dropout: float = left_open(TransformerConfig, "attention_dropout")
    hidden_dropout: float = left_open(TransformerConfig, "hidden_dropout")
    token_dropout: float = left_open(TransformerConfig, "token_dropout")
    weight_decay: float | None = left_open(TrainingSettings, "weight_decay")
    average: Averaging = left_open(TrainingSettings, "average")  # noqa: RUF009 (a field, as the others)
    optimiser: Optimiser = left_open(TrainingSettings, "optimiser")  # noqa: RUF009 (a field, as the others)

    def sizes(self) -> list[Values]:
        return [{"width": width, "layers": layers} for width, layers in _BLOCK_SIZES]

    def cost(self, vocab_size: int) -> Cost:
        # queries and outputs, keys and values, and the feed-forward part
        attention = 2 * self.width * self.head_size * (self.heads + self.kv_heads)
        feed_forward = (3 if self.activation == "swiglu" else 2) * self.width * self.hidden
        return Cost(int(self.layers * (attention + feed_forward)), vocab_size * self.width)

    def habits(self, prospect: Prospect) -> Values:
        on_tape = self.chosen_engine == "tape"  # which has neither Muon nor averaged weights
        best: Optimiser = "adamw" if on_tape else "muon"
        optimiser: Optimiser = best if "optimiser" in open_names(self) else self.optimiser
        rate = {"muon": 0.064, "adam": 0.032, "adamw": 0.032}.get(optimiser)
        dropout = dropout_share(prospect) if "dropout" in open_names(self) else self.dropout
        return {
            **super().habits(prospect),
            "batch": batch_size(prospect, least_batch(optimiser, self.width)),
            "optimiser": optimiser,
            "learning_rate": LEARNING_RATES[optimiser] if rate is None else by_width(rate, self.width),
            "heads": heads_for(self.width, self.kv_heads),
            "window": 256 if prospect.seen > 1e7 else 128,
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "hidden_dropout": dropout,
            "token_dropout": round(dropout / 3, 3),
            "weight_decay": max(DECAYING.get(optimiser, 0.0), dropout) if optimiser in DECAYING else 0.0,
            "average": "ema" if dropout and not on_tape else "none",
        }


@dataclass(frozen=True)
class TransformerSettings(BlockSettings, EngineSettings, WindowSettings):
    """A Transformer and its training."""


@dataclass(frozen=True)
class FeedforwardSettings(HiddenLayerSettings, FeedforwardConfig):
    """A feed-forward network and its training."""

    def cost(self, vocab_size: int) -> Cost:
        return _hidden_layers((self.order - 1) * self.embedding, self, vocab_size)


@dataclass(frozen=True)
class RecurrentSettings(EngineSettings, RecurrentConfig):
    """A recurrent network and its training."""

    embedding: int = left_open(RecurrentConfig, "embedding")
    hidden: int = left_open(RecurrentConfig, "hidden")
    layers: int = left_open(RecurrentConfig, "layers")
    input_dropout: float = left_open(RecurrentConfig, "input_dropout")
    hidden_dropout: float = left_open(RecurrentConfig, "hidden_dropout")
    output_dropout: float = left_open(RecurrentConfig, "output_dropout")
    embedding_dropout: float = left_open(RecurrentConfig, "embedding_dropout")
    weight_dropout: float = left_open(RecurrentConfig, "weight_dropout")
    alpha: float = left_open(RecurrentConfig, "alpha")
    beta: float = left_open(RecurrentConfig, "beta")
    beta1: float = left_open(TrainingSettings, "beta1")
    beta2: float = left_open(TrainingSettings, "beta2")
    clip: float = left_open(TrainingSettings, "clip")
    warmup: float = left_open(TrainingSettings, "warmup")

    def sizes(self) -> list[Values]:
        return [dict(zip(("embedding", "hidden", "layers"), sizes, strict=True)) for sizes in _RECURRENT_SIZES]

    def cost(self, vocab_size: int) -> Cost:
        widths, gates = self.widths, GATES[self.cell]
        below = [self.embedding, *widths[:-1]]
        hidden = sum(gates * (under + width) * width for under, width in zip(below, widths, strict=True))
        if not self.tied:
            return Cost(hidden, vocab_size * widths[-1])
        projection = widths[-1] * self.embedding if widths[-1] != self.embedding else 0
        return Cost(hidden + projection, vocab_size * self.embedding)

    def awd_share(self, prospect: Prospect) -> float:
        """How much of AWD-LSTM's regularisation a run gets, of 1."""
        return min(1.0, dropout_share(prospect) / _FULL_DROPOUT)

    def habits(self, prospect: Prospect) -> Values:
        rate = RECURRENT_RATES[self.cell] if self.optimiser in ("adam", "adamw") else None
        share = self.awd_share(prospect)
        return {
            **super().habits(prospect),
            **({} if rate is None else {"learning_rate": by_width(rate, self.hidden)}),
            **{name: round(value * share, 3) for name, value in _FULL_REGULARISATION.items()},
            # gradients of a network with much dropout are noisy: small and cautious steps, at first above all
            "beta1": round(0.9 - 0.15 * share, 3),
            "beta2": 0.99,
            "clip": round(0.1**share, 3),
            "warmup": round(0.02 + 0.23 * share, 3),
            "schedule": "cosine" if share else "linear",
        }


@dataclass(frozen=True)
class ElmanSettings(RecurrentSettings):
    """An Elman network and its training."""

    cell: Literal["elman"] = setting("elman", "what a layer is made of")

    def sizes(self) -> list[Values]:
        # three layers without gates learned far less than one (docs/defaults.md)
        return [{**sizes, "layers": 1} for sizes in super().sizes()]

    def awd_share(self, prospect: Prospect) -> float:
        return 0.0

    def habits(self, prospect: Prospect) -> Values:
        dropout = round(min(0.5, 2 * dropout_share(prospect)), 3)
        return {**super().habits(prospect), "input_dropout": dropout, "output_dropout": dropout}


@dataclass(frozen=True)
class LstmSettings(RecurrentSettings):
    """An LSTM and its training."""

    cell: Literal["lstm"] = setting("lstm", "what a layer is made of")


@dataclass(frozen=True)
class GruSettings(RecurrentSettings):
    """A GRU and its training."""

    cell: Literal["gru"] = setting("gru", "what a layer is made of")


# -- tables and formulas ----------------------------------------------------------------------------------

_HIDDEN_SIZES = (64, 128, 256, 512, 1024)
"""Hidden units of networks without recurrence and attention; an embedding has half as many numbers."""

_WORTH_TYING = 1000
"""The size of a vocabulary from which on two tables of vectors, for inputs and for outputs, are one too many."""

_BLOCK_SIZES = ((32, 2), (48, 3), (64, 4), (96, 4), (128, 4), (192, 4), (256, 5), (384, 6), (512, 6), (768, 12))
"""Width and layers of Transformers."""

_RECURRENT_SIZES = (
    *((32, 64, 1), (48, 96, 1), (64, 128, 1), (64, 192, 1), (64, 256, 1), (128, 384, 1), (192, 512, 1)),
    *((256, 640, 2), (320, 896, 2), (400, 1152, 3)),
)
"""Numbers of an embedding, units of a layer, and layers of recurrent networks."""

RECURRENT_RATES = {"elman": 0.048, "gru": 0.16, "lstm": 0.18}
"""The learning rate of each cell times the square root of its units, for adam and adamw."""

_FULL_DROPOUT = 0.35
_FULL_REGULARISATION = {
    "input_dropout": 0.6,
    "hidden_dropout": 0.2,
    "output_dropout": 0.4,
    "embedding_dropout": 0.1,
    "weight_dropout": 0.5,
    "alpha": 3.0,
    "beta": 2.0,
}
"""The regularisation of a recurrent network that reads its text dozens of times: that of AWD-LSTM."""


def heads_for(width: int, kv_heads: int | None) -> int:
    """The number of heads: of 32 features each in narrow networks, of about 64 in others."""
    wanted = width / (64 if width >= 256 else 32)
    fitting = [heads for heads in range(1, width + 1) if width % (2 * heads) == 0 and heads % (kv_heads or 1) == 0]
    return min(fitting, key=lambda heads: (abs(heads - wanted), -heads), default=kv_heads or 1)


def by_width(rate: float, width: int) -> float:
    """A learning rate that falls with the square root of the width, from 64 on; two digits are enough."""
    return float(f"{rate / max(64, width) ** 0.5:.2g}")


def _hidden_layers(inputs: int, config: BagOfWordsConfig | FeedforwardConfig, vocab_size: int) -> Cost:
    hidden = inputs * config.hidden + (config.layers - 1) * config.hidden**2
    if not config.tied:
        return Cost(hidden, vocab_size * config.hidden)
    return Cost(hidden + config.hidden * config.embedding, vocab_size * config.embedding)
