"""How good a tagger is: accuracy, also on words that it does not know, and which tags it confuses.

The baseline beside it gives each word the tag that it had most often in training, and an unknown word the most
frequent tag of all.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np

from chainrule.arrays import checked
from chainrule.contract.kinds import Figures, HeldOut
from chainrule.system.progress import SILENT, Progress
from chainrule.tagging.contract import Tagger
from chainrule.text.tagged import GivenTagged, as_tagged

_AT_ONCE = 1024  # sentences


@dataclass(frozen=True)
class TagFigures:
    """The figures of one tag."""

    tag: str
    words: int
    """How many words have this tag."""
    precision: float
    """The share of right ones among the words that were given this tag."""
    recall: float
    """The share of right ones among the words that have this tag."""

    @property
    def f1(self) -> float:
        """The harmonic mean of the two."""
        both = self.precision + self.recall
        return 2 * self.precision * self.recall / both if both else 0.0


@dataclass(frozen=True)
class TaggingMeasured:
    """The counts of a tagger on sentences whose tags are known."""

    tags: list[str]
    """Those of the model, and then those that only the sentences have."""
    confusion_KK: np.ndarray
    """How many words that have the tag of the row were given the tag of the column."""
    unknown: int
    """How many words are not in the model's table."""
    unknown_correct: int
    baseline_correct: int
    baseline_unknown_correct: int
    sentences: int
    nats: float
    """The mean of -ln p of the right tag; infinite if a tag was not in the training text."""

    @property
    def words(self) -> int:
        """How many words were tagged."""
        return int(self.confusion_KK.sum())

    @property
    def correct(self) -> int:
        """How many were given the right tag."""
        return int(np.trace(self.confusion_KK))

    @property
    def accuracy(self) -> float:
        """The share of words that were given the right tag."""
        return self.correct / self.words

    @property
    def known_accuracy(self) -> float:
        """The same for words of the model's table."""
        return (self.correct - self.unknown_correct) / max(1, self.words - self.unknown)

    @property
    def unknown_accuracy(self) -> float:
        """The same for words that are not in it."""
        return self.unknown_correct / max(1, self.unknown)

    @property
    def baseline(self) -> float:
        """The accuracy of the most frequent tag of each word."""
        return self.baseline_correct / self.words

    @property
    def baseline_unknown(self) -> float:
        """The same for words that are not in the model's table."""
        return self.baseline_unknown_correct / max(1, self.unknown)

    @cached_property
    def by_tag(self) -> list[TagFigures]:
        """The figures of each tag that a word has or was given."""
        found = []
        for i, tag in enumerate(self.tags):
            right, have = int(self.confusion_KK[i, i]), int(self.confusion_KK[i].sum())
            given = int(self.confusion_KK[:, i].sum())
            if have or given:
                found.append(TagFigures(tag, have, right / max(1, given), right / max(1, have)))
        return found

    def confused(self, most: int = 10) -> list[tuple[str, str, int]]:
        """Return the pairs of tags that are confused most often: the right tag, the given tag, and their count."""
        wrong_KK = self.confusion_KK.copy()
        np.fill_diagonal(wrong_KK, 0)
        order = np.argsort(-wrong_KK, axis=None, kind="stable")[:most]
        pairs = [divmod(int(place), len(self.tags)) for place in order]
        return [(self.tags[i], self.tags[j], int(wrong_KK[i, j])) for i, j in pairs if wrong_KK[i, j]]

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "accuracy": self.accuracy,
            "known_accuracy": self.known_accuracy,
            "unknown_accuracy": self.unknown_accuracy if self.unknown else None,
            "baseline": self.baseline,
            "baseline_unknown": self.baseline_unknown if self.unknown else None,
            "nats": self.nats,
            "words": self.words,
            "unknown": self.unknown,
            "sentences": self.sentences,
            "tags": {
                one.tag: {"words": one.words, "precision": one.precision, "recall": one.recall, "f1": one.f1}
                for one in self.by_tag
            },
            "confusion": {"tags": self.tags, "counts": self.confusion_KK.tolist()},
        }


def evaluate_tagger(tagger: Tagger, sentences: GivenTagged, *, progress: Progress = SILENT) -> TaggingMeasured:
    """Tag sentences whose tags are known, and count.

    >>> import chainrule as cr
    >>> sentences = [[("the", "DET"), ("cat", "NOUN")], [("a", "DET"), ("dog", "NOUN")]] * 4
    >>> found = evaluate_tagger(cr.train("tagger", sentences, width=8, layers=1, steps=1), sentences)
    >>> found.words, found.sentences
    (16, 8)
    """
    Tagger.expect(tagger)
    given = as_tagged(sentences)
    numbers = {tag: number for number, tag in enumerate(tagger.tags)}
    counts: Counter[str] = Counter()
    confusions: Counter[tuple[int, int]] = Counter()
    nats, sentences_left = 0.0, iter(given)
    with progress.task("tagging", None, "sentences") as task:
        while some := list(islice(sentences_left, _AT_ONCE)):
            words = [word for sentence in some for word in sentence.words]
            right_N = np.asarray([numbers.setdefault(tag, len(numbers)) for one in some for tag in one.tags])
            log_probs_NK = checked(np.concatenate(tagger.log_probs([sentence.words for sentence in some])))
            given_N = log_probs_NK.argmax(axis=1)
            confusions.update(zip(right_N.tolist(), given_N.tolist(), strict=True))
            has_all_tags = right_N.max() < log_probs_NK.shape[1]
            nats -= log_probs_NK[np.arange(len(words)), right_N].sum() if has_all_tags else -np.inf
            is_unknown_N = ~tagger.is_known(words)
            is_frequent_N = right_N == [numbers[tag] for tag in tagger.frequent_tags(words)]
            found = {
                "unknown": is_unknown_N,
                "unknown_correct": is_unknown_N & (given_N == right_N),
                "baseline_correct": is_frequent_N,
                "baseline_unknown_correct": is_unknown_N & is_frequent_N,
            }
            counts.update({name: int(are_N.sum()) for name, are_N in found.items()}, sentences=len(some))
            task.advance(len(some))
    confusion_KK = np.zeros((len(numbers), len(numbers)), np.int64)
    for (right, tag), times in confusions.items():
        confusion_KK[right, tag] = times
    return TaggingMeasured(list(numbers), confusion_KK, **counts, nats=float(nats) / int(confusion_KK.sum()))


def measure(model: Any, test: HeldOut, progress: Progress = SILENT) -> Figures:
    """Return the figures of a tagger in a comparison."""
    began = time.perf_counter()
    found = evaluate_tagger(model, test.examples, progress=progress)
    seconds = time.perf_counter() - began
    (first,) = model.tag([next(iter(test.examples)).words])
    return Figures(
        values={"accuracy": 100 * found.accuracy, "unknown words": 100 * found.unknown_accuracy},
        loss=1 - found.accuracy,
        tokens_per_second=found.words / max(seconds, 1e-9),
        note=f"in %; the most frequent tag of each word: {found.baseline:.1%}, {found.baseline_unknown:.1%}",
        sample=str(first),
    )
