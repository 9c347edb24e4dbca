"""The neural kinds: what each can be told, how it is trained and loaded, and its rung of the ladder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import torch

from chainrule import settings as settings_of
from chainrule.decode.generate import generate
from chainrule.decode.strategies import TopP
from chainrule.errors import DamagedFileError, SettingsError
from chainrule.folder import TENSORS, ModelFolder
from chainrule.kinds import Kind, Rung, TrainingData
from chainrule.neural.averaging import Averaging, AveragingConfig
from chainrule.neural.feedforward import Feedforward, FeedforwardConfig
from chainrule.neural.model import NeuralModel, load_weights
from chainrule.neural.network import Network
from chainrule.neural.presets import TransformerConfig
from chainrule.neural.recurrent import Recurrent, RecurrentConfig
from chainrule.neural.transformer import Transformer
from chainrule.neural.vectors import fill, load_vectors
from chainrule.settings import setting
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.loop import Trained, train_network
from chainrule.training.plan import TrainingSettings

LAST = "last"
"""The folder, in that of the run, of the model as it was at the last step."""


@dataclass(frozen=True)
class NeuralSettings(TrainingSettings):
    """What every neural kind can be told, beside its architecture."""

    vectors: str | None = setting(None, "a file of word vectors (GloVe or word2vec, text) to begin with")


@dataclass(frozen=True)
class WindowSettings(NeuralSettings):
    """What a kind that reads through a window can be told."""

    slide: float = setting(0.5, "share of a full window that is dropped to go on; less is slower and sees more")

    def __post_init__(self) -> None:
        if not 0 < self.slide <= 1:
            raise SettingsError(f"slide should be above 0 and at most 1, not {self.slide}")
        super().__post_init__()


@dataclass(frozen=True)
class FeedforwardSettings(NeuralSettings, FeedforwardConfig):
    """A feed-forward network and its training."""


@dataclass(frozen=True)
class AveragingSettings(WindowSettings, AveragingConfig):
    """A bag of words and its training."""


@dataclass(frozen=True)
class ElmanSettings(NeuralSettings, RecurrentConfig):
    """An Elman network and its training."""

    cell: Literal["elman"] = setting("elman", "what a layer is made of")


@dataclass(frozen=True)
class LstmSettings(NeuralSettings, RecurrentConfig):
    """An LSTM and its training."""

    cell: Literal["lstm"] = setting("lstm", "what a layer is made of")


@dataclass(frozen=True)
class GruSettings(NeuralSettings, RecurrentConfig):
    """A GRU and its training."""

    cell: Literal["gru"] = setting("gru", "what a layer is made of")


@dataclass(frozen=True)
class TransformerSettings(WindowSettings, TransformerConfig):
    """A Transformer and its training."""


def make_kind(
    name: str, summary: str, settings_class: type, network_class: Callable[..., Network], rung: Mapping[str, Any]
) -> Kind:
    """A kind of networks of that class."""

    def build(settings: Any, data: TrainingData) -> NeuralModel:
        with torch.random.fork_rng([]):
            torch.manual_seed(data.seed % 2**63)
            network = network_class(settings, data.tokenizer.vocab_size, data.tokenizer.bos)
        return NeuralModel(network, data.tokenizer, data.context, kind=name, settings=settings)

    def train(settings: Any, data: TrainingData) -> NeuralModel:
        lm = build(settings, data)
        coverage = _begin_with_vectors(lm, settings.vectors, data) if settings.vectors else {}
        lm.network.head.float8 = _is_float8(settings, data.device)
        trained = train_network(lm.network, settings, data, sample=lambda: _sample(lm, data.seed))
        lm.metrics = {**coverage, **_figures(lm, trained)}
        if data.run is not None:
            last = build(settings, data)
            last.network.load_state_dict(trained.last)
            last.save(data.run / LAST, overwrite=True)
        return lm

    def load(folder: ModelFolder) -> NeuralModel:
        tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
        settings: Any = settings_of.parse(settings_class, folder.config)
        network = network_class(settings, tokenizer.vocab_size, tokenizer.bos)
        try:
            load_weights(network, folder.tensor)
        except ValueError as error:
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
        return NeuralModel(network, tokenizer, folder.context, kind=name, settings=settings)

    return Kind(
        name=name,
        summary=summary,
        settings=settings_class,
        train=train,
        load=load,
        ladder=(Rung(rung["name"], {**_RUNG, **{key: value for key, value in rung.items() if key != "name"}}),),
        tunes_on_held_out=lambda settings: True,
        keeps_run=True,
    )


def _is_float8(settings: TrainingSettings, device: str) -> bool:
    """Whether the head multiplies in 8 bits."""
    if settings.precision != "float8":
        return False
    if torch.device(device).type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
        raise SettingsError(f"precision=float8 needs a GPU that multiplies 8-bit floats, and {device} does not")
    return True


def _begin_with_vectors(lm: NeuralModel, path: str, data: TrainingData) -> dict[str, float]:
    vectors = load_vectors(path, data.tokenizer)
    fill(lm.network.table(), vectors)
    data.progress.note(str(vectors))
    return {"vectors_coverage": round(vectors.coverage, 4)}


def _sample(lm: NeuralModel, seed: int) -> str:
    return generate(lm, "", TopP(0.9), max_tokens=60, seed=seed)


def _figures(lm: NeuralModel, trained: Trained) -> dict[str, Any]:
    return {
        "parameters": sum(weight.numel() for weight in lm.network.parameters()),
        "steps": trained.steps,
        "tokens_seen": trained.tokens,
        "validation_nats": trained.best_loss,
        "tokens_per_second_in_training": round(trained.tokens / max(trained.seconds, 1e-9), 1),
        **{key: value for key, value in trained.decisions.items() if key in ("bfloat16", "compiled")},
    }


_RUNG = {"epochs": 20, "minutes": 0.5, "patience": 3, "batch": 1024, "tied": True}
"""A rung of the ladder: small, and as good as it gets in half a minute."""
_SMALL = {"embedding": 128, "hidden": 256}

FEEDFORWARD = make_kind(
    "feedforward",
    "the last few tokens as vectors, side by side, and a hidden layer",
    FeedforwardSettings,
    Feedforward,
    {"name": "feed-forward", **_SMALL},
)
AVERAGING = make_kind(
    "averaging",
    "a bag of words: the mean of all tokens before, whatever their order",
    AveragingSettings,
    Averaging,
    {"name": "bag of words", **_SMALL},
)
ELMAN = make_kind(
    "elman",
    "a recurrent network: one state carries all that was read",
    ElmanSettings,
    Recurrent,
    {"name": "elman", "layers": 1, **_SMALL},
)
LSTM = make_kind(
    "lstm",
    "a recurrent network whose gates decide what to keep",
    LstmSettings,
    Recurrent,
    {"name": "lstm", "layers": 1, **_SMALL},
)
GRU = make_kind(
    "gru",
    "a recurrent network with two gates",
    GruSettings,
    Recurrent,
    {"name": "gru", "layers": 1, **_SMALL},
)
TRANSFORMER = make_kind(
    "transformer",
    "every token looks at those before it",
    TransformerSettings,
    Transformer,
    {"name": "transformer", "width": 128, "window": 128},
)
