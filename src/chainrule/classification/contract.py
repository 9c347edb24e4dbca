"""`Classifier`: a model that gives a text a distribution over labels.

    p(label | text)                          Σ over labels is 1

It predicts no next token, so it is no language model; bayes.py makes one of a language model for each label.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from chainrule.arrays import checked
from chainrule.contract.data import Annotated, TrainingData
from chainrule.contract.model import Model
from chainrule.errors import CorpusError, ModelError
from chainrule.folder import TEXT
from chainrule.text.labelled import Labelled, one_line
from chainrule.tokens.base import Tokenizer

LABELS = "labels"
"""The name of the tokenizer of labels in a model folder: its words are the labels."""


@dataclass(frozen=True)
class Classified:
    """A text as a classifier sees it."""

    text: str
    label: str
    """The most probable label."""
    probability: float
    """p of this label."""
    log_probs: Mapping[str, float]
    """ln p of each label."""

    def __str__(self) -> str:
        return f"{self.label}\t{self.probability:.3f}\t{self.text}"


class Classifier(Model):
    """A probability for every label of a text."""

    purpose, verb = "classify texts", "classify"
    tokenizer: Tokenizer
    """The tokens of a text."""
    label_tokenizer: Tokenizer
    """The labels, as the words of a tokenizer."""

    @abstractmethod
    def log_probs_of_lines(self, lines: Sequence[str]) -> np.ndarray:
        """Return ln p of each label of each text, [N, K]; a text is one line, and there is at least one."""

    # What follows is the same for every classifier; none overrides it.

    @property
    def labels(self) -> list[str]:
        """The labels, in the order of their numbers."""
        return self.label_tokenizer.words

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizer of texts, and the labels."""
        return {TEXT: self.tokenizer, LABELS: self.label_tokenizer}

    def log_probs(self, texts: Sequence[str]) -> np.ndarray:
        """Return ln p of each label of each text, [N, K]; the K labels are in the order of `labels`."""
        if isinstance(texts, str):
            raise ModelError("expected a list of texts, found one text: give [text]")
        lines = [one_line(text) for text in texts]
        if "" in lines:
            raise ModelError(f"text {lines.index('')} is empty: there is nothing to classify")
        return checked(self.log_probs_of_lines(lines)) if lines else np.zeros((0, len(self.labels)))

    def classify(self, texts: Sequence[str]) -> list[Classified]:
        """Return the most probable label of each text."""
        labels, found = self.labels, []
        for text, log_probs_K in zip(texts, self.log_probs(texts), strict=True):
            best = int(log_probs_K.argmax())
            by_label = dict(zip(labels, log_probs_K.tolist(), strict=True))
            found.append(Classified(text, labels[best], float(np.exp(log_probs_K[best])), by_label))
        return found

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self.labels):,} labels, {self.tokenizer.name} tokens>"


def sources_of(data: TrainingData) -> Annotated[Labelled]:
    """Return the labelled texts of a training; texts of one label alone are refused."""
    sources = cast("Annotated[Labelled]", data.sources)
    labels = sources.train.labels
    if len(labels) < 2:
        raise CorpusError(f"every text has the label {labels[0]!r}: a classifier needs two labels or more")
    return sources


def classify(model: Any, texts: Iterable[str]) -> list[Classified]:
    """Return the most probable label of each text, and the probabilities of all labels.

    >>> import chainrule as cr
    >>> texts = [("the cat sat on the mat", "en"), ("die Katze sitzt da", "de"), ("where", "en"), ("wo", "de")]
    >>> model = cr.train("bayes", texts, tokenizer="char", lm_settings="order=3")
    >>> [found.label for found in classify(model, ["the house", "das Haus"])]
    ['en', 'de']
    """
    classifier = Classifier.expect(model)
    if isinstance(texts, str):
        raise ModelError("expected a list of texts, found one text: give [text]")
    return classifier.classify(list(texts))
