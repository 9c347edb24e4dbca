"""How good a tagger is: accuracy, also on words that it does not know, and which tags it confuses.

The baseline beside it gives each word the tag that it had most often in training, and an unknown word the most
frequent tag of all.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from chainrule.arrays import checked
from chainrule.contract.confusion import Confusion
from chainrule.contract.kinds import Figures, HeldOut
from chainrule.system.progress import SILENT, Progress
from chainrule.tagging.contract import Tagger
from chainrule.text.tagged import GivenTagged, as_tagged

_AT_ONCE = 1024  # sentences


@dataclass(frozen=True)
class TaggingMeasured(Confusion):
    """The counts of a tagger on sentences whose tags are known."""

    unknown: int
    """How many words are not in the model's table."""
    unknown_correct: int
    baseline_correct: int
    baseline_unknown_correct: int
    sentences: int
    nats: float
    """The mean of -ln p of the right tag; infinite if a tag was not in the training text."""

    @property
    def known_accuracy(self) -> float:
        """The accuracy on words of the model's table."""
        return (self.correct - self.unknown_correct) / max(1, self.count - self.unknown)

    @property
    def unknown_accuracy(self) -> float:
        """The same for words that are not in it."""
        return self.unknown_correct / max(1, self.unknown)

    @property
    def baseline(self) -> float:
        """The accuracy of the most frequent tag of each word."""
        return self.baseline_correct / self.count

    @property
    def baseline_unknown(self) -> float:
        """The same for words that are not in the model's table."""
        return self.baseline_unknown_correct / max(1, self.unknown)

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        return {
            "accuracy": self.accuracy,
            "known_accuracy": self.known_accuracy,
            "unknown_accuracy": self.unknown_accuracy if self.unknown else None,
            "baseline": self.baseline,
            "baseline_unknown": self.baseline_unknown if self.unknown else None,
            "nats": self.nats,
            "words": self.count,
            "unknown": self.unknown,
            "sentences": self.sentences,
            **self.names_to_json("tags", "words"),
        }


def evaluate_tagger(tagger: Tagger, sentences: GivenTagged, *, progress: Progress = SILENT) -> TaggingMeasured:
    """Tag sentences whose tags are known, and count.

    >>> import chainrule as cr
    >>> sentences = [[("the", "DET"), ("cat", "NOUN")], [("a", "DET"), ("dog", "NOUN")]] * 4
    >>> found = evaluate_tagger(cr.train("tagger", sentences, width=8, layers=1, steps=1), sentences)
    >>> found.count, found.sentences
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
        tokens_per_second=found.count / max(seconds, 1e-9),
        note=f"in %; the most frequent tag of each word: {found.baseline:.1%}, {found.baseline_unknown:.1%}",
        sample=str(first),
    )
