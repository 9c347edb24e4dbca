"""The kinds of network that the loop trains, whichever engine computes them, and how another one is added.

A kind of network is a settings class and a call of `network_kind`, which names the network of each engine by its
module: a module is imported only when its engine is used, so that listing kinds never waits for torch.

Torch and the tape train the same network on the same batches, and one model folder serves both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

from chainrule.contract.counting import Traced, with_formulas
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import Kind, LadderEntry
from chainrule.contract.lm import Context
from chainrule.decode.generate import generate, sample_text
from chainrule.errors import MissingExtraError, SettingsError
from chainrule.folder import TEXT, ModelFolder
from chainrule.networks.config import count_parameters, is_table
from chainrule.networks.defaults import complete, in_words, remembered, with_time
from chainrule.networks.recurrent.settings import ElmanSettings, GruSettings, LstmSettings, QrnnSettings
from chainrule.networks.settings import BagOfWordsSettings, EngineName, FeedforwardSettings, NeuralSettings
from chainrule.networks.transformer.settings import TransformerSettings
from chainrule.networks.word_vectors import Vectors, load_vectors
from chainrule.settings import parse
from chainrule.system.devices import has_torch
from chainrule.system.plugins import import_object
from chainrule.system.progress import SILENT
from chainrule.system.threads import paying_threads
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer
from chainrule.training.base import base_folder, base_for, base_texts, begin_at_base, on_base
from chainrule.training.checkpoints.checkpoint import Checkpoints
from chainrule.training.checkpoints.run_folder import EARLIER, HISTORY, LAST
from chainrule.training.engines.base import Engine, Fill
from chainrule.training.examples import Examples, Texts, texts_of
from chainrule.training.loop import Trained, train_network
from chainrule.training.planning import tokens_per_second
from chainrule.training.team import check_together, current_team, processes
from chainrule.training.tracking import check_logger
from chainrule.training.tuning import begun_from, completed, first_prompt, reply_texts

ON_LADDER = {"minutes": 0.5}
"""The settings of a network's entry in the ladder; all others are chosen when its training begins."""

_ENGINES = {
    "torch": "chainrule.training.engines.torch_engine:TorchEngine",
    "tape": "chainrule.training.engines.tape_engine:TapeEngine",
}


@dataclass(frozen=True)
class NetworkKind:
    """Trains and loads the networks of one kind; a kind of another task than language overrides some methods."""

    name: str
    settings: type[NeuralSettings]
    networks: Mapping[str, str]
    """The class of the network for each engine, as MODULE:NAME; for another task, `model` knows the class."""

    # -- methods that a kind of another task overrides ----------------------------------------------------

    def model(self, settings: Any, tokenizers: Mapping[str, Tokenizer], context: Context, fill: Fill) -> Any:
        """Return the model of these settings, whose network `fill` makes with its weights."""
        tokenizer, network = tokenizers[TEXT], import_object(self.networks[settings.chosen_engine])
        made = fill(network, settings, tokenizer.vocab_size, tokenizer.bos)
        language_model, slide = self.engine(settings).language_model, settings.slide_share
        return language_model(made, tokenizer, context, kind=self.name, settings=settings, slide=slide)

    def maker(self, settings: Any, data: TrainingData) -> Callable[[Fill], Any]:
        """Return the function that makes a new model, given the function that draws the weights of its network."""
        return partial(self.model, settings, {TEXT: data.tokenizer}, data.context)

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Return the examples that a network learns from, and those that it is validated on."""
        if data.base is not None:
            return base_texts(data)
        return reply_texts(settings, data) if getattr(settings, "is_tuned", False) else texts_of(data)

    def sample(self, lm: Any, data: TrainingData) -> str:
        """Return text that a network generates while it is trained, for the log."""
        return sample_text(lm, data.seed) if data.sources is None else generate(lm, first_prompt(data), heal=False)

    def untrained(self, settings: Any, vocab_size: int, labels: int) -> Any:
        """Return a network of torch of these sizes, to count its weights."""
        return import_object(self.networks["torch"])(settings, vocab_size, 0)

    # -- the same for every kind --------------------------------------------------------------------------

    def shapes(self, settings: Any, vocab_size: int, labels: int) -> dict[str, tuple[int, ...]]:
        """Return the shape of each weight, as the tape or torch has it, without the padding rows of tables."""
        if getattr(settings, "pretrained", None) is not None:
            raise SettingsError("pretrained gives a network the sizes of another: leave it out, and set the sizes")
        if "tape" in self.networks:
            found = import_object(self.networks["tape"]).shapes(settings, vocab_size)
        else:
            found = self._torch_shapes(settings, vocab_size, labels)
        return {name: (vocab_size, *shape[1:]) if is_table(name) else shape for name, shape in found.items()}

    def _torch_shapes(self, settings: Any, vocab_size: int, labels: int) -> dict[str, tuple[int, ...]]:
        if not has_torch():
            raise MissingExtraError("torch", "neural", f"counting the parameters of {self.name}")
        import torch

        from chainrule.networks.initial_weights import WithoutInitialWeights

        def shapes(sizes: Mapping[str, int]) -> dict[str, torch.Size]:
            own = replace(settings, **{name: size for name, size in sizes.items() if name in names})
            # "meta" knows shapes and needs no memory
            with torch.random.fork_rng([]), WithoutInitialWeights(), torch.device("meta"):
                network = self.untrained(own, sizes["|V|"], sizes["labels"])
            return {name: weight.shape for name, weight in network.named_parameters()}

        names = [field.name for field in fields(settings) if type(getattr(settings, field.name)) is Traced]
        sizes = {**{name: getattr(settings, name) for name in names}, "|V|": vocab_size, "labels": labels}
        return with_formulas(shapes, sizes)

    def engine(self, settings: NeuralSettings) -> type[Engine]:
        """Return the class of the engine that the settings choose."""
        engine = settings.chosen_engine
        if engine == "torch" and not has_torch():
            raise MissingExtraError("torch", "neural", f"{self.name} with engine=torch")
        found: type[Engine] = import_object(_ENGINES[engine])
        return found

    def check(self, settings: Any, device: str) -> None:
        """Refuse settings that cannot be computed on the device, before a text is read."""
        check_together(settings)
        self.engine(settings).check(settings, device)
        check_logger(settings.logger)
        completed(settings, self.name)
        base_folder(settings)

    def build(self, settings: Any, data: TrainingData, vectors: Vectors | None = None) -> Engine:
        """Return an engine for a new model with random weights and, in its embedding table, word vectors."""
        engine, make = self.engine(settings), self.maker(settings, data)
        begun = begun_from(settings, self.name)

        def with_vectors(fill: Fill) -> Any:
            model = make(fill) if begun is None else engine.load(make, begun)
            if vectors is not None:
                weight_VD, scale, setting = engine.table(model)
                vectors.check_width(weight_VD.shape[1], setting)
                weight_VD[vectors.ids_N] = vectors.matrix_ND / scale
            if data.base is not None:
                begin_at_base(model.tensors())
            return model

        return engine.build(with_vectors, settings, data)

    def load(self, folder: ModelFolder) -> Any:
        """Return the model of a folder, in the engine that it names; without torch, on the tape if it can be."""
        settings = parse(self.settings, folder.config)
        if not has_torch() and "tape" in self.networks:
            settings = parse(self.settings, {**folder.config, "engine": "tape"})
        texts = {TEXT: folder.tokenizer, **folder.tokenizers}
        tokenizers = {name: parse_tokenizer(text, str(folder.path)) for name, text in texts.items()}
        make = partial(self.model, settings, tokenizers, folder.context or "line")
        return self.engine(settings).load(make, folder)

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train a network on a text; its last weights are saved in the run folder too."""
        if (begun := begun_from(settings, self.name)) is not None:
            settings, data = completed(settings, self.name), replace(data, context=begun.context or "line")
        with paying_threads(
            on=data.device == "cpu" and processes() == 1 and with_time(settings).minutes is not None
        ):
            return self._train(settings, data)

    def _train(self, settings: Any, data: TrainingData) -> Any:
        began = time.perf_counter()
        data = replace(data, base=base_for(settings, data))
        settings = self._chosen(settings, data, began)
        vectors = load_vectors(settings.vectors, data.tokenizer) if settings.vectors else None
        engine = self.build(settings, data, vectors)
        if vectors is not None:
            data.progress.note(str(vectors))
        texts, model = self.texts(settings, data), engine.model
        finished = on_base(model, data.base)
        sample = partial(self.sample, finished, data)
        trained = train_network(engine, settings, data, texts=texts, sample=sample, began=began)
        coverage = {} if vectors is None else {"vectors_coverage": round(vectors.coverage, 4)}
        model.metrics = {**coverage, **_figures(model, trained, data.tokenizer.vocab_size)}
        if getattr(settings, "is_tuned", False):
            model.metrics = with_tokens_read(model.metrics, texts.train, data)
        finished.metrics = {**finished.metrics, **model.metrics}
        if data.run is not None:
            _save_last(engine, finished, trained, settings, data)
        return finished

    def _chosen(self, settings: Any, data: TrainingData, began: float) -> Any:
        """Return the settings with a value for each that is left open: of the checkpoint, or chosen now."""
        team = current_team()
        # of a run that is resumed
        found = Checkpoints(data.run, SILENT).newest() if data.run is not None and data.resume else None
        if (then := team.agree(None if found is None else dict(found.state["identity"]["settings"]))) is not None:
            is_open = getattr(settings, "engine", None) == "auto"
            return remembered(settings.with_engine(then["engine"] if is_open else settings.chosen_engine), then)
        limited = with_time(settings)
        quiet = replace(data, progress=SILENT)  # the training itself notes what it leaves out
        speed = partial(tokens_per_second, self.build, data, self.texts(settings, quiet))
        every = []
        for engine in self._engines(limited, data):
            seconds = None
            if limited.minutes is not None:
                seconds = team.agree(60 * limited.minutes - (time.perf_counter() - began))
            every.append(complete(limited.with_engine(engine), data, speed, seconds))
        chosen = every[0]
        if len(every) > 1:
            vocab_size = data.tokenizer.vocab_size
            chosen = max(every, key=lambda one: speed(one) * one.cost(vocab_size).flops)
        words = in_words(settings, chosen)
        if chosen is not every[0]:
            words = f"engine={chosen.engine}, which is faster than {every[0].engine} here; {words}"
        if words:
            data.progress.note(f"{self.name}: chosen {words}")
        return chosen

    def _engines(self, settings: Any, data: TrainingData) -> list[EngineName]:
        """Return the engines to choose from: one, or both for a run by the clock on a CPU if no engine is set."""
        first: EngineName = settings.chosen_engine
        is_open = getattr(settings, "engine", None) == "auto" and first == "torch"
        if not is_open or settings.minutes is None or data.device != "cpu" or processes() > 1:
            return [first]
        on_tape = settings.with_engine("tape")
        try:
            self.engine(on_tape).check(on_tape, data.device)
        except SettingsError:
            return [first]
        return [first, "tape"]

    def registered(self, summary: str, **others: Any) -> Kind:
        """Return the kind as it is registered: `others` are its task, its tokenizer, its ladder, and so on."""
        return Kind(
            name=self.name,
            summary=summary,
            settings=self.settings,
            train=self.train,
            load=self.load,
            tunes_on_held_out=lambda settings: True,
            check=self.check,
            keeps_run=True,
            requires_torch="tape" not in self.networks,
            shapes=self.shapes,
            network=self.networks.get("tape"),
            **others,
        )


def _save_last(engine: Engine, model: Any, trained: Trained, settings: NeuralSettings, data: TrainingData) -> None:
    """Save the last weights in the run folder, as a model; the model itself keeps the best ones."""
    metrics, provenance = model.metrics, model.provenance
    # validations measure averaged weights where there are any, not the last ones
    nats = trained.state.history[-1]["validation_loss"] if settings.average == "none" else None
    model.metrics, model.provenance = {**metrics, "validation_nats": nats}, data.provenance()
    engine.load_weights(trained.last)
    try:
        assert data.run is not None
        model.save(data.run / LAST, overwrite=True)
    finally:
        engine.load_weights(trained.best)
        model.metrics, model.provenance = metrics, provenance


def _figures(model: Any, trained: Trained, vocab_size: int) -> dict[str, Any]:
    state = trained.state
    return {
        "parameters": count_parameters({name: array.shape for name, array in model.tensors().items()}, vocab_size),
        "steps": state.step,
        "tokens_seen": state.tokens,
        "validation_nats": state.best_loss,
        "validation_tokens": trained.validation_tokens,
        HISTORY: state.history,
        "tokens_per_second_in_training": round(state.tokens / max(state.seconds, 1e-9), 1),
        **({EARLIER: round(trained.earlier, 3)} if trained.earlier else {}),
        "bfloat16": state.decisions.bfloat16,
        "compiled": state.decisions.compiled,
    }


def with_tokens_read(metrics: Mapping[str, Any], examples: Examples, data: TrainingData) -> dict[str, Any]:
    """Return the metrics of examples of which a part is predicted: of all tokens read, and apart of that part."""
    predicted, rate = metrics["tokens_seen"], metrics["tokens_per_second_in_training"]
    share = examples.tokens / len(data.train.ids)
    return {
        **metrics,
        "tokens_seen": round(predicted / share),
        "tokens_predicted": predicted,
        "tokens_per_second_in_training": round(rate / share, 1),
    }


def network_kind(
    name: str,
    summary: str,
    settings: type[NeuralSettings],
    *,
    torch: str,
    tape: str | None = None,
    entry: LadderEntry | None = None,
    rung: LadderEntry | None = None,
) -> Kind:
    """Return the kind of a network: its settings class, and the class of the network for torch and the tape.

    A class is named MODULE:NAME. A torch network is a `Network` constructed from (settings, vocab_size, bos). The
    settings class derives from `NeuralSettings`, or from `EngineSettings` where the tape has the network too.
    `entry` is its model in the ladder of `compare`; `rung` is the old name of that parameter.

    >>> kind = network_kind("mine", "my own network", NeuralSettings, torch="my_package.networks:Mine")
    >>> kind.name, kind.requires_torch, kind.keeps_run
    ('mine', True, True)
    """
    networks = {"torch": torch} if tape is None else {"torch": torch, "tape": tape}
    ladder = tuple(one for one in (entry, rung) if one is not None)
    return NetworkKind(name, settings, networks).registered(summary, ladder=ladder)


_TORCH, _TAPE = "chainrule.networks", "chainrule.autodiff.networks"

FEEDFORWARD = network_kind(
    "feedforward",
    "the last few tokens as vectors, side by side, and a hidden layer",
    FeedforwardSettings,
    torch=f"{_TORCH}.feedforward:Feedforward",
    tape=f"{_TAPE}.feedforward:TapeFeedforward",
    entry=LadderEntry("feed-forward", ON_LADDER),
)
BAG_OF_WORDS = network_kind(
    "bagofwords",
    "a bag of words: the mean of the tokens before, whatever their order",
    BagOfWordsSettings,
    torch=f"{_TORCH}.bag_of_words:BagOfWords",
    tape=f"{_TAPE}.feedforward:TapeBagOfWords",
    entry=LadderEntry("bag of words", ON_LADDER, share=0.5),
)
_recurrent_kind = partial(
    network_kind, torch=f"{_TORCH}.recurrent.rnn:Recurrent", tape=f"{_TAPE}.recurrent:TapeRecurrent"
)
ELMAN = _recurrent_kind(
    "elman",
    "a recurrent network: one state carries all that was read",
    ElmanSettings,
    entry=LadderEntry("elman", ON_LADDER),
)
LSTM = _recurrent_kind(
    "lstm",
    "a recurrent network whose gates decide what to keep",
    LstmSettings,
    entry=LadderEntry("lstm", ON_LADDER, share=2.0, quick=True),
)
GRU = _recurrent_kind("gru", "a recurrent network with two gates", GruSettings, entry=LadderEntry("gru", ON_LADDER))
QRNN = network_kind(
    "qrnn",
    "a recurrent network without products of matrices over time: gates by a convolution",
    QrnnSettings,
    torch=f"{_TORCH}.recurrent.qrnn:Qrnn",
    tape=f"{_TAPE}.recurrent:TapeQrnn",
    entry=LadderEntry("qrnn", ON_LADDER, standard=False),
)
TRANSFORMER = network_kind(
    "transformer",
    "every token looks at those before it",
    TransformerSettings,
    torch=f"{_TORCH}.transformer.decoder:Transformer",
    tape=f"{_TAPE}.transformer:TapeTransformer",
    entry=LadderEntry("transformer", ON_LADDER, share=2.0, quick=True),
)
