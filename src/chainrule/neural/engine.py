"""How networks are trained and loaded in torch, whatever their kind."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from chainrule import settings as settings_of
from chainrule.decode.generate import generate
from chainrule.decode.strategies import TopP
from chainrule.devices import choose_device
from chainrule.errors import DamagedFileError, SettingsError, TrainingError
from chainrule.folder import TENSORS, ModelFolder
from chainrule.kinds import TrainingData
from chainrule.neural.averaging import Averaging
from chainrule.neural.designs import count_parameters
from chainrule.neural.feedforward import Feedforward
from chainrule.neural.loss import BLOCK
from chainrule.neural.model import NeuralModel, load_weights
from chainrule.neural.network import Network
from chainrule.neural.recurrent import Recurrent
from chainrule.neural.settings import (
    AveragingSettings,
    ElmanSettings,
    EngineSettings,
    FeedforwardSettings,
    GruSettings,
    LstmSettings,
    TransformerSettings,
)
from chainrule.neural.transformer import Transformer
from chainrule.neural.vectors import fill, load_vectors
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.loop import Trained, train_network
from chainrule.training.plan import TrainingSettings
from chainrule.training.prepare import provenance
from chainrule.training.runs import EARLIER
from chainrule.training.step import is_out_of_memory

LAST = "last"
"""The folder, in that of the run, of the model as it was at the last step."""


@dataclass(frozen=True)
class Torch:
    """Trains and loads the networks of one class."""

    kind: str
    settings: type
    network: Callable[..., Network]

    def train(self, settings: Any, data: TrainingData) -> NeuralModel:
        if isinstance(settings, EngineSettings):
            settings = replace(settings, engine="torch")  # what was chosen is what the folder says
        lm = self._build(settings, data)
        lm.network.head.float8 = _is_float8(settings, lm.network.head.weight)
        coverage = _begin_with_vectors(lm, settings.vectors, data) if settings.vectors else {}
        trained = train_network(lm.network, settings, data, sample=lambda: _sample(lm, data.seed))
        lm.metrics = {**coverage, **_figures(lm, trained)}
        if data.run is not None:
            last = self._build(settings, data)
            last.network.load_state_dict(trained.last)
            # where weights are averaged, the last ones were not measured by themselves
            is_measured = settings.average == "none"
            nats = trained.history[-1]["validation_loss"] if is_measured else None
            last.metrics = {**lm.metrics, "validation_nats": nats}
            last.provenance = provenance(data.train, data.valid, data.seed)
            last.save(data.run / LAST, overwrite=True)
        return lm

    def load(self, folder: ModelFolder) -> NeuralModel:
        tokenizer = parse_tokenizer(folder.tokenizer, str(folder.path))
        settings: Any = settings_of.parse(self.settings, folder.config)
        network = self.network(settings, tokenizer.vocab_size, tokenizer.bos)
        try:
            load_weights(network, folder.tensor)
        except ValueError as error:
            raise DamagedFileError(f"{folder.path}/{TENSORS}: {error}") from None
        return NeuralModel(network, tokenizer, folder.context, kind=self.kind, settings=settings)

    def _build(self, settings: Any, data: TrainingData) -> NeuralModel:
        try:
            with torch.random.fork_rng([]):
                torch.manual_seed(data.seed % 2**63)
                network = self.network(settings, data.tokenizer.vocab_size, data.tokenizer.bos)
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            raise TrainingError("the network does not fit into memory: set a smaller width, hidden, ...") from None
        return NeuralModel(network, data.tokenizer, data.context, kind=self.kind, settings=settings)


def check(settings: Any, device: str, keeps: bool) -> None:
    """Refuse what this machine cannot do, before a text is read."""
    if settings.precision == "float8":
        device = choose_device(device)
        if torch.device(device).type != "cuda" or torch.cuda.get_device_capability(device) < (8, 9):
            raise SettingsError(f"precision=float8 needs a GPU that multiplies 8-bit floats, and {device} does not")


def _is_float8(settings: TrainingSettings, weight_VD: Tensor) -> bool:
    """Whether the head multiplies in 8 bits."""
    if settings.precision != "float8":
        return False
    rows, width = weight_VD.shape
    if rows % BLOCK or width % BLOCK:
        raise SettingsError(
            f"precision=float8 takes a head whose sides are multiples of {BLOCK}, not {rows} and {width}: "
            "set another width or vocabulary, or precision=bfloat16"
        )
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
        "parameters": count_parameters(
            {name: weight.shape for name, weight in lm.network.named_parameters()}, lm.tokenizer.vocab_size
        ),
        "steps": trained.steps,
        "tokens_seen": trained.tokens,
        "validation_nats": trained.best_loss,
        "tokens_per_second_in_training": round(trained.tokens / max(trained.seconds, 1e-9), 1),
        **({EARLIER: round(trained.earlier, 3)} if trained.earlier else {}),
        **{key: value for key, value in trained.decisions.items() if key in ("bfloat16", "compiled")},
    }


ENGINES: Mapping[str, Torch] = {
    "feedforward": Torch("feedforward", FeedforwardSettings, Feedforward),
    "elman": Torch("elman", ElmanSettings, Recurrent),
    "lstm": Torch("lstm", LstmSettings, Recurrent),
    "gru": Torch("gru", GruSettings, Recurrent),
    "averaging": Torch("averaging", AveragingSettings, Averaging),
    "transformer": Torch("transformer", TransformerSettings, Transformer),
}
"""By kind."""
