"""How the probability of one token comes about in an n-gram model: context by context, from the longest on.

A model of bounded order backs off. Its probability is a product: a weight for each context after which the token
was not seen, and the probability that is stored for the longest context after which it was.

    p(w | h) = stored p(w | h)           if h w is in the model
             = backoff(h) p(w | h')      otherwise, where h' is h without its first token

A model of n-grams of any length mixes. Its probability is a sum over all contexts h_k that were seen, and each
leaves a weight λ_k to the next shorter one:

    p_k(w) = own_k + λ_k p_{k-1}(w),  own_k = max(N(· h_k w) - d, 0) / (N(· h_k ·) + θ)
                                      λ_k = (θ + d N(h_k ·)) / (N(· h_k ·) + θ)

Where the smoothing of a model of bounded order interpolates, a stored probability is itself a sum: the part from
the context's own counts, and the weighted probability after the shorter context (estimate/smooth.py). `sum_steps`
returns its terms.

This is the slow reference for `score`, which computes the same by automata and kernels; tests hold them equal.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from chainrule.ngram.infinite.any_length_model import AnyLengthModel
from chainrule.ngram.infinite.suffixes import Ints
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.values import Values
from chainrule.ngram.tables import node_of


@dataclass(frozen=True)
class BackoffStep:
    """One context on the way from the longest to the one after which the token was seen."""

    context: tuple[int, ...]
    is_seen: bool
    """True if the context is in the model."""
    log_weight: float | None
    """ln of the factor for backing off from this context, 0 for one that is not in the model; None at the end."""
    log_stored: float | None
    """ln p of the token after this context, as the model stores it; None if it stores none."""


def backoff_steps(lm: NgramModel, ids: list[int], target: int) -> list[BackoffStep]:
    """Return the contexts of the target after <s> and the ids, from the longest possible to the last used."""
    automaton = lm.on("cpu").automaton
    read = [lm.tokenizer.bos, *ids]
    steps = []
    for n in range(min(automaton.trie.order - 1, len(read)), -1, -1):
        context = tuple(read[len(read) - n :])
        node, found = node_of(automaton, context), node_of(automaton, [*context, target])
        if found:
            steps.append(BackoffStep(context, True, None, _value(automaton.log_prob, found, n + 1)))
            break
        # stupid backoff has one factor for all contexts, seen or not
        weight = automaton.log_alpha or (_value(automaton.log_backoff, node, n) if node else 0.0)
        steps.append(BackoffStep(context, n == 0 or node > 0, weight, None))
    return steps


def _value(values: Values, node: int, n: int) -> float:
    """Return the number of a node of n words."""
    return float(values.at(np.asarray([node - 1]), n - 1)[0])


def product(steps: list[BackoffStep]) -> float:
    """Return ln p: the sum of the logarithms of all weights and of the stored probability."""
    return sum(part for step in steps for part in (step.log_weight, step.log_stored) if part is not None)


@dataclass(frozen=True)
class SumStep:
    """A probability that is stored for a context, in its parts: p(w | h) = own + γ(h) p(w | h')."""

    context: tuple[int, ...]
    probability: float
    """p(w | h), as it is stored."""
    weight: float | None
    """γ(h); None for the empty context, whose weight is not stored."""
    lower: float
    """p(w | h'); below the empty context 1/V."""
    types: int
    """T(h), how many different tokens were seen after h."""
    count: int | None
    """c(h w), for Kneser-Ney the different tokens before h w; None if the model does not store it."""
    total: int | None
    """c(h), the same summed over all w."""

    @property
    def own(self) -> float | None:
        """The part that comes from the context's own counts; None for the empty context."""
        return None if self.weight is None else max(self.probability - self.weight * self.lower, 0.0)


def predictable(lm: NgramModel) -> int:
    """V, the number of tokens that can be predicted: all but <s>."""
    return lm.tokenizer.vocab_size - 1


def sum_steps(lm: NgramModel, context: tuple[int, ...], target: int) -> list[SumStep]:
    """Return the stored probability of the target after a context, and after each shorter one, down to none."""
    automaton = lm.on("cpu").automaton
    steps: list[SumStep] = []
    for n in range(len(context) + 1):
        h = context[len(context) - n :]
        node, found = node_of(automaton, h), node_of(automaton, [*h, target])
        p = math.exp(_value(automaton.log_prob, found, n + 1)) if found else 0.0
        weight = math.exp(_value(automaton.log_backoff, node, n)) if n else None
        lower = steps[-1].probability if steps else 1 / predictable(lm)
        if not found and weight is not None:  # nothing is stored: the shorter context's, weighted
            p = weight * lower
        first, last = automaton.trie.children(np.asarray([node]), n)
        steps.append(SumStep(h, p, weight, lower, int(last[0] - first[0]), *_counts(lm, automaton, h, target)))
    return steps[::-1]


def _counts(lm: NgramModel, automaton: Automaton, h: tuple[int, ...], target: int) -> tuple[int | None, int | None]:
    """Return c(h w) and c(h) as the smoothing method counts; None if the model does not store them."""
    trie, settings = automaton.trie, lm.settings
    if settings.prune or settings.entropy:
        return None, None
    if "kneser-ney" in settings.smoothing and len(h) + 1 < trie.order and h[:1] != (lm.tokenizer.bos,):
        return _different_before(automaton, h, target)
    if automaton.counts is None:
        return None, None
    node, found = node_of(automaton, h), node_of(automaton, [*h, target])
    first, last = trie.children(np.asarray([node]), len(h))
    of_words = automaton.counts[int(first[0]) - 1 : int(last[0]) - 1]
    count, total = int(automaton.counts[found - 1]) if found else 0, int(of_words.sum(dtype=np.int64))
    if not h:  # <s> begins every line and follows nothing
        total -= int(automaton.counts[node_of(automaton, [lm.tokenizer.bos]) - 1])
    return count, total


def _different_before(automaton: Automaton, h: tuple[int, ...], target: int) -> tuple[int, int]:
    """Return N(· h w), the different tokens v before h w, and N(· h ·): those of all w together."""
    trie = automaton.trie
    nodes = np.arange(1, trie.vocab_size + 1)  # v
    for n, token in enumerate(h, start=1):  # v h
        nodes = trie.child(nodes, n, np.full(len(nodes), automaton.codes[token]))
        nodes = nodes[nodes > 0]
    found = trie.child(nodes, len(h) + 1, np.full(len(nodes), automaton.codes[target]))
    first, last = trie.children(nodes, len(h) + 1)
    return int(np.count_nonzero(found)), int((last - first).sum())


@dataclass(frozen=True)
class MixtureStep:
    """One context of a mixture: its counts, and the part of p that it adds."""

    context: tuple[int, ...]
    count: int
    """N(· h w): the different tokens before h w."""
    total: int
    """N(· h ·): the same, summed over all w."""
    own: float
    """The part of p_k that comes from this context's own counts."""
    weight: float
    """λ, the weight of the next shorter context."""
    probability: float
    """p_k, after this context and all shorter ones."""


def mixture(lm: AnyLengthModel, ids: list[int], target: int) -> list[MixtureStep]:
    """Return the contexts of the target after <s> and the ids that training text has, the longest first."""
    read = [lm.tokenizer.bos, *ids]
    last: list[tuple[int, int, int, int]] = []

    def keep(rows: slice, places: slice, evidence: Ints, used: Ints, matched: Ints) -> None:
        # the text comes in pieces; the evidence of the last piece for its last token is kept
        last[:] = [tuple(level) for level in evidence[: used[0, -1], :, 0, -1].tolist()]

    lm.walker.walk(np.asarray([[*ids, target]], dtype=np.int64), lm.start(1), keep)
    steps, p = list[MixtureStep](), lm.uniform
    for n, count, total, words in last:
        d, theta = map(float, lm.smoothing.at(n))
        own, weight = max(count - d, 0.0) / (total + theta), (theta + d * words) / (total + theta)
        p = own + weight * p  # p_k = own_k + λ_k p_{k-1}
        steps.append(MixtureStep(tuple(read[len(read) - n :]), count, total, own, weight, p))
    return steps[::-1]
