"""A scikit-learn classifier of texts: one language model for each class, and Bayes' rule.

    ln p(class | text) = ln p(text | class) + ln p(class) - ln Σ_c p(text | c) p(c)

The tokenizer is learned from all classes together, so that every model gives probabilities to the same tokens.
By default a model is a character n-gram, which tells languages and authors apart from little text:

>>> texts = ["the cat sat on the mat", "where is the house", "die Katze sitzt da", "wo ist das Haus"]
>>> classifier = PerplexityClassifier().fit(texts, ["en", "en", "de", "de"])
>>> classifier.predict(["the house", "das Haus"]).tolist()
['en', 'de']
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np

from chainrule.classification.bayes import posterior
from chainrule.contract.lm import Context, LanguageModel
from chainrule.errors import importing
from chainrule.evaluation.surprisal import score
from chainrule.runs.prepare import TokenizerChoice
from chainrule.runs.train import train
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer

with importing("scikit-learn", "sklearn", "a classifier for scikit-learn"):
    from sklearn.base import BaseEstimator, ClassifierMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import check_consistent_length, check_is_fitted, column_or_1d

DEFAULTS: Mapping[str, Mapping[str, Any]] = {"ngram": {"order": 4}}
"""The settings of a kind where none are given: of orders 2 to 8, 4 told languages and authors apart best."""


class PerplexityClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Classifies a text by the language model that finds it the most probable.

    Parameters
    ----------
    kind : the kind of model, as `chainrule kinds` lists them
    tokenizer : a tokenizer's name, a `TokenizerChoice` or a `Tokenizer`
    context : "line", where each line of a text is a sequence, or "stream", where the text is one
    settings : the settings of the kind as a dictionary; None: of n-grams order 4, else the defaults of the kind
    prior : "frequency", the share of the texts of each class; "uniform"; or a probability for each of `classes_`
    device : where networks compute
    random_state : seeds the training of networks

    Attributes
    ----------
    classes_ : the labels, in order
    models_ : the language model of each
    tokenizer_ : the tokenizer that they share
    class_log_prior_ : ln p(class)
    """

    def __init__(
        self,
        kind: str = "ngram",
        *,
        tokenizer: Tokenizer | TokenizerChoice | str = "char",
        context: Context = "line",
        settings: Mapping[str, Any] | None = None,
        prior: str | Sequence[float] = "frequency",
        device: str = "cpu",
        random_state: Any = 0,
    ) -> None:
        self.kind = kind
        self.tokenizer = tokenizer
        self.context = context
        self.settings = settings
        self.prior = prior
        self.device = device
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Train a model on the texts of each class."""
        texts = _texts(X)
        if y is None:
            raise ValueError("PerplexityClassifier requires y to be passed, but the target y is None")
        check_consistent_length(texts, y)
        labels = column_or_1d(y, warn=True)
        check_classification_targets(labels)
        self.classes_, of_text = np.unique(labels, return_inverse=True)
        counts = np.bincount(of_text, minlength=len(self.classes_))
        self.class_log_prior_ = self._log_prior(counts)
        settings = DEFAULTS.get(self.kind, {}) if self.settings is None else self.settings
        seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        given = TokenizerChoice(self.tokenizer) if isinstance(self.tokenizer, str) else self.tokenizer
        self.tokenizer_ = given if isinstance(given, Tokenizer) else given.make(Corpus.from_texts(texts))
        self.models_: list[LanguageModel] = [
            train(
                self.kind,
                Corpus.from_texts(text for text, place in zip(texts, of_text, strict=True) if place == number),
                tokenizer=self.tokenizer_,
                context=self.context,
                device=self.device,
                seed=seed,
                **settings,
            )
            for number in range(len(self.classes_))
        ]
        return self

    def predict(self, X: Any) -> np.ndarray:
        """Return the most probable class of each text."""
        joint_NC = self.predict_joint_log_proba(X)
        labels: np.ndarray = self.classes_[np.argmax(joint_NC, axis=1)]
        return labels

    def predict_proba(self, X: Any) -> np.ndarray:
        """p(class | text), a row for each text."""
        probs_NC: np.ndarray = np.exp(self.predict_log_proba(X))
        return probs_NC

    def predict_log_proba(self, X: Any) -> np.ndarray:
        """Return ln p(class | text), which is ln p(class) if no model gives the text a probability."""
        return posterior(self.predict_joint_log_proba(X), self.class_log_prior_)

    def predict_joint_log_proba(self, X: Any) -> np.ndarray:
        """Return ln p(text, class) = ln p(text | class) + ln p(class)."""
        check_is_fitted(self)
        texts = _texts(X)
        text_NC = np.stack([score(lm, texts).log_prob for lm in self.models_], axis=1)
        joint_NC: np.ndarray = text_NC + self.class_log_prior_
        return joint_NC

    def __sklearn_tags__(self) -> Any:
        """Return what scikit-learn should know of the input: texts, one for each sample."""
        tags = super().__sklearn_tags__()
        tags.input_tags.string, tags.input_tags.one_d_array, tags.input_tags.two_d_array = True, True, False
        return tags

    def _log_prior(self, counts: np.ndarray) -> np.ndarray:
        if isinstance(self.prior, str):
            if self.prior not in ("frequency", "uniform"):
                raise ValueError(f"prior should be frequency, uniform or probabilities, not {self.prior!r}")
            weights = counts if self.prior == "frequency" else np.ones(len(counts))
            given: np.ndarray = weights / weights.sum()
        else:
            given = np.asarray(self.prior, dtype=float)
        if given.shape != counts.shape or (given <= 0).any() or not np.isclose(given.sum(), 1):
            raise ValueError(
                f"prior should have a probability above 0 for each of {len(counts)} classes, with the sum 1"
            )
        log_prior: np.ndarray = np.log(given)
        return log_prior


def _texts(X: Any) -> list[str]:
    """Return the texts of a list, an array or a column of a table."""
    if isinstance(X, (str, bytes)):
        raise ValueError("expected a list of texts, found a single one: give [text]")
    if hasattr(X, "columns"):
        raise ValueError("expected texts, found a table: give its column of texts, such as frame['text']")
    if getattr(X, "ndim", 1) != 1:
        raise ValueError(f"expected a list of texts, found an array of shape {X.shape}")
    texts = list(X)
    if not texts:
        raise ValueError("expected a list of texts, found an empty one")
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"text {number}: expected str, found {type(text).__name__}")
    return [str(text) for text in texts]  # those of NumPy's arrays are of a subclass
