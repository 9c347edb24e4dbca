"""Two n-gram models interpolated into one, which is as fast as either.

    p(w | h) = λ p_1(w | h) + (1 - λ) p_2(w | h)        for every n-gram h w that either model has

and backoffs that make each context sum to one. λ is tuned on held-out text by expectation-maximisation.

The models may know different words; the mixture knows those of both. A word that one model does not know has
probability 0 there, since that model's <unk> stands for any unknown word and not for this one; in a context, it is
read as <unk>.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from chainrule._version import __version__
from chainrule.contract.lm import Context, LanguageModel, score_rows
from chainrule.errors import CorpusError, ModelError
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import SCORES, NgramSettings
from chainrule.ngram.store.automaton import Automaton
from chainrule.ngram.store.codes import codes_of_words, words_of_codes
from chainrule.ngram.store.parts import Parts, normalise
from chainrule.system.progress import Reports, as_progress
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import Tokenizer, encode_in_parallel, line_bounds

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_MOST_ROUNDS = 1000
_ENOUGH = 1e-7
_LEAST = 1e-4  # the smallest weight: with 0, tokens that only this model predicts would become impossible


def interpolate(
    first: LanguageModel,
    second: LanguageModel,
    held_out: Text | None = None,
    *,
    weight: float | None = None,
    progress: Reports = False,
) -> NgramModel:
    """Interpolate two n-gram models; `weight` is the first one's share λ, tuned on `held_out` if not given.

    >>> import chainrule as cr
    >>> how = {"order": 2, "smoothing": "mle", "tokenizer": "word"}
    >>> cats, dogs = (cr.train("ngram", text, **how) for text in ("the cat\\n", "the dog\\n"))
    >>> both = interpolate(cats, dogs, weight=0.5)
    >>> both.tokenizer.words
    ['cat', 'the', 'dog']
    """
    if (held_out is None) == (weight is None):
        raise ModelError("give either held-out text to tune the weight on, or the weight")
    if weight is not None and not 0 < weight < 1:
        raise ModelError(f"the weight should lie between 0 and 1, not at {weight:g}")
    progress = as_progress(progress)
    one, other = _mixable(first, second)
    tokenizer = _common_tokenizer(one.tokenizer, other.tokenizer)
    sides = _Side.of(one, tokenizer), _Side.of(other, tokenizer)
    if weight is None:
        assert held_out is not None
        with progress.task("tuning the weight"):
            ids = held_out_ids(held_out, tokenizer)
            weight = tune_weight(*(side.text_scores(ids, tokenizer.eos, one.context) for side in sides))
    with progress.task("mixing"):
        automaton = _mixture(sides, weight, tokenizer)
    settings = NgramSettings(order=automaton.trie.order, smoothing="mixed")
    lm = NgramModel(automaton, tokenizer, settings, one.context)
    lm.metrics = {"ngrams": np.diff(automaton.trie.first_of_length)[1:].tolist(), "weights": [weight, 1 - weight]}
    lm.provenance = {"mixed": [dict(one.provenance), dict(other.provenance)], "chainrule": __version__}
    return lm


def _mixable(first: LanguageModel, second: LanguageModel) -> tuple[NgramModel, NgramModel]:
    if not isinstance(first, NgramModel) or not isinstance(second, NgramModel):
        raise ModelError("only n-gram models of bounded order can be mixed into one n-gram model")
    for lm in (first, second):
        smoothing = lm.settings.smoothing
        if smoothing in SCORES:
            raise ModelError(f"smoothing={smoothing} gives scores, not probabilities: it cannot be mixed")
    if first.context != second.context:
        raise ModelError(f"models to mix need the same context: one has {first.context}, one {second.context}")
    return first, second


def tune_weight(first: Floats, second: Floats) -> float:
    """Return the λ that maximises the likelihood of a text, given ln p of each token under the two models."""
    possible = (first > -np.inf) | (second > -np.inf)  # other tokens do not depend on λ
    if not possible.any():
        return 0.5
    with np.errstate(over="ignore"):
        odds = np.exp(second[possible] - first[possible])  # p_2 / p_1 of each token; may be infinite
    weight = 0.5
    for _ in range(_MOST_ROUNDS):
        # E step: the posterior probability that each token came from the first model; M step: their mean
        better = float(np.mean(weight / (weight + (1 - weight) * odds)))
        if abs(better - weight) < _ENOUGH:
            break
        weight = better
    return min(max(weight, _LEAST), 1 - _LEAST)


def _common_tokenizer(first: Tokenizer, second: Tokenizer) -> Tokenizer:
    """Return the tokenizer that both models have, or, for word tokens, one that knows the words of both."""
    if first.to_json() == second.to_json():
        return first
    if first.splitting is not None and (first.kind, first.splitting) == (second.kind, second.splitting):
        return first.with_words(second.spellings)
    raise ModelError("the two models have different tokenizers; train them with the same one (--tokenizer DIR)")


def held_out_ids(text: Text, tokenizer: Tokenizer) -> np.ndarray:
    """Return the ids of a text to tune on; refuse an empty one."""
    corpus = as_corpus(text)
    ids = [encode_in_parallel(tokenizer, block) for block in corpus.blocks()]
    if not sum(map(len, ids)):
        raise CorpusError(f"{corpus.name} is empty: there is no text to tune on")
    return np.concatenate(ids).astype(np.int64)


@dataclass(frozen=True)
class _Side:
    """One of the two models, with maps between its ids and those of the common tokenizer."""

    lm: NgramModel
    automaton: Automaton
    to_common: Ints
    """The common id of each id of this model."""
    to_own: Ints
    """This model's id of each common id; its <unk> for words it does not know."""
    known: NDArray[np.bool_]
    """True for each common id whose word this model knows."""

    @classmethod
    def of(cls, lm: NgramModel, common: Tokenizer) -> _Side:
        own = lm.tokenizer
        to_common = np.arange(own.vocab_size)
        if own.splitting is not None:
            number = {word: i for i, word in enumerate(common.spellings, start=3)}
            to_common[3:] = [number[word] for word in own.spellings]
        to_own = np.full(common.vocab_size, -1 if own.unk is None else own.unk)
        known = np.zeros(common.vocab_size, dtype=bool)
        to_own[to_common], known[to_common] = np.arange(own.vocab_size), True
        lm = lm.on("cpu")
        return cls(lm, lm.automaton, to_common, to_own, known)

    def scores(self, words: Ints) -> Floats:
        """Return ln p of the last word of each row of common ids, given the others."""
        scores: Floats = self.automaton.last_word_scores(self.to_own[words])
        return np.where(self.known[words[:, -1]], scores, -np.inf)

    def text_scores(self, ids: Ints, eos: int, context: Context) -> Floats:
        """Return ln p of each token of a text in common ids."""
        _, ends = line_bounds(ids, eos)
        rows = [self.to_own[ids]] if context == "stream" else np.split(self.to_own[ids], ends[:-1])
        return np.where(self.known[ids], np.concatenate(score_rows(self.lm, rows)), -np.inf)

    def keys(self, n: int, place_of: Ints, size: int) -> Ints:
        """Return this model's n-grams of n words as integers: the context's index · size + the last word's code.

        `place_of` holds the index of each context of this model in the union of both models' contexts.
        """
        trie = self.automaton.trie
        if n > trie.order:
            return np.zeros(0, dtype=np.int64)
        nodes = np.arange(trie.first_of_length[n], trie.first_of_length[n + 1])
        begin, end = trie.children(np.arange(trie.first_of_length[n - 1], trie.first_of_length[n]), n - 1)
        words = self.to_common[words_of_codes(trie.vocab_size)[trie.word(nodes)]]
        return np.repeat(place_of, end - begin) * size + codes_of_words(size)[words]


def _mixture(sides: Sequence[_Side], weight: float, tokenizer: Tokenizer) -> Automaton:
    """Return the automaton of every n-gram of either side, with the mixture's probabilities."""
    parts = _union(sides, tokenizer)
    trie = parts.assemble().trie
    word = words_of_codes(trie.vocab_size).astype(np.int64)
    for n in range(1, trie.order + 1):
        for first, last in trie.blocks(n):
            one, other = (side.scores(word[trie.ngrams(first, last, n)]) for side in sides)
            mixed = np.logaddexp(one + np.log(weight), other + np.log1p(-weight))
            parts.log_prob[first - 1 : last - 1] = np.minimum(mixed, 0.0)
    return normalise(parts)


def _union(sides: Sequence[_Side], tokenizer: Tokenizer) -> Parts:
    """Return the parts of every n-gram of either side, with values of 0 that are still to be filled in."""
    size = tokenizer.vocab_size
    code = codes_of_words(size).astype(np.int64)
    place_of = [code[side.to_common[words_of_codes(side.automaton.trie.vocab_size)]] for side in sides]
    words, begins, sizes = [], [], [size]
    for n in range(2, max(side.automaton.trie.order for side in sides) + 1):
        keys = [side.keys(n, places, size) for side, places in zip(sides, place_of, strict=True)]
        union = np.unique(np.concatenate(keys))
        place_of = [np.searchsorted(union, key) for key in keys]
        begins.append(np.searchsorted(union, np.arange(sizes[-1] + 1) * size))
        words.append((union % size).astype(np.uint32))
        sizes.append(len(union))
    log_prob, log_backoff = (np.zeros(total, dtype=np.float32) for total in (sum(sizes), sum(sizes[:-1])))
    return Parts(size, tokenizer.bos, words, begins, log_prob, log_backoff)
