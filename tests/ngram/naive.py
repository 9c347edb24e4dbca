"""N-gram models straight from their definitions: dictionaries, recursion, doubles. Slow and obvious.

p(w | h) is computed for a context h of any length, seen or not, by the equations that `smooth.py` states; h' is h
without its first word. What the fast modules store and answer is held against this.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from chainrule.contract.data import TrainingData
from chainrule.contract.lm import Context
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import NgramSettings
from chainrule.ngram.train import train
from chainrule.system.progress import SILENT, Progress
from chainrule.tokens.ids import Encoded
from chainrule.tokens.words.tokenizer import WordTokenizer

Ngram = tuple[int, ...]

UNK, BOS, EOS = 0, 1, 2
FIRST_WORD = 3


def ids_of(lines: list[list[int]]) -> np.ndarray:
    """Lines of ids as one text, each ended by </s>."""
    return np.asarray([token for line in lines for token in [*line, EOS]], dtype=np.uint16)


def encoded(ids: np.ndarray) -> Encoded:
    return Encoded(ids, int((ids == EOS).sum()), len(ids), int((ids == UNK).sum()), "")


def tokenizer_of(vocab_size: int) -> WordTokenizer:
    return WordTokenizer([f"w{i}".encode() for i in range(FIRST_WORD, vocab_size)])


def train_on(
    ids: np.ndarray,
    vocab_size: int,
    context: Context = "line",
    valid: np.ndarray | None = None,
    progress: Progress = SILENT,
    **settings: Any,
) -> NgramModel:
    """The model that the package makes of ids."""
    held_out = None if valid is None else encoded(valid)
    data = TrainingData(tokenizer_of(vocab_size), encoded(ids), held_out, context, progress=progress)
    lm = train(NgramSettings(**settings), data)
    assert isinstance(lm, NgramModel)
    return lm


def count(ids: np.ndarray, order: int, context: Context) -> list[Counter[Ngram]]:
    """c(x) of the n-grams x of each length 1 to N; <s> is only ever a context."""
    counts: list[Counter[Ngram]] = [Counter() for _ in range(order)]
    for sequence in sequences(ids, context):
        for n in range(1, order + 1):
            for first in range(len(sequence) - n + 1):
                counts[n - 1][tuple(sequence[first : first + n])] += 1
    del counts[0][(BOS,)]
    return counts


def sequences(ids: np.ndarray, context: Context) -> list[list[int]]:
    """The sequences that n-grams are taken from: each line, or the whole text, after <s>."""
    if context == "stream":
        return [[BOS, *ids.tolist()]]
    result, line = [], [BOS]
    for token in ids.tolist():
        line.append(token)
        if token == EOS:
            result.append(line)
            line = [BOS]
    return result


@dataclass
class Naive:
    """A smoothed model of a text."""

    ids: np.ndarray
    vocab_size: int
    smoothing: str
    order: int
    context: Context = "line"
    k: float = 1.0
    good_turing: int = 7
    alpha: float = 0.4
    lambdas: list[float] = field(default_factory=list)
    thresholds: list[int] = field(default_factory=list)
    """N-grams of each length that occurred so often or less are pruned."""
    parameters: list[list[float]] = field(default_factory=list)
    """Discounts or Good-Turing ratios for counts 0, 1, ... of each length, if they are not to be computed."""

    @cached_property
    def raw(self) -> list[Counter[Ngram]]:
        return count(self.ids, self.order, self.context)

    @cached_property
    def counts(self) -> list[Counter[Ngram]]:
        """The counts that are smoothed: for Kneser-Ney, those of continuations below the longest n-grams."""
        if not self.smoothing.endswith("kneser-ney"):
            return self.raw
        levels = []
        for n in range(1, self.order):
            different = Counter(ngram[1:] for ngram in self.raw[n])
            from_start = {ngram: c for ngram, c in self.raw[n - 1].items() if ngram[0] == BOS}
            levels.append(Counter({**different, **from_start}))
        return [*levels, self.raw[-1]]

    @cached_property
    def after(self) -> dict[Ngram, dict[int, int]]:
        """c(h w) for the words w after each context h."""
        result: dict[Ngram, dict[int, int]] = {}
        for level in self.counts:
            for ngram, c in level.items():
                result.setdefault(ngram[:-1], {})[ngram[-1]] = c
        return result

    def kept(self, ngram: Ngram) -> bool:
        return not self.thresholds or self.raw[len(ngram) - 1][ngram] > self.thresholds[len(ngram) - 1]

    @cached_property
    def _memory(self) -> dict[tuple[int, Ngram], float]:
        return {}

    def p(self, w: int, h: Ngram) -> float:
        """p(w | h)."""
        if (w, h) not in self._memory:
            self._memory[w, h] = self._p(w, h)
        return self._memory[w, h]

    def lower(self, w: int, h: Ngram) -> float:
        """p(w | h'); below the empty context, uniform over all words but <s>."""
        return self.p(w, h[1:]) if h else (0.0 if w == BOS else 1 / (self.vocab_size - 1))

    def _p(self, w: int, h: Ngram) -> float:
        after = self.after.get(h, {})
        if self.smoothing == "stupid-backoff":
            if w in after and self.kept((*h, w)):
                return after[w] / sum(after.values())
            return self.alpha * self.lower(w, h)  # Brants et al. 2007, equation 5
        if not after:
            return self.lower(w, h)
        own = {v: self.own(c, h, after) for v, c in after.items() if self.kept((*h, v))}
        if self.smoothing != "katz":
            return own.get(w, 0.0) + (1 - sum(own.values())) * self.lower(w, h)
        given, unseen = sum(own.values()), 1 - sum(self.lower(v, h) for v in own)
        if unseen < 1e-6:  # every word was seen: there is nobody to give the rest to
            return own.get(w, 0.0) / given
        elif given > 1 - 1e-9:  # nothing is left for those that were not
            total = sum(after.values())
            own = {v: mass * total / (total + 1) for v, mass in own.items()}
        return own[w] if w in own else (1 - sum(own.values())) / unseen * self.lower(w, h)

    def own(self, c: int, h: Ngram, after: dict[int, int]) -> float:
        """The probability that a context itself gives a word that followed it c times."""
        total = sum(after.values())
        if self.smoothing == "mle":
            return c / total
        if self.smoothing in ("laplace", "add-k"):
            is_full = len(h) == self.order - 1 or h[:1] == (BOS,)
            return c / (total + self.k * (self.vocab_size - 1)) if is_full else 0.0
        if self.smoothing == "witten-bell":
            return c / (total + len(after))
        if self.smoothing == "jelinek-mercer":
            return self.lambdas[len(h)] * c / total
        parameters = self.level_parameters[len(h)]
        parameter = parameters[min(c, len(parameters) - 1)]
        if self.smoothing == "katz":
            return parameter * c / total
        return max(c - parameter, 0.0) / total

    @cached_property
    def level_parameters(self) -> list[list[float]]:
        return self.parameters or [self._parameters(level) for level in self.counts]

    def _parameters(self, level: Counter[Ngram]) -> list[float]:
        n = Counter(level.values())
        if self.smoothing == "katz":
            return _good_turing(n, self.good_turing)
        if self.smoothing == "modified-kneser-ney":
            return _three_discounts(n) or [0, 0.5, 1, 1.5]
        return [0, n[1] / (n[1] + 2 * n[2])] if n[1] and n[2] else [0, 0.75]


def _three_discounts(n: Counter[int]) -> list[float] | None:
    if not (n[1] and n[2] and n[3]):
        return None
    y = n[1] / (n[1] + 2 * n[2])
    found = [0, 1 - 2 * y * n[2] / n[1], 2 - 3 * y * n[3] / n[2], 3 - 4 * y * n[4] / n[3]]
    return found if all(0 <= d <= r for r, d in enumerate(found)) else None


def _good_turing(n: Counter[int], k: int) -> list[float]:
    """d_0, d_1, ... as in SRILM: a smaller k if no n-gram occurred k + 1 times, 1 where out of range.

    But where not even d_1 is in range, fixed ones.
    """
    while k and not (n[1] and n[k + 1]):
        k -= 1
    found = [0.0]
    for r in range(1, k + 1):
        common = (k + 1) * n[k + 1] / n[1]
        star = (r + 1) * n[r + 1] / n[r] if n[r] else r
        in_range = star <= r and common != 1 and 1e-9 < (star / r - common) / (1 - common) <= 1
        found.append((star / r - common) / (1 - common) if in_range else 1.0)
    return [*found, 1.0] if [*found, 1.0][1] < 1 else [0, 0.5, 0.75, 0.9, 1]
