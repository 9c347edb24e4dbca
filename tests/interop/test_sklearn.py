"""The classifier keeps scikit-learn's rules, and tells languages and authors apart."""

from __future__ import annotations

import pickle
import sys
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import ChainruleError, MissingExtraError

pytest.importorskip("sklearn")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError, SkipTestWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted, validate_data

from chainrule.interop.sklearn import PerplexityClassifier

ENGLISH = ["the cat sat on the mat", "where is the house", "she reads a book", "the weather is fine today"]
GERMAN = ["die Katze sitzt auf der Matte", "wo ist das Haus", "sie liest ein Buch", "das Wetter ist heute schön"]
TEXTS, LABELS = ENGLISH + GERMAN, ["en"] * 4 + ["de"] * 4


@pytest.mark.parametrize("settings", [{}, {"tokenizer": "word", "settings": {"order": 2}}])
def test_the_checks_of_estimators_of_texts(settings: dict[str, Any]) -> None:
    """As for its own estimators of texts, scikit-learn says that most of its checks need numbers: see below."""
    with pytest.warns(SkipTestWarning, match="string=True"):
        found = check_estimator(PerplexityClassifier(**settings), on_fail=None)
    assert {one["status"] for one in found} == {"passed"}


class OfNumbers(PerplexityClassifier):
    """The classifier with numbers for input, which are written as words: every check of scikit-learn applies."""

    kind, context, device, prior, random_state = "ngram", "line", "cpu", "frequency", 0
    tokenizer, settings = "word", {"order": 1, "smoothing": "laplace"}

    def __init__(self, steps: float = 2.0) -> None:
        self.steps = steps

    def fit(self, X: Any, y: Any) -> OfNumbers:
        X, y = validate_data(self, X, y)
        super().fit(self._words(X), y)
        return self

    def predict_joint_log_proba(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        return super().predict_joint_log_proba(self._words(validate_data(self, X, reset=False)))

    def _words(self, X: np.ndarray) -> list[str]:
        bins = np.round(X.astype(float) * self.steps).astype(int)
        return [" ".join(f"{column}:{value}" for column, value in enumerate(row)) for row in bins]

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = False, False, True
        return tags


def test_every_check_of_a_classifier_passes_on_numbers_written_as_words() -> None:
    found = check_estimator(OfNumbers(), on_skip=None, on_fail=None)
    failed = [(one["check_name"], one["exception"]) for one in found if one["status"] == "failed"]
    assert not failed
    assert sum(one["status"] == "passed" for one in found) > 40


def test_languages() -> None:
    classifier = PerplexityClassifier().fit(TEXTS, LABELS)
    assert classifier.predict(["the house is fine", "das ist die Katze"]).tolist() == ["en", "de"]
    assert classifier.classes_.tolist() == ["de", "en"]
    assert classifier.score(TEXTS, LABELS) == 1.0


def test_probabilities_are_bayes_rule_over_the_models() -> None:
    classifier = PerplexityClassifier().fit(TEXTS[:-1], LABELS[:-1])
    text = "wo the cat"
    joint = [
        lm.log_prob(text) + np.log(share) for lm, share in zip(classifier.models_, (3 / 7, 4 / 7), strict=True)
    ]
    expected = np.exp(joint) / np.exp(joint).sum()
    np.testing.assert_allclose(classifier.predict_proba([text])[0], expected, rtol=1e-9)
    np.testing.assert_allclose(np.exp(classifier.predict_log_proba([text])[0]), expected, rtol=1e-9)
    np.testing.assert_allclose(classifier.predict_joint_log_proba([text])[0], joint, rtol=1e-9)
    assert {lm.tokenizer.vocab_size for lm in classifier.models_} == {classifier.tokenizer_.vocab_size}


def test_priors() -> None:
    uniform = PerplexityClassifier(prior="uniform").fit(TEXTS[:-1], LABELS[:-1])
    np.testing.assert_allclose(np.exp(uniform.class_log_prior_), [0.5, 0.5])
    given = PerplexityClassifier(prior=[0.9, 0.1]).fit(TEXTS, LABELS)
    np.testing.assert_allclose(np.exp(given.class_log_prior_), [0.9, 0.1])
    for wrong in ("equal", [0.9, 0.2], [1.0], [1.0, 0.0]):
        with pytest.raises(ValueError, match="prior should"):
            PerplexityClassifier(prior=wrong).fit(TEXTS, LABELS)


def test_a_text_that_no_model_thinks_possible() -> None:
    classifier = PerplexityClassifier(tokenizer="word", settings={"order": 2, "smoothing": "mle"})
    classifier.fit(["a b", "a b", "c d"], [0, 0, 1])
    np.testing.assert_allclose(classifier.predict_proba(["b c", "a b"]), [[2 / 3, 1 / 3], [1, 0]])


def test_any_kind_of_model() -> None:
    settings = {"hidden": 16, "embedding": 8, "steps": 30, "batch": 128, "engine": "tape"}
    classifier = PerplexityClassifier("elman", settings=settings, random_state=1)
    assert classifier.fit(TEXTS, LABELS).score(TEXTS, LABELS) > 0.7
    again = clone(classifier).fit(TEXTS, LABELS)
    np.testing.assert_array_equal(again.predict_proba(TEXTS), classifier.predict_proba(TEXTS))


def test_it_works_with_the_tools_of_scikit_learn() -> None:
    assert cross_val_score(PerplexityClassifier(), TEXTS, LABELS, cv=2).mean() > 0.7
    grid = GridSearchCV(PerplexityClassifier(), {"settings": [{"order": 1}, {"order": 3}]}, cv=2)
    assert grid.fit(TEXTS, LABELS).best_params_["settings"]["order"] in (1, 3)
    lower = FunctionTransformer(lambda texts: [text.lower() for text in texts])
    assert make_pipeline(lower, PerplexityClassifier()).fit(TEXTS, LABELS).predict(["WO IST DAS"]).tolist() == [
        "de"
    ]
    fitted = PerplexityClassifier().fit(np.asarray(TEXTS), np.asarray(LABELS))
    copied = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copied.predict_proba(TEXTS), fitted.predict_proba(TEXTS))


@pytest.mark.parametrize(
    ("texts", "labels", "message"),
    [
        ("the cat", ["en"], "found a single one"),
        ([], [], "an empty one"),
        (["a", 3], ["x", "y"], "text 1: expected str, found int"),
        (np.zeros((2, 2)), [0, 1], "an array of shape"),
        (["a", "b"], [0], "inconsistent numbers of samples"),
        (["a", "b"], [0.5, 0.7], "Unknown label type"),
        (["a", "b"], None, "requires y"),
    ],
)
def test_what_is_refused(texts: Any, labels: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PerplexityClassifier().fit(texts, labels)


def test_settings_are_checked_when_fitted() -> None:
    with pytest.raises(NotFittedError):
        PerplexityClassifier().predict(["a"])
    with pytest.raises(ChainruleError, match="unknown setting 'depth'"):
        PerplexityClassifier(settings={"depth": 3}).fit(TEXTS, LABELS)
    with pytest.raises(ChainruleError, match="no kind of model 'ngrams'"):
        PerplexityClassifier("ngrams").fit(TEXTS, LABELS)


def test_scikit_learn_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.base", None)
    monkeypatch.delitem(sys.modules, "chainrule.interop.sklearn")
    with pytest.raises(MissingExtraError, match=r"needs scikit-learn.*pip install 'chainrule\[sklearn\]'"):
        import chainrule.interop.sklearn  # noqa: F401


def test_the_lesson_of_the_docstring_runs() -> None:
    import doctest

    import chainrule.interop.sklearn as module

    assert doctest.testmod(module) == (0, 3)
    assert cr.__version__
