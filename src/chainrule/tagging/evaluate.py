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

from chainrule.contract.kinds import Figures, HeldOut
from chainrule.system.progress import SILENT, Progress
from chainrule.tagging.contract import Tagger
from chainrule.text.tagged import GivenTagged, Sentence, as_tagged

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
            right, have, given = (
                int(self.confusion_KK[i, i]),
                int(self.confusion_KK[i].sum()),
                int(self.confusion_KK[:, i].sum()),
            )
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
            for sentence, log_probs_TK in zip(some, tagger.log_probs([one.words for one in some]), strict=True):
                gold = [numbers.setdefault(tag, len(numbers)) for tag in sentence.tags]
                confusions.update(zip(gold, log_probs_TK.argmax(axis=1).tolist(), strict=True))
                nats -= sum(
                    log_probs_TK[t, tag] if tag < log_probs_TK.shape[1] else -np.inf for t, tag in enumerate(gold)
                )
                counts.update(_counts(tagger, sentence, log_probs_TK))
            counts["sentences"] += len(some)
            task.advance(len(some))
    confusion_KK = np.zeros((len(numbers), len(numbers)), np.int64)
    for (gold_tag, tag), times in confusions.items():
        confusion_KK[gold_tag, tag] = times
    return TaggingMeasured(
        list(numbers),
        confusion_KK,
        counts["unknown"],
        counts["unknown_correct"],
        counts["baseline_correct"],
        counts["baseline_unknown_correct"],
        counts["sentences"],
        float(nats) / int(confusion_KK.sum()),
    )


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


def _counts(tagger: Tagger, sentence: Sentence, log_probs_TK: np.ndarray) -> dict[str, int]:
    """Return what one sentence adds to the counts of unknown words and of the baseline."""
    is_unknown_T = ~tagger.is_known(sentence.words)
    gold = np.asarray(sentence.tags)
    is_right_T = np.asarray([tagger.tags[i] for i in log_probs_TK.argmax(axis=1)]) == gold
    is_frequent_T = np.asarray(tagger.frequent_tags(sentence.words)) == gold
    return {
        "unknown": int(is_unknown_T.sum()),
        "unknown_correct": int((is_unknown_T & is_right_T).sum()),
        "baseline_correct": int(is_frequent_T.sum()),
        "baseline_unknown_correct": int((is_unknown_T & is_frequent_T).sum()),
    }
