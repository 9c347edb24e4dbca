"""What settings of neural kinds have in common, and those of feed-forward and bag-of-words networks.

Sizes, batch, learning rate and regularisation that a user does not set are left open, and chosen when training
begins: the class of a kind declares the sizes to choose from, and the values that go with a size.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.config import (
    BagOfWordsConfig,
    Bounds,
    FeedforwardConfig,
    HiddenLayersConfig,
    leaves_open,
    regularisers,
)
from chainrule.networks.defaults import PARAMETERS_PER_TOKEN, Cost, RunEstimate, Values, batch_size, dropout_share
from chainrule.networks.training_settings import LEARNING_RATES, Optimiser, TrainingSettings
from chainrule.settings import Groups, Presets, open_names, setting
from chainrule.system.devices import has_torch
from chainrule.text.templates import TEMPLATE, check_template

EngineName: TypeAlias = Literal["torch", "tape"]
AUTO = "auto"
"""The value of `base` for an n-gram model that is counted on the training text."""

LITTLE_REGULARISED = 1.5
"""The most hidden parameters for each token of the text, for networks that have dropout only (docs/defaults.md)."""

rate_of_encoder = Bounds(
    "above 0 (frozen=true leaves the encoder as it is)", lambda value: 0 < value < math.inf, "optimisation"
)
"""A share of the learning rate, for an encoder that was pretrained."""

_slide = Bounds("above 0 and at most 1", lambda value: 0 < value <= 1)

# -- parts of settings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
@leaves_open("batch", "learning_rate", "schedule", "regularise")
class NeuralSettings(TrainingSettings):
    """The settings of every neural kind, beside those of its architecture."""

    parameters_per_token: ClassVar[float] = PARAMETERS_PER_TOKEN
    """The most parameters in hidden layers for each token of the text."""

    vectors: str | None = setting(None, "a file of word vectors (GloVe or word2vec, text) to begin with")

    @property
    def slide_share(self) -> float:
        """The share of its tokens that a full window drops for new ones, for a network that has a window."""
        return float(getattr(self, "slide", 0.5))

    def sizes(self) -> list[Values]:
        """Return the sizes to choose from, from small to large; [{}] if there is no choice."""
        return [{}]

    def cost(self, vocab_size: int) -> Cost:
        """Return the cost of a token, once the sizes are chosen; 0 if it is not known."""
        return Cost(0, 0)

    def parameters(self, vocab_size: int) -> int:
        """Return about how many parameters the network has, once the sizes are chosen; biases are not counted."""
        cost, width = self.cost(vocab_size), getattr(self, "embedding", getattr(self, "width", 0))
        return cost.hidden + cost.head + (0 if getattr(self, "tied", False) else vocab_size * width)

    def values_for(self, run: RunEstimate) -> Values:
        """Return the values of all other settings that are left open, once the sizes are chosen."""
        return {
            "batch": batch_size(run),
            "learning_rate": LEARNING_RATES.get(self.optimiser),
            "schedule": "linear",
            "regularise": "as-needed" if self.leaves_regularisation_open else "always",
        }

    @property
    def leaves_regularisation_open(self) -> bool:
        """True if nothing of the regularisation that a rule would choose has a value yet."""
        chosen = {field.name for field in fields(self) if field.metadata.get("open")} & {*regularisers(self)}
        return bool(chosen) and chosen <= {*open_names(self)}

    def set_or(self, name: str, otherwise: Any) -> Any:
        """Return the value of a setting; the other value while it is left open."""
        value = getattr(self, name)
        return otherwise if value is None else value

    @property
    def chosen_engine(self) -> EngineName:
        """The engine that computes the network."""
        return "torch"

    def with_engine(self, engine: EngineName) -> Self:
        """Return these settings with an engine instead of auto, for the model folder."""
        return self


@dataclass(frozen=True)
class WindowSettings(NeuralSettings):
    """The settings of a kind that reads through a window."""

    slide: float = _slide(
        0.5, "share of a full window that is dropped for new tokens; less is slower and sees more"
    )


@dataclass(frozen=True)
class EngineSettings(NeuralSettings):
    """The settings of a kind that has two engines."""

    GROUPS: ClassVar[Groups] = {"hardware": ("engine",)}

    engine: Literal["auto", "torch", "tape"] = setting(
        "auto",
        "the library that computes: torch, or the tape, in NumPy; auto: the faster one of a run by the clock "
        "on a CPU, otherwise torch where it is installed",
    )
    base: str | None = setting(
        None,
        "an n-gram model folder, whose ln p is added to the logits: the network learns what it does not predict; "
        "auto: a 5-gram model of the training text",
    )

    @property
    def tokenizer_folder(self) -> str | None:
        """The model folder whose tokenizer the training takes."""
        return None if self.base == AUTO else self.base

    @property
    def chosen_engine(self) -> EngineName:
        if self.engine == "auto":
            return "torch" if has_torch() else "tape"
        return self.engine

    def with_engine(self, engine: EngineName) -> Self:
        return replace(self, engine=engine)


@dataclass(frozen=True)
class TunedSettings(EngineSettings):
    """The settings of a kind that, once it is trained on text, can be tuned on prompts and their replies."""

    pretrained: str | None = setting(
        None, "a model folder of this kind: tune it on pairs, each a prompt and its reply", common=True
    )
    template: str | None = setting(
        None, f"pretrained: how a prompt is written (default: that of the folder, or '{TEMPLATE}')"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.template is not None:
            check_template(self.template)
        if self.vectors is not None and self.pretrained is not None:
            raise SettingsError("vectors and pretrained are two ways to begin: set one of them")
        if self.base is not None and self.pretrained is not None:
            raise SettingsError("a model that is tuned has no base: leave out base or pretrained")

    @property
    def tokenizer_folder(self) -> str | None:
        return self.pretrained or super().tokenizer_folder

    @property
    def is_tuned(self) -> bool:
        """True if the model learns from prompts and replies, and not from text."""
        return self.pretrained is not None


def check_encoder(settings: Any, examples: str) -> None:
    """Check settings of a kind that may begin with a pretrained encoder, and that reads whole examples."""
    if settings.frozen and settings.pretrained is None:
        raise SettingsError("frozen=true is for a pretrained encoder: set pretrained=DIR")
    if settings.vectors is not None and settings.pretrained is not None:
        raise SettingsError("vectors and pretrained are two ways to begin: set one of them")
    if settings.compile == "yes":
        raise SettingsError(f"compile=yes is not offered: {examples} have too many shapes")


# -- hidden layers ----------------------------------------------------------------------------------------

_WORTH_TYING = 1000
"""The size of a vocabulary from which on one table of vectors serves inputs and outputs better than two."""


@dataclass(frozen=True)
class HiddenLayerSettings(EngineSettings, HiddenLayersConfig):
    """The settings of a kind that has hidden layers over one vector, and no other layers."""

    parameters_per_token: ClassVar[float] = LITTLE_REGULARISED

    def sizes(self) -> list[Values]:
        return [{"embedding": hidden // 2, "hidden": hidden} for hidden in (64, 128, 256, 512, 1024)]

    def cost(self, vocab_size: int) -> Cost:
        hidden = self.inputs * self.hidden + (self.layers - 1) * self.hidden**2
        if not self.tied:
            return Cost(hidden, vocab_size * self.hidden)
        return Cost(hidden + self.hidden * self.embedding, vocab_size * self.embedding)

    def values_for(self, run: RunEstimate) -> Values:
        # a wide layer has more units to spare
        dropout = round(min(0.5, dropout_share(run) * max(1.0, self.hidden / 512)), 3)
        # half as large as of other networks; larger with dropout, whose gradients are noisy
        factor = 0.5 / (1 - dropout) ** 1.5
        return {
            **super().values_for(run),
            "learning_rate": scaled_rate({"adam": 0.064, "adamw": 0.064}, self.optimiser, self.hidden),
            "batch": batch_size(replace(run, seen=run.seen * factor**2)),
            "dropout": dropout,
            "tied": run.vocab_size >= _WORTH_TYING,
        }


@dataclass(frozen=True)
@leaves_open("embedding", "hidden", "dropout", "tied")
class FeedforwardSettings(FeedforwardConfig, HiddenLayerSettings):
    """A feed-forward network and its training."""

    PRESETS: ClassVar[Presets] = {"lecture": {"activation": "tanh", "tied": False, "layers": 1}}

    preset: Literal["none", "lecture"] = setting(
        "none", "lecture: one layer of tanh units and two tables, for settings that are not set"
    )


@dataclass(frozen=True)
@leaves_open("embedding", "hidden", "dropout", "tied")
class BagOfWordsSettings(BagOfWordsConfig, HiddenLayerSettings, WindowSettings):
    """A bag-of-words network and its training."""


# -- formulas ---------------------------------------------------------------------------------------------


def named(names: Sequence[str], rows: Sequence[Sequence[int]]) -> list[Values]:
    """Give names to the values of each row.

    >>> named(("width", "layers"), [(64, 2), (128, 4)])
    [{'width': 64, 'layers': 2}, {'width': 128, 'layers': 4}]
    """
    return [dict(zip(names, row, strict=True)) for row in rows]


def scaled_rate(rates: Mapping[str, float], optimiser: Optimiser, width: int) -> float:
    """Return a learning rate that falls with the square root of the width, from 64 on; else that of the optimiser.

    >>> scaled_rate({"adam": 0.064}, "adam", 256), scaled_rate({"adam": 0.064}, "sgd", 256)
    (0.004, 1.0)
    """
    if optimiser not in rates:
        return LEARNING_RATES[optimiser]
    return float(f"{rates[optimiser] / max(64, width) ** 0.5:.2g}")  # two digits are enough
