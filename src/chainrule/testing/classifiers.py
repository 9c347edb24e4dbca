"""The laws of classifiers: what holds for each of them.

Each law is a function that takes a classifier and raises AssertionError if the classifier breaks it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import chainrule as cr
from chainrule.classification.contract import Classifier
from chainrule.errors import ModelError
from chainrule.testing.register import Laws

CLASSIFIER_LAWS: Laws[Classifier] = Laws()
classifier_law = CLASSIFIER_LAWS.enter
_CLOSE: Any = {"rtol": 1e-4, "atol": 1e-5}
TEXTS = ["the cat", "a", "Zürich 🙂 " * 7, "die Katze sieht den Hund", "nevermore " * 300, "the dog sees"]
"""Texts of several lengths, with characters that a tokenizer may not know, and one longer than most windows."""


def check_classifier_laws(classifier: Classifier) -> None:
    """Check every law; the error names the first that the classifier breaks.

    >>> texts = [("the cat", "en"), ("a dog", "en"), ("die Katze", "de"), ("ein Hund", "de")]
    >>> check_classifier_laws(cr.train("bayes", texts, lm_settings="order=2", tokenizer="char"))
    """
    CLASSIFIER_LAWS.check(classifier, CLASSIFIER_LAWS)


@classifier_law
def probabilities_sum_to_one(classifier: Classifier) -> None:
    """Σ over labels of p(label | text) is 1, for each text."""
    log_probs_NK = classifier.log_probs(TEXTS)
    assert log_probs_NK.shape == (len(TEXTS), len(classifier.labels))
    np.testing.assert_allclose(np.exp(log_probs_NK).sum(axis=1), 1.0, **_CLOSE)


@classifier_law
def a_batch_is_its_texts(classifier: Classifier) -> None:
    """A text has the same probabilities alone and among others, which pad it."""
    alone_NK = np.concatenate([classifier.log_probs([text]) for text in TEXTS])
    np.testing.assert_allclose(alone_NK, classifier.log_probs(TEXTS), **_CLOSE)


@classifier_law
def the_order_of_texts_changes_nothing(classifier: Classifier) -> None:
    """Probabilities come back in the order in which the texts were given."""
    np.testing.assert_allclose(classifier.log_probs(TEXTS[::-1])[::-1], classifier.log_probs(TEXTS), **_CLOSE)


@classifier_law
def labels_have_an_order(classifier: Classifier) -> None:
    """Labels are distinct, at least two, and in the order of the alphabet, whatever the order of the texts was."""
    assert len(classifier.labels) >= 2
    assert classifier.labels == sorted(set(classifier.labels))


@classifier_law
def the_best_label_is_given(classifier: Classifier) -> None:
    """`classify` gives the label of the greatest probability, that probability, and those of all labels."""
    for found, text, log_probs_K in zip(
        classifier.classify(TEXTS), TEXTS, classifier.log_probs(TEXTS), strict=True
    ):
        assert found.text == text and found.label == classifier.labels[log_probs_K.argmax()]
        np.testing.assert_allclose(found.probability, np.exp(log_probs_K.max()), **_CLOSE)
        np.testing.assert_allclose([found.log_probs[label] for label in classifier.labels], log_probs_K, **_CLOSE)


@classifier_law
def nothing_has_no_label(classifier: Classifier) -> None:
    """An empty list has an empty result, and an empty text is refused."""
    assert classifier.log_probs([]).shape == (0, len(classifier.labels))
    try:
        classifier.log_probs(["a", " \n "])
    except ModelError as error:
        assert "text 1 is empty" in str(error)
    else:
        raise AssertionError("an empty text got probabilities")


@classifier_law
def saving_is_exact(classifier: Classifier) -> None:
    """A classifier that is saved and loaded has the same labels and gives the same probabilities, bit for bit."""
    if classifier.dtype == "bfloat16" or classifier.device != "cpu":
        return
    with tempfile.TemporaryDirectory() as folder:
        classifier.save(Path(folder) / "model")
        loaded: Any = cr.load(Path(folder) / "model")
        assert loaded.labels == classifier.labels
        assert np.array_equal(loaded.log_probs(TEXTS), classifier.log_probs(TEXTS))
