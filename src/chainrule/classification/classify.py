"""`chainrule.classify`: texts in, labels out."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from chainrule.classification.contract import Classified, Classifier
from chainrule.errors import ModelError


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
