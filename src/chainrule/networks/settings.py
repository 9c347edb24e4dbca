"""The settings of each neural kind: its configuration and its training.

Sizes, batch, learning rate and regularisation that a user does not set are left open, and chosen when training
begins: the class of a kind declares the sizes to choose from, and the values that go with a size.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Literal, Self, TypeAlias

from chainrule.errors import SettingsError
from chainrule.networks.config import (
    GATES,
    BagOfWordsConfig,
    Bounds,
    CellName,
    FeedforwardConfig,
    HiddenLayersConfig,
    QrnnConfig,
    RecurrentConfig,
    leaves_open,
    regularisers,
    share,
    size,
)
from chainrule.networks.defaults import (
    PARAMETERS_PER_TOKEN,
    TOKENS_PER_PARAMETER,
    Cost,
    RunEstimate,
    Values,
    batch_size,
    dropout_share,
    least_batch,
)
from chainrule.networks.training_settings import DECAYING, LEARNING_RATES, Optimiser, TrainingSettings
from chainrule.networks.transformer.config import AS_PRESET, Preset, TransformerConfig
from chainrule.settings import Groups, Presets, open_names, setting
from chainrule.system.devices import has_torch
from chainrule.text.templates import TEMPLATE, check_template

BLOCK_RATES = {"muon": 0.064, "adam": 0.032, "adamw": 0.032}
"""The learning rate of a Transformer times the square root of its width, by optimiser."""

CELL_RATES = {
    cell: {"adam": rate, "adamw": rate}
    for cell, rate in {"elman": 0.048, "gru": 0.16, "lstm": 0.18, "qrnn": 0.1}.items()
}
"""The learning rate of each cell times the square root of its units, by optimiser."""

EngineName: TypeAlias = Literal["torch", "tape"]

_LITTLE_REGULARISED = 1.25
"""The most hidden parameters for each token of the text, for networks that have dropout only (docs/defaults.md)."""

_slide = Bounds("above 0 and at most 1", lambda value: 0 < value <= 1)
_masked_share = Bounds("above 0 and below 1", lambda value: 0 < value < 1)

# -- parts of settings ------------------------------------------------------------------------------------


@dataclass(frozen=True)
@leaves_open("batch", "learning_rate", "schedule", "regularise")
class NeuralSettings(TrainingSettings):
    """The settings of every neural kind, beside those of its architecture."""

    vectors: str | None = setting(None, "a file of word vectors (GloVe or word2vec, text) to begin with")

    @property
    def slide_share(self) -> float:
        """The share of its tokens that a full window drops for new ones, for a network that has a window."""
        return 0.5

    def sizes(self) -> list[Values]:
        """Return the sizes to choose from, from small to large; [{}] if there is no choice."""
        return [{}]

    def cost(self, vocab_size: int) -> Cost:
        """Return the cost of a token, once the sizes are chosen; 0 if it is not known."""
        return Cost(0, 0)

    @property
    def parameters_per_token(self) -> float:
        """The most parameters in hidden layers for each token of the text."""
        return PARAMETERS_PER_TOKEN

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
        """These settings with an engine instead of auto, for the model folder."""
        return self


@dataclass(frozen=True)
class WindowSettings(NeuralSettings):
    """The settings of a kind that reads through a window."""

    slide: float = _slide(
        0.5, "share of a full window that is dropped for new tokens; less is slower and sees more"
    )

    @property
    def slide_share(self) -> float:
        return self.slide


@dataclass(frozen=True)
class EngineSettings(NeuralSettings):
    """The settings of a kind that has two engines."""

    GROUPS: ClassVar[Groups] = {"hardware": ("engine",)}

    engine: Literal["auto", "torch", "tape"] = setting(
        "auto",
        "the library that computes: torch, or the tape, in NumPy; auto: the faster one of a run by the clock "
        "on a CPU, otherwise torch where it is installed",
    )

    @property
    def chosen_engine(self) -> EngineName:
        if self.engine == "auto":
            return "torch" if has_torch() else "tape"
        return self.engine

    def with_engine(self, engine: EngineName) -> Self:
        return replace(self, engine=engine)

    @property
    def token_worth(self) -> float:
        """How much is learned from a token, as a share of what torch learns from it."""
        return 1.0


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

    @property
    def tokenizer_folder(self) -> str | None:
        """The model folder whose tokenizer the training takes."""
        return self.pretrained

    @property
    def is_tuned(self) -> bool:
        """True if the model learns from prompts and replies, and not from text."""
        return self.pretrained is not None


# -- hidden layers ----------------------------------------------------------------------------------------

_WORTH_TYING = 1000
"""The size of a vocabulary from which on one table of vectors serves inputs and outputs better than two."""


@dataclass(frozen=True)
class HiddenLayerSettings(EngineSettings, HiddenLayersConfig):
    """The settings of a kind that has hidden layers over one vector, and no other layers."""

    def sizes(self) -> list[Values]:
        return [{"embedding": hidden // 2, "hidden": hidden} for hidden in (64, 128, 256, 512, 1024)]

    @property
    def parameters_per_token(self) -> float:
        return _LITTLE_REGULARISED

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


# -- recurrent networks -----------------------------------------------------------------------------------

_RECURRENT_SIZES = (
    *((32, 64, 1), (48, 96, 1), (64, 128, 1), (64, 192, 1), (64, 256, 1), (128, 384, 1), (192, 512, 1)),
    *((256, 640, 1), (320, 896, 1), (256, 640, 2), (320, 896, 2), (400, 1152, 3)),
)
"""Numbers of an embedding, units of a layer, and layers of recurrent networks."""

_DEEP = 10.0
"""The tokens for each parameter from which on several recurrent layers are better than one (docs/defaults.md)."""

_GRU_RATE = 1.8
"""The learning rate of a GRU times its units, where that is the lower rate (docs/defaults.md)."""

_QRNN_SIZES = (
    *((32, 64, 2), (48, 96, 2), (64, 128, 2), (96, 192, 2), (128, 256, 2)),
    *((128, 256, 3), (192, 384, 3), (256, 512, 3), (320, 896, 3), (400, 1536, 4)),
)
"""The same of quasi-recurrent networks, whose layers are cheaper and remember less: deeper networks are better."""

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


@dataclass(frozen=True)
@leaves_open("embedding", "hidden", "layers", *_FULL_REGULARISATION, "beta1", "beta2", "clip", "warmup")
class RecurrentSettings(TunedSettings, RecurrentConfig):
    """A recurrent network and its training."""

    PRESETS: ClassVar[Presets] = {"lecture": {"biases": 1, "tied": False, "layers": 1}}

    preset: Literal["none", "lecture"] = setting(
        "none", "lecture: one layer, one bias a sum, two tables; gru: reset=before; for settings that are not set"
    )

    def sizes(self) -> list[Values]:
        return named(("embedding", "hidden", "layers"), _RECURRENT_SIZES)

    def cost(self, vocab_size: int) -> Cost:
        widths = self.widths
        hidden = sum(self.layer_cost(*pair) for pair in zip([self.embedding, *widths], widths, strict=False))
        wanted = self.tokens_per_parameter
        if not self.tied:
            return Cost(hidden, vocab_size * widths[-1], wanted)
        projection = widths[-1] * self.embedding if widths[-1] != self.embedding else 0
        return Cost(hidden + projection, vocab_size * self.embedding, wanted)

    @property
    def tokens_per_parameter(self) -> float:
        """The tokens that the network has to read for each parameter of its hidden layers."""
        return _DEEP if self.layers > 1 else TOKENS_PER_PARAMETER

    def layer_cost(self, below: int, width: int) -> int:
        """Return the parameters of a layer of `width` units over one of `below`."""
        return GATES[self.cell] * (below + width) * width

    def awd_share(self, run: RunEstimate) -> float:
        """Return the share of AWD-LSTM's regularisation that a run gets, from 0 to 1."""
        return min(1.0, dropout_share(run) / _FULL_DROPOUT)

    def values_for(self, run: RunEstimate) -> Values:
        awd = self.awd_share(run)
        return {
            **super().values_for(run),
            "learning_rate": scaled_rate(CELL_RATES[self.cell], self.optimiser, self.hidden),
            **{name: round(value * awd, 3) for name, value in _FULL_REGULARISATION.items()},
            # gradients of a network with much dropout are noisy: small and cautious steps, at first above all
            "beta1": round(0.9 - 0.15 * awd, 3),
            "beta2": 0.99,
            "clip": round(0.1**awd, 3),
            "warmup": round(0.02 + 0.23 * awd, 3),
            "schedule": "cosine" if awd else "linear",
        }


@dataclass(frozen=True)
class ElmanSettings(RecurrentSettings):
    """An Elman network and its training."""

    cell: Literal["elman"] = setting("elman", "the kind of cells in a layer")

    def sizes(self) -> list[Values]:
        # three layers without gates learned far less than one (docs/defaults.md)
        return [{**sizes, "layers": 1} for sizes in super().sizes()]

    @property
    def parameters_per_token(self) -> float:
        return _LITTLE_REGULARISED

    def awd_share(self, run: RunEstimate) -> float:
        return 0.0

    def values_for(self, run: RunEstimate) -> Values:
        dropout = round(min(0.5, 2 * dropout_share(run)), 3)
        return {**super().values_for(run), "input_dropout": dropout, "output_dropout": dropout}


@dataclass(frozen=True)
class LstmSettings(RecurrentSettings):
    """An LSTM and its training."""

    cell: Literal["lstm"] = setting("lstm", "the kind of cells in a layer")


@dataclass(frozen=True)
class GruSettings(RecurrentSettings):
    """A GRU and its training."""

    PRESETS: ClassVar[Presets] = {"lecture": {**RecurrentSettings.PRESETS["lecture"], "reset": "before"}}

    cell: Literal["gru"] = setting("gru", "the kind of cells in a layer")

    def values_for(self, run: RunEstimate) -> Values:
        # its one state is what it remembers and what it shows: what these three did to it cost far more than they
        # brought (docs/defaults.md)
        values = {**super().values_for(run), "weight_dropout": 0.0, "alpha": 0.0, "beta": 0.0}
        if self.optimiser in CELL_RATES[self.cell]:
            values["learning_rate"] = min(values["learning_rate"], float(f"{_GRU_RATE / self.hidden:.2g}"))
        return values


@dataclass(frozen=True)
class QrnnSettings(RecurrentSettings, QrnnConfig):
    """A quasi-recurrent network and its training."""

    cell: Literal["qrnn"] = setting("qrnn", "the kind of cells in a layer")
    weight_dropout: float = share(0.0, "share of the weights of a layer left out", chosen=True)

    def sizes(self) -> list[Values]:
        return named(("embedding", "hidden", "layers"), _QRNN_SIZES)

    @property
    def tokens_per_parameter(self) -> float:
        return TOKENS_PER_PARAMETER

    def layer_cost(self, below: int, width: int) -> int:
        return GATES[self.cell] * self.kernel * below * width

    def values_for(self, run: RunEstimate) -> Values:
        # all its weights lead from inputs, and every part left out cost something (docs/defaults.md)
        return {**super().values_for(run), "weight_dropout": 0.0}


# -- Transformers -----------------------------------------------------------------------------------------

_BLOCK_SIZES = ((32, 2), (48, 3), (64, 4), (96, 4), (128, 4), (192, 4), (256, 5), (384, 6), (512, 6), (768, 12))
"""Width and layers of Transformers."""


@dataclass(frozen=True)
@leaves_open(
    "layers", "width", "heads", "window", "dropout", "attention_dropout", "hidden_dropout", "token_dropout"
)
@leaves_open("weight_decay", "average", "optimiser")
class BlockSettings(NeuralSettings, TransformerConfig):
    """The settings of a kind that is a stack of Transformer blocks."""

    def sizes(self) -> list[Values]:
        return named(("width", "layers"), _BLOCK_SIZES)

    def cost(self, vocab_size: int) -> Cost:
        # queries and outputs, keys and values, and the feed-forward part
        attention = 2 * self.width * self.head_size * (self.heads + self.kv_heads)
        feed_forward = (3 if self.activation == "swiglu" else 2) * self.width * self.hidden
        return Cost(int(self.layers * (attention + feed_forward)), vocab_size * self.width)

    def values_for(self, run: RunEstimate) -> Values:
        on_tape = self.chosen_engine == "tape"  # which has neither Muon nor averaged weights
        optimiser: Optimiser = self.set_or("optimiser", "adamw" if on_tape else "muon")
        dropout = self.set_or("dropout", dropout_share(run))
        return {
            **super().values_for(run),
            "batch": batch_size(run, least_batch(optimiser, self.width)),
            "optimiser": optimiser,
            "learning_rate": scaled_rate(BLOCK_RATES, optimiser, self.width),
            "heads": heads_for(self.width, self.kv_heads),
            "window": 256 if run.seen > 1e7 else 128,
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "hidden_dropout": dropout,
            "token_dropout": round(dropout / 3, 3),
            "weight_decay": max(DECAYING[optimiser], dropout) if optimiser in DECAYING else 0.0,
            "average": "ema" if dropout and not on_tape else "none",
        }


@dataclass(frozen=True)
class TransformerSettings(BlockSettings, TunedSettings, WindowSettings):
    """A Transformer and its training."""

    @property
    def token_worth(self) -> float:
        # without Muon it needs about twice as many tokens (docs/defaults.md)
        return 0.5 if self.engine == "tape" else 1.0


MASKED_SHARE = 0.15
"""The share of the tokens that a masked model predicts (Devlin and others 2019)."""


@dataclass(frozen=True)
class MaskedSettings(BlockSettings):
    """A masked model, a Transformer encoder that fills gaps, and its training."""

    share: float = _masked_share(MASKED_SHARE, "share of the tokens that are hidden and predicted", common=True)
    head_layer: bool = setting(
        AS_PRESET, "a layer before the logits, Norm(φ(W h + b)) with φ the activation (default: if preset=bert)"
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.head_layer is AS_PRESET:
            object.__setattr__(self, "head_layer", self.preset == "bert")
        if self.head_layer and self.activation == "swiglu":
            raise SettingsError("head_layer has no gate: set another activation than swiglu, or head_layer=false")
        if self.window is not None and self.window < 2:
            raise SettingsError(f"window should be at least 2, the start of a text and a token: {self.window}")
        if self.vary_length:
            raise SettingsError("vary_length is for networks that carry their memory on: set it to no")

    def cost(self, vocab_size: int) -> Cost:
        whole = super().cost(vocab_size)
        # only tokens that are predicted reach the output layer
        return replace(whole, head=int(whole.head * self.share))

    def values_for(self, run: RunEstimate) -> Values:
        # each epoch predicts other tokens of the text, so that it is learned by heart more slowly
        values = super().values_for(replace(run, seen=run.seen * self.share))
        as_read = super().values_for(run)
        # a step should predict as many tokens as that of another network, so it reads more of them
        least = least_batch(as_read["optimiser"], self.width)
        batch = batch_size(replace(run, seen=run.seen / self.share), least)
        return {**values, "batch": batch, "window": as_read["window"]}


# -- recurrent cells or Transformer blocks ----------------------------------------------------------------

AnyCell: TypeAlias = Literal["transformer", "lstm", "gru", "elman"]


@dataclass(frozen=True)
@leaves_open("optimiser", "average")
class CellOrBlockSettings(NeuralSettings):
    """The settings of a kind whose layers are recurrent cells or Transformer blocks."""

    # of a Transformer, the fields that are set as the preset says unless they have a value
    BLOCK_FIELDS: ClassVar[tuple[str, ...]] = ("positions", "hidden", "attention_dropout")

    cell: AnyCell = setting("transformer", "the kind of its layers", common=True)  # noqa: RUF009 (a field)
    bidirectional: bool = setting(True, "cells: layers read in both directions, half of the units each")
    layers: int = size(2, "layers", most=1000, common=True, chosen=True)
    width: int = size(256, "features of a token, and units of a layer", common=True, chosen=True)
    heads: int = size(4, "transformer: heads of each attention", common=True, chosen=True)
    hidden: int | None = size(None, "transformer: features inside a block; none: as the preset")
    window: int = size(256, "transformer: the most tokens read at once", most=1 << 20)
    preset: Preset = setting("fast", "transformer: the design of blocks")  # noqa: RUF009
    positions: Literal["learned", "sinusoidal", "rotary", "alibi", "none"] | None = setting(
        None, "transformer: how it knows the position of a token; none: as the preset"
    )
    dropout: float = share(0.1, "share of features left out in training", common=True, chosen=True)
    attention_dropout: float | None = share(
        None, "transformer: share of attention weights left out in training", chosen=True
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.vary_length:
            raise SettingsError("vary_length is for streams of text: set it to no")
        if self.has_blocks and self.layers != 0 and None not in (self.width, self.heads):
            self.transformer()  # its own checks

    @property
    def has_blocks(self) -> bool:
        """True if the layers are Transformer blocks."""
        return self.cell == "transformer"

    def transformer(self, **values: Any) -> TransformerConfig:
        """Return the configuration of the blocks, for cell=transformer; `values` of further fields."""
        chosen = {name: found for name in self.BLOCK_FIELDS if (found := getattr(self, name)) is not None}
        sizes = {name: getattr(self, name) for name in ("preset", "layers", "width", "heads", "window")}
        dropout = self.dropout or 0.0
        return TransformerConfig(**sizes, dropout=dropout, hidden_dropout=dropout, **values, **chosen)

    @property
    def recurrent_cell(self) -> CellName:
        """The cell, where it is a recurrent one."""
        assert self.cell != "transformer"
        return self.cell

    def best_dropout(self, run: RunEstimate) -> float:
        """Return the dropout for a run, where none is set."""
        return dropout_share(run)

    rates: ClassVar[Mapping[str, Mapping[str, float]]] = {"transformer": BLOCK_RATES, **CELL_RATES}
    """The learning rate of each cell times the square root of the width, by optimiser."""

    def values_for(self, run: RunEstimate) -> Values:
        optimiser: Optimiser = self.set_or("optimiser", "muon" if self.has_blocks else "adamw")
        dropout = self.set_or("dropout", self.best_dropout(run))
        return {
            **super().values_for(run),
            "batch": batch_size(run, least_batch(optimiser, self.width)),
            "optimiser": optimiser,
            "learning_rate": scaled_rate(self.rates[self.cell], optimiser, self.width),
            "heads": heads_for(self.width, None),
            "dropout": dropout,
            "attention_dropout": round(dropout / 3, 3),
            "average": "ema" if dropout else "none",
        }


# -- formulas ---------------------------------------------------------------------------------------------


def named(names: Sequence[str], rows: Sequence[Sequence[int]]) -> list[Values]:
    """Give names to the values of each row.

    >>> named(("width", "layers"), [(64, 2), (128, 4)])
    [{'width': 64, 'layers': 2}, {'width': 128, 'layers': 4}]
    """
    return [dict(zip(names, row, strict=True)) for row in rows]


def heads_for(width: int, kv_heads: int | None) -> int:
    """Return the number of heads: of 32 features each in narrow networks, of about 64 in others."""
    wanted = width / (64 if width >= 256 else 32)
    fitting = [heads for heads in range(1, width + 1) if width % (2 * heads) == 0 and heads % (kv_heads or 1) == 0]
    return min(fitting, key=lambda heads: (abs(heads - wanted), -heads), default=kv_heads or 1)


def scaled_rate(rates: Mapping[str, float], optimiser: Optimiser, width: int) -> float:
    """Return a learning rate that falls with the square root of the width, from 64 on; else that of the optimiser.

    >>> scaled_rate({"adam": 0.064}, "adam", 256), scaled_rate({"adam": 0.064}, "sgd", 256)
    (0.004, 1.0)
    """
    if optimiser not in rates:
        return LEARNING_RATES[optimiser]
    return float(f"{rates[optimiser] / max(64, width) ** 0.5:.2g}")  # two digits are enough
