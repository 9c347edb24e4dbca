"""The task, and the kind classifier: a network that gives a text its label, trained by the same loop as any."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from chainrule.classification.contract import LABELS, sources_of
from chainrule.classification.examples import LabelledExamples
from chainrule.contract.kinds import LadderEntry, TrainingData, load_content
from chainrule.contract.tasks import Task
from chainrule.errors import DamagedFileError
from chainrule.folder import ModelFolder, read_folder
from chainrule.networks.classification.config import ClassifierSettings
from chainrule.settings import parse
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import parse_tokenizer
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.engines.base import Fill
from chainrule.training.examples import Texts
from chainrule.training.kinds import NetworkKind
from chainrule.training.pretrained import encoder_of, with_dropout

_ENCODER_DROPOUT = 0.1  # share of features left out in a pretrained encoder while it is tuned


class ClassifierKind(NetworkKind):
    """Trains and loads neural classifiers."""

    def maker(self, settings: Any, data: TrainingData) -> Callable[[Fill], Any]:
        labels = WordTokenizer([label.encode() for label in sources_of(data).train.labels])
        pretrained = _pretrained(settings)
        encoder = None
        if pretrained is not None:
            encoder = with_dropout(_encoder(pretrained, settings.pretrained), _ENCODER_DROPOUT)
        return partial(self._classifier, settings, data.tokenizer, labels, pretrained, encoder)

    def load(self, folder: ModelFolder) -> Any:
        settings: Any = parse(self.settings, folder.config)
        if LABELS not in folder.tokenizers:
            raise DamagedFileError(
                f"{folder.path}: it has no tokenizer {LABELS!r}, which the kind {self.name!r} needs"
            )
        texts, labels = (
            parse_tokenizer(one, str(folder.path)) for one in (folder.tokenizer, folder.tokenizers[LABELS])
        )
        pretrained, encoder, arrays = None, None, dict(folder.tensors)
        if settings.pretrained is not None:
            from chainrule.classification.neural_classifier import PRETRAINED
            from chainrule.networks.classification.classifier import ENCODER

            pretrained = load_content(folder.part(PRETRAINED))
            encoder = _encoder(pretrained, str(folder.path))
            arrays |= {f"{ENCODER}{name}": weight.numpy() for name, weight in encoder.state_dict().items()}
        make = partial(self._classifier, settings, texts, labels, pretrained, encoder)
        return self.engine(settings).load(make, dataclasses.replace(folder, tensors=arrays))

    def _classifier(
        self, settings: Any, texts: Tokenizer, labels: Tokenizer, pretrained: Any, encoder: Any, fill: Fill
    ) -> Any:
        from chainrule.classification.neural_classifier import NeuralClassifier
        from chainrule.networks.classification.classifier import ClassifierNetwork

        def network() -> ClassifierNetwork:
            return ClassifierNetwork(settings, texts.vocab_size, len(labels.words), copy.deepcopy(encoder))

        return NeuralClassifier(
            fill(network), texts, labels, kind=self.name, settings=settings, pretrained=pretrained
        )

    def untrained(self, settings: Any, vocab_size: int, labels: int) -> Any:
        from chainrule.networks.classification.classifier import ClassifierNetwork

        return ClassifierNetwork(settings, vocab_size, labels)

    def train(self, settings: Any, data: TrainingData) -> Any:
        """Train a network on labelled texts; its metrics count the tokens that it read."""
        sources_of(data)  # which refuses texts of one label
        if (pretrained := _pretrained(settings)) is not None:
            config = _encoder(pretrained, settings.pretrained).config
            sizes = {name: getattr(config, name) for name in ("layers", "width", "heads")}
            window = min(settings.window, config.window)
            settings = dataclasses.replace(
                settings, encoder="transformer", **sizes, embedding=config.width, window=window
            )
        model: Any = super().train(settings, data)
        examples: Any = self.texts(model.settings, data).train
        tokens = examples.read / examples.tokens  # of a text
        scaled = ("tokens_seen", "validation_tokens", "tokens_per_second_in_training")
        model.metrics = {
            **model.metrics,
            **{name: round(model.metrics[name] * tokens) for name in scaled if model.metrics.get(name)},
            # a pretrained encoder is a part of the folder by itself, and belongs to the network all the same
            "parameters": sum(weight.numel() for weight in model.network.parameters()),
        }
        return model

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Return the texts; of a long one, the beginning."""
        from chainrule.classification.neural_classifier import start_of

        sources, start = sources_of(data), start_of(data.tokenizer, _pretrained(settings))
        of = partial(
            LabelledExamples.of,
            labels=sources.train.labels,
            eos=data.tokenizer.eos,
            start=start,
            longest=settings.longest,
        )
        valid = None if data.valid is None or sources.valid is None else of(data.valid, sources.valid)
        return Texts(of(data.train, sources.train), valid if valid is not None and valid.tokens else None)

    def sample(self, lm: Any, data: TrainingData) -> str:
        """Return the first held-out text, after the label that the network gives it."""
        sources = sources_of(data)
        (found,) = lm.classify([next(iter(sources.valid or sources.train)).text])
        return str(found)


def _pretrained(settings: Any) -> Any:
    """Return the masked model that the settings name, if any."""
    return None if settings.pretrained is None else load_content(read_folder(settings.pretrained))


_encoder = partial(encoder_of, what="a classifier")


def _entry(name: str, *, quick: bool = False, **settings: Any) -> LadderEntry:
    return LadderEntry(name, {"minutes": 1.0, **settings}, quick=quick)


CLASSIFICATION = Task(
    "classification",
    does="classifies texts",
    verb="classify",
    evaluate="chainrule.classification.evaluate:evaluate_classifier",
    show="chainrule.cli.output.measured:show_classifiers",
    examples="chainrule.text.labelled:as_labelled",
    encode="chainrule.runs.prepare:encode_labelled",
    has_labels=True,
    example="text",
    perplexity_of=" of labels",
)
KIND = ClassifierKind("classifier", ClassifierSettings, {}).registered(
    "a network that gives a text its label, such as its language or its genre",
    ladder=(
        _entry("averaging", encoder="bagofwords", quick=True),
        _entry("lstm", encoder="lstm", quick=True),
        _entry("transformer", encoder="transformer"),
    ),
    task=CLASSIFICATION.name,
    tokenizer="bpe",
    measure="chainrule.classification.evaluate:measure",
)
