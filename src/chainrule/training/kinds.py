"""The kinds of network that the loop trains, whichever engine computes them, and how another one is added.

A kind of network is a settings class and a call of `network_kind`, which names the network of each engine by its
module: a module is imported only when its engine is used, so that listing kinds never waits for torch.

Torch and the tape train the same network on the same batches, and one model folder serves both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from chainrule.contract.kinds import Kind, Rung, TrainingData
from chainrule.contract.lm import LanguageModel
from chainrule.decode.generate import sample_text
from chainrule.errors import MissingExtraError
from chainrule.folder import ModelFolder
from chainrule.networks.config import count_parameters
from chainrule.networks.settings import (
    AveragingSettings,
    ElmanSettings,
    FeedforwardSettings,
    GruSettings,
    LstmSettings,
    NeuralSettings,
    TransformerSettings,
)
from chainrule.networks.word_vectors import load_vectors
from chainrule.settings import parse
from chainrule.system.devices import has_torch
from chainrule.system.plugins import import_object
from chainrule.system.progress import SILENT
from chainrule.training.backends import Backend
from chainrule.training.checkpoints.checkpoint import Checkpoints
from chainrule.training.checkpoints.run_folder import EARLIER, HISTORY, LAST
from chainrule.training.examples import Texts, texts_of
from chainrule.training.planning.defaults import complete, in_words, remembered, with_time
from chainrule.training.team import check_together, current_team
from chainrule.training.tracking.loggers import check_logger
from chainrule.training.train import Trained, train_network

RUNG = {"minutes": 0.5}
"""The settings of a network's rung of the ladder; all others are chosen when its training begins."""

_BACKENDS = {
    "torch": "chainrule.training.backends.torch_backend:TorchBackend",
    "tape": "chainrule.training.backends.tape_backend:TapeBackend",
}


@dataclass(frozen=True)
class NetworkKind:
    """Trains and loads the networks of one kind."""

    name: str
    settings: type[NeuralSettings]
    networks: Mapping[str, str]
    """The class of the network for each engine, as MODULE:NAME."""

    def backend(self, settings: NeuralSettings) -> Backend:
        """The backend of the engine that the settings choose, for the networks of this kind."""
        engine = settings.chosen_engine
        if engine == "torch" and not has_torch():
            raise MissingExtraError("torch", "neural", f"{self.name} with engine=torch")
        backend: type[Backend] = import_object(_BACKENDS[engine])
        return backend(self.name, import_object(self.networks[engine]))

    def check(self, settings: NeuralSettings, device: str) -> None:
        """Refuse settings that cannot be computed on the device, before a text is read."""
        check_together(settings)
        self.backend(settings).check(settings, device)
        check_logger(settings.logger)

    def train(self, settings: NeuralSettings, data: TrainingData) -> LanguageModel:
        """Train a network on a text; its last weights are saved in the run folder too."""
        began = time.perf_counter()
        backend, settings = self.backend(settings), settings.with_chosen_engine()
        then = current_team().agree(_settings_of_checkpoint(data))
        if then is None:
            chosen = complete(with_time(settings), data, self.texts(settings, data), backend, began)
            if words := in_words(settings, chosen):
                data.progress.note(f"{self.name}: chosen {words}")
            settings = chosen
        else:
            settings = remembered(settings, then)
        lm = backend.build(settings, data)
        coverage = _initialise_vectors(backend, lm, settings.vectors, data) if settings.vectors else {}
        engine = backend.engine(lm, settings, data)
        texts, sample = self.texts(settings, data), lambda: self.sample(lm, data)
        trained = train_network(engine, settings, data, texts=texts, sample=sample, began=began)
        lm.metrics = {**coverage, **_figures(lm, trained, data.tokenizer.vocab_size)}
        if data.run is not None:
            _save_last(backend, lm, trained, settings, data)
        return lm

    def texts(self, settings: NeuralSettings, data: TrainingData) -> Texts:
        """The examples that a network learns from, and those that it is validated on."""
        return texts_of(data)

    def sample(self, lm: LanguageModel, data: TrainingData) -> str:
        """Text that a network generates while it is trained, for the log."""
        return sample_text(lm, data.seed)

    def load(self, folder: ModelFolder) -> LanguageModel:
        """The model of a folder, in the engine that it names; without torch, on the tape if it has the network."""
        settings = parse(self.settings, folder.config)
        if not has_torch() and "tape" in self.networks:
            settings = parse(self.settings, {**folder.config, "engine": "tape"})
        return self.backend(settings).load(settings, folder)


def _settings_of_checkpoint(data: TrainingData) -> dict[str, Any] | None:
    """The settings of the run that is resumed; None if it begins."""
    if data.run is None or not data.resume:
        return None
    found = Checkpoints(data.run, SILENT).newest()
    return None if found is None else dict(found.state["identity"]["settings"])


def _save_last(backend: Backend, lm: Any, trained: Trained, settings: NeuralSettings, data: TrainingData) -> None:
    """Save the last weights in the run folder, as a model; the model itself keeps the best ones."""
    metrics, provenance = lm.metrics, lm.provenance
    # validations measure averaged weights where there are any, not the last ones
    nats = trained.history[-1]["validation_loss"] if settings.average == "none" else None
    lm.metrics, lm.provenance = {**metrics, "validation_nats": nats}, data.provenance()
    backend.load_weights(lm, trained.last)
    try:
        assert data.run is not None
        lm.save(data.run / LAST, overwrite=True)
    finally:
        backend.load_weights(lm, trained.best)
        lm.metrics, lm.provenance = metrics, provenance


def _initialise_vectors(backend: Backend, lm: LanguageModel, path: str, data: TrainingData) -> dict[str, float]:
    """Put the word vectors of a file into the embedding table; returns the share of the vocabulary that has one."""
    vectors = load_vectors(path, data.tokenizer)
    table = backend.table(lm)
    vectors.check_width(table.width, table.setting)
    table.write(vectors.ids_N, vectors.matrix_ND / table.scale)
    data.progress.note(str(vectors))
    return {"vectors_coverage": round(vectors.coverage, 4)}


def _figures(lm: LanguageModel, trained: Trained, vocab_size: int) -> dict[str, Any]:
    return {
        "parameters": count_parameters({name: array.shape for name, array in lm.tensors().items()}, vocab_size),
        "steps": trained.steps,
        "tokens_seen": trained.tokens,
        "validation_nats": trained.best_loss,
        "validation_tokens": trained.validation_tokens,
        HISTORY: trained.history,
        "tokens_per_second_in_training": round(trained.tokens / max(trained.seconds, 1e-9), 1),
        **({EARLIER: round(trained.earlier, 3)} if trained.earlier else {}),
        **{key: value for key, value in trained.decisions.items() if key in ("bfloat16", "compiled")},
    }


class TaskKind(NetworkKind):
    """A kind of another task than language: torch alone computes it, by a backend of its own."""

    backend_class: ClassVar[str]
    """The class of the backend, as MODULE:NAME."""

    def backend(self, settings: Any) -> Backend:
        if not has_torch():
            raise MissingExtraError("torch", "neural", f"the kind {self.name!r}")
        backend: Callable[[str], Backend] = import_object(self.backend_class)
        return backend(self.name)

    def registered(self, summary: str, **others: Any) -> Kind:
        """The kind as it is registered: `others` are its task, its tokenizer, and what else it has."""
        return Kind(
            name=self.name,
            summary=summary,
            settings=self.settings,
            train=self.train,
            load=self.load,
            tunes_on_held_out=lambda settings: True,
            check=self.check,
            keeps_run=True,
            requires_torch=True,
            **others,
        )


def network_kind(
    name: str,
    summary: str,
    settings: type[NeuralSettings],
    *,
    torch: str,
    tape: str | None = None,
    rung: Rung | None = None,
) -> Kind:
    """The kind of a network: its settings class, and the class of the network for torch and perhaps for the tape.

    A class is named MODULE:NAME. A torch network is a `Network` constructed from (settings, vocab_size, bos). The
    settings class derives from `NeuralSettings`, or from `EngineSettings` where the tape has the network too.
    """
    networks = {"torch": torch} if tape is None else {"torch": torch, "tape": tape}
    kind = NetworkKind(name, settings, networks)
    return Kind(
        name=name,
        summary=summary,
        settings=settings,
        train=kind.train,
        load=kind.load,
        ladder=() if rung is None else (rung,),
        tunes_on_held_out=lambda settings: True,
        check=kind.check,
        keeps_run=True,
        requires_torch=tape is None,
    )


_TORCH, _TAPE = "chainrule.networks", "chainrule.autodiff.networks"

FEEDFORWARD = network_kind(
    "feedforward",
    "the last few tokens as vectors, side by side, and a hidden layer",
    FeedforwardSettings,
    torch=f"{_TORCH}.feedforward:Feedforward",
    tape=f"{_TAPE}.feedforward:TapeFeedforward",
    rung=Rung("feed-forward", RUNG),
)
AVERAGING = network_kind(
    "averaging",
    "a bag of words: the mean of the tokens before, whatever their order",
    AveragingSettings,
    torch=f"{_TORCH}.bag_of_words:BagOfWords",
    tape=f"{_TAPE}.bag_of_words:TapeBagOfWords",
    rung=Rung("bag of words", RUNG, share=0.5),
)
ELMAN = network_kind(
    "elman",
    "a recurrent network: one state carries all that was read",
    ElmanSettings,
    torch=f"{_TORCH}.recurrent.rnn:Recurrent",
    tape=f"{_TAPE}.recurrent:TapeRecurrent",
    rung=Rung("elman", RUNG),
)
LSTM = network_kind(
    "lstm",
    "a recurrent network whose gates decide what to keep",
    LstmSettings,
    torch=f"{_TORCH}.recurrent.rnn:Recurrent",
    tape=f"{_TAPE}.recurrent:TapeRecurrent",
    rung=Rung("lstm", RUNG, share=2.0, quick=True),
)
GRU = network_kind(
    "gru",
    "a recurrent network with two gates",
    GruSettings,
    torch=f"{_TORCH}.recurrent.rnn:Recurrent",
    tape=f"{_TAPE}.recurrent:TapeRecurrent",
    rung=Rung("gru", RUNG),
)
TRANSFORMER = network_kind(
    "transformer",
    "every token looks at those before it",
    TransformerSettings,
    torch=f"{_TORCH}.transformer.decoder:Transformer",
    tape=f"{_TAPE}.transformer:TapeTransformer",
    rung=Rung("transformer", RUNG, share=2.0, quick=True),
)
