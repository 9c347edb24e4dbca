"""The laws of models that name what they read: taggers, which give words tags, and classifiers, which label texts.

Each law is a function that takes a model and raises AssertionError if the model breaks it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import chainrule as cr
from chainrule.classification.contract import Classifier
from chainrule.errors import ModelError
from chainrule.tagging.contract import Tagger
from chainrule.testing.register import Laws

NamingLaw: TypeAlias = Callable[[Any], None]

TAGGER_LAWS: Laws[Tagger] = Laws()
CLASSIFIER_LAWS: Laws[Classifier] = Laws()
TEXTS = ["the cat", "a", "Zürich 🙂 " * 7, "die Katze sieht den Hund", "nevermore " * 300, "the dog sees"]
"""Texts of several lengths, with characters that a tokenizer may not know, and one longer than most windows."""


def check_tagger_laws(tagger: Tagger) -> None:
    """Check every law; the error names the first that the tagger breaks.

    >>> sentences = [[("the", "DET"), ("cat", "NOUN")], [("a", "DET"), ("dog", "NOUN")]] * 4
    >>> check_tagger_laws(cr.train("tagger", sentences, width=8, layers=1, steps=1))
    """
    TAGGER_LAWS.check(tagger, TAGGER_LAWS)


def check_classifier_laws(classifier: Classifier) -> None:
    """Check every law; the error names the first that the classifier breaks.

    >>> texts = [("the cat", "en"), ("a dog", "en"), ("die Katze", "de"), ("ein Hund", "de")]
    >>> check_classifier_laws(cr.train("bayes", texts, lm_settings="order=2", tokenizer="char"))
    """
    CLASSIFIER_LAWS.check(classifier, CLASSIFIER_LAWS)


def law_of_both(law: NamingLaw) -> NamingLaw:
    """Enter a law of taggers and of classifiers."""
    return CLASSIFIER_LAWS.enter(TAGGER_LAWS.enter(law))  # type: ignore[arg-type, return-value]


def given_to(model: Tagger | Classifier) -> list[Any]:
    """Return what a model names: texts; for a tagger sentences of known, unknown, long and strange words."""
    if isinstance(model, Classifier):
        return TEXTS
    known = model.tokenizer.words[:5]
    strange = ["Zürich", "x" * 200, "-", "🙂", "_"]
    return [known, strange, known[:1], [*strange, *known] * 4, ["nevermore"], known[::-1]]


def names_of(model: Tagger | Classifier) -> list[str]:
    """Return the labels or the tags of a model."""
    return model.labels if isinstance(model, Classifier) else model.tags


def assert_alike(found: Any, expected: Any) -> None:
    """Raise AssertionError unless the numbers of each text or sentence are equal but for rounding."""
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@law_of_both
def probabilities_sum_to_one(model: Any) -> None:
    """Σ over names of p(name | text) is 1, for each text, or each word of a sentence."""
    for given, log_probs in zip(given_to(model), model.log_probs(given_to(model)), strict=True):
        names = (len(names_of(model)),)
        assert log_probs.shape == (names if isinstance(model, Classifier) else (len(given), *names))
        assert_alike([np.exp(log_probs).sum(axis=-1)], [1.0])


@law_of_both
def a_batch_is_its_rows(model: Any) -> None:
    """A text or sentence has the same probabilities alone and among others, which pad it."""
    assert_alike([model.log_probs([one])[0] for one in given_to(model)], model.log_probs(given_to(model)))


@law_of_both
def the_order_changes_nothing(model: Any) -> None:
    """Probabilities come back in the order in which texts or sentences were given."""
    given = given_to(model)
    assert_alike(model.log_probs(given[::-1])[::-1], model.log_probs(given))


@law_of_both
def saving_is_exact(model: Any) -> None:
    """A model that is saved and loaded has the same names and gives the same probabilities, bit for bit."""
    if model.dtype == "bfloat16" or model.device != "cpu":
        return
    given = given_to(model)
    with tempfile.TemporaryDirectory() as folder:
        model.save(Path(folder) / "model")
        loaded: Any = cr.load(Path(folder) / "model", dtype=model.dtype)
        assert names_of(loaded) == names_of(model)
        for one, other in zip(loaded.log_probs(given), model.log_probs(given), strict=True):
            assert np.array_equal(one, other)
        if isinstance(model, Tagger):
            words = [word for sentence in given for word in sentence]
            assert loaded.frequent_tags(words) == model.frequent_tags(words)


@TAGGER_LAWS.enter
def the_best_tag_is_given(tagger: Tagger) -> None:
    """`tag` gives the tag of the greatest probability, and that probability."""
    sentences = given_to(tagger)
    for tagged, words, log_probs_TK in zip(
        tagger.tag(sentences), sentences, tagger.log_probs(sentences), strict=True
    ):
        assert tagged.words == tuple(words)
        assert list(tagged.tags) == [tagger.tags[i] for i in log_probs_TK.argmax(axis=1)]
        assert_alike(tagged.log_probs, log_probs_TK.max(axis=1))


@TAGGER_LAWS.enter
def nothing_has_no_tags(tagger: Tagger) -> None:
    """An empty list has an empty result, and a sentence without words has no tags."""
    assert tagger.log_probs([]) == []
    empty, one = tagger.log_probs([[], tagger.tokenizer.words[:1]])
    assert empty.shape == (0, len(tagger.tags)) and one.shape == (1, len(tagger.tags))


@CLASSIFIER_LAWS.enter
def labels_have_an_order(classifier: Classifier) -> None:
    """Labels are distinct, at least two, and in the order of the alphabet, whatever the order of the texts was."""
    assert len(classifier.labels) >= 2
    assert classifier.labels == sorted(set(classifier.labels))


@CLASSIFIER_LAWS.enter
def the_best_label_is_given(classifier: Classifier) -> None:
    """`classify` gives the label of the greatest probability, that probability, and those of all labels."""
    for found, text, log_probs_K in zip(
        classifier.classify(TEXTS), TEXTS, classifier.log_probs(TEXTS), strict=True
    ):
        assert found.text == text and found.label == classifier.labels[log_probs_K.argmax()]
        assert_alike([found.probability], [np.exp(log_probs_K.max())])
        assert_alike([found.log_probs[label] for label in classifier.labels], log_probs_K)


@CLASSIFIER_LAWS.enter
def nothing_has_no_label(classifier: Classifier) -> None:
    """An empty list has an empty result, and an empty text is refused."""
    assert classifier.log_probs([]).shape == (0, len(classifier.labels))
    try:
        classifier.log_probs(["a", " \n "])
    except ModelError as error:
        assert "text 1 is empty" in str(error)
    else:
        raise AssertionError("an empty text got probabilities")
