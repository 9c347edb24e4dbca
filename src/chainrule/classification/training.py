"""The task, and the kind classifier: a network that gives a text its label, trained by the same loop as any."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

from chainrule.classification.contract import LABELS, sources_of
from chainrule.classification.examples import LabelledExamples
from chainrule.contract.data import TrainingData
from chainrule.contract.kinds import LadderEntry
from chainrule.contract.tasks import Task
from chainrule.folder import ModelFolder
from chainrule.networks.classification.config import ClassifierSettings
from chainrule.settings import parse
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.words.tokenizer import WordTokenizer
from chainrule.training.engines.base import Fill
from chainrule.training.examples import Texts
from chainrule.training.kinds import NetworkKind
from chainrule.training.pretrained import (
    encoder_of,
    load_pretrained,
    with_all_parameters,
    with_dropout,
    with_encoder,
)

_WHAT = "a classifier"
_ENCODER_DROPOUT = 0.1  # share of features left out in a pretrained encoder while it is tuned


class ClassifierKind(NetworkKind):
    """Trains and loads neural classifiers."""

    def maker(self, settings: Any, data: TrainingData) -> Callable[[Fill], Any]:
        labels = WordTokenizer([label.encode() for label in sources_of(data).train.labels])
        pretrained = load_pretrained(settings)
        encoder = with_dropout(pretrained, settings.pretrained, _WHAT, _ENCODER_DROPOUT)
        return partial(self._classifier, settings, data.tokenizer, labels, pretrained, encoder)

    def load(self, folder: ModelFolder) -> Any:
        from chainrule.networks.classification.classifier import ENCODER

        settings: Any = parse(self.settings, folder.config)
        texts, labels = folder.parsed_tokenizer(), folder.parsed_tokenizer(LABELS)
        folder, *begun = with_encoder(folder, settings, ENCODER, _WHAT)
        return self.engine(settings).load(partial(self._classifier, settings, texts, labels, *begun), folder)

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
        if (pretrained := load_pretrained(settings)) is not None:
            config = encoder_of(pretrained, settings.pretrained, _WHAT).config
            sizes = {name: getattr(config, name) for name in ("layers", "width", "heads")}
            window = min(settings.window, config.window)
            settings = dataclasses.replace(
                settings, encoder="transformer", **sizes, embedding=config.width, window=window
            )
        model = with_all_parameters(super().train(settings, data))
        examples: Any = self.texts(model.settings, data).train
        tokens = examples.read / examples.tokens  # of a text
        scaled = ("tokens_seen", "validation_tokens", "tokens_per_second_in_training")
        model.metrics = {
            **model.metrics,
            **{name: round(model.metrics[name] * tokens) for name in scaled if model.metrics.get(name)},
        }
        return model

    def texts(self, settings: Any, data: TrainingData) -> Texts:
        """Return the texts; of a long one, the beginning."""
        from chainrule.classification.neural_classifier import start_of

        sources, start = sources_of(data), start_of(data.tokenizer, load_pretrained(settings))
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


def _entry(name: str, *, quick: bool = False, **settings: Any) -> LadderEntry:
    return LadderEntry(name, {"minutes": 1.0, **settings}, quick=quick)


CLASSIFICATION = Task(
    "classification",
    does="classifies texts",
    verb="classify",
    evaluate="chainrule.classification.evaluate:evaluate_classifier",
    show="chainrule.cli.output.measured:show_classifiers",
    examples="chainrule.text.labelled:as_labelled",
    encode="chainrule.runs.prepare:encode_annotated",
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
