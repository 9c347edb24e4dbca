"""How good a classifier is: accuracy, macro F1, which labels are confused, and how far its probabilities are right.

    macro F1 = the mean of F1 over labels
    ECE = Σ_bins n_b / N |accuracy_b - confidence_b|   texts in bins by p of the label that they were given

The baseline beside it gives every text the label that is the most frequent among the measured texts.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from chainrule.classification.contract import Classifier
from chainrule.contract.confusion import Confusion, precision_recall_f1
from chainrule.contract.kinds import Figures, HeldOut
from chainrule.evaluation.intervals import DRAWS, FEWEST, middle_of
from chainrule.system.progress import SILENT, Progress
from chainrule.text.labelled import GivenLabelled, as_labelled

BINS = 15
"""The number of bins of the calibration error."""
_AT_ONCE = 1024  # texts


@dataclass(frozen=True)
class ClassificationMeasured(Confusion):
    """The counts of a classifier on texts whose labels are known."""

    nats: float
    """The mean of -ln p of the right label; infinite if the model does not know one, or excludes it."""
    calibration_error: float
    """The expected calibration error (ECE): how far p of the given label is from the share of right ones."""
    confidence: float
    """The mean of p of the given label."""

    @property
    def macro_f1(self) -> float:
        """The mean of F1 over the labels that a text has or was given."""
        return float(_macro_f1(self.confusion_KK))

    @property
    def baseline(self) -> float:
        """The accuracy of the most frequent label of these texts."""
        return float(self.confusion_KK.sum(axis=1).max() / self.count)

    @cached_property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """The 95 % intervals of the accuracy and of the macro F1, over draws of the texts; none of few texts.

        A draw of texts is a draw of cells of the table of confusions, since its figures depend on nothing else.
        """
        if self.count < FEWEST:
            return {}
        cells = self.confusion_KK.ravel() / self.count
        drawn_RKK = np.random.default_rng(0).multinomial(self.count, cells, size=DRAWS)
        drawn_RKK = drawn_RKK.reshape(DRAWS, *self.confusion_KK.shape)
        accuracy_R = np.trace(drawn_RKK, axis1=1, axis2=2) / self.count
        return {"accuracy": middle_of(accuracy_R), "macro_f1": middle_of(_macro_f1(drawn_RKK))}

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "accuracy": self.accuracy,
            "macro_f1": self.macro_f1,
            "calibration_error": self.calibration_error,
            "confidence": self.confidence,
            "nats": self.nats,
            "baseline": self.baseline,
            "texts": self.count,
            "intervals": {name: list(ends) for name, ends in self.intervals.items()},
            **self.names_to_json("labels", "texts"),
        }


def _macro_f1(confusion_KK: np.ndarray) -> np.ndarray:
    """Return the mean of F1 over the labels that a text has or was given, [...]."""
    are_there_K = confusion_KK.sum(axis=-1) + confusion_KK.sum(axis=-2) > 0
    return np.asarray(precision_recall_f1(confusion_KK)[2].sum(axis=-1) / are_there_K.sum(axis=-1))


def calibration_error(confidence_N: np.ndarray, is_right_N: np.ndarray) -> float:
    """Return the expected calibration error, over `BINS` bins of equal width.

    Four texts, each of which was given its label with p = 0.9, and three of them rightly: |3/4 - 0.9|.

    >>> round(calibration_error(np.full(4, 0.9), np.array([True, True, True, False])), 6)
    0.15
    """
    bins_N = np.minimum((confidence_N * BINS).astype(np.int64), BINS - 1)
    gaps_B = np.bincount(bins_N, is_right_N - confidence_N, BINS)
    return float(np.abs(gaps_B).sum() / len(confidence_N))


def evaluate_classifier(
    classifier: Classifier, texts: GivenLabelled, *, progress: Progress = SILENT
) -> ClassificationMeasured:
    """Classify texts whose labels are known, and count.

    >>> import chainrule as cr
    >>> texts = [("the cat", "en"), ("a dog", "en"), ("die Katze", "de"), ("ein Hund", "de")]
    >>> found = evaluate_classifier(cr.train("bayes", texts, lm_settings="order=2", tokenizer="char"), texts)
    >>> found.count, found.accuracy
    (4, 1.0)
    """
    Classifier.expect(classifier)
    given = as_labelled(texts).texts
    numbers = {label: number for number, label in enumerate(classifier.labels)}
    right_N = np.asarray([numbers.setdefault(one.label, len(numbers)) for one in given])
    rows = []
    with progress.task("classifying", len(given), "texts") as task:
        for first in range(0, len(given), _AT_ONCE):
            some = given[first : first + _AT_ONCE]
            rows.append(classifier.log_probs([one.text for one in some]))
            task.advance(len(some))
    log_probs_NK = np.concatenate(rows)
    given_N, every_N = log_probs_NK.argmax(axis=1), np.arange(len(given))
    confidence_N = np.exp(log_probs_NK.max(axis=1))
    confusion_KK = np.zeros((len(numbers), len(numbers)), np.int64)
    np.add.at(confusion_KK, (right_N, given_N), 1)
    is_known = right_N.max() < log_probs_NK.shape[1]
    return ClassificationMeasured(
        list(numbers),
        confusion_KK,
        nats=-float(log_probs_NK[every_N, right_N].mean()) if is_known else np.inf,
        calibration_error=calibration_error(confidence_N, given_N == right_N),
        confidence=float(confidence_N.mean()),
    )


def measure(model: Any, test: HeldOut, progress: Progress = SILENT) -> Figures:
    """Return the figures of a classifier in a comparison."""
    (first,) = model.classify([test.examples.texts[0].text])  # before anything is timed: loops may be compiled
    began = time.perf_counter()
    found = evaluate_classifier(model, test.examples, progress=progress)
    seconds = time.perf_counter() - began
    low, high = found.intervals.get("accuracy", (np.nan, np.nan))
    return Figures(
        values={
            "accuracy": 100 * found.accuracy,
            **({"±": 50 * (high - low)} if found.intervals else {}),
            "macro F1": 100 * found.macro_f1,
            "ECE": 100 * found.calibration_error,
        },
        loss=1 - found.accuracy,
        tokens_per_second=test.encoded.tokens / max(seconds, 1e-9),
        note=f"in %; ± half of the 95 % interval, ECE expected calibration error; majority {found.baseline:.1%}",
        sample=str(first),
    )
