"""Re-ranking of n-best lists by a log-linear combination of given scores, a language model and the length.

    score(h) = Σ_i w_i score_i(h) + w_lm ln p(h) + w_lists ln q(h) + w_words |h| + w_unknown (unknown words of h)

q is a unigram model of the words of the other lists: what the recogniser hears often is likely. Lists without
scores have their order as one. The language model reads hypotheses in the case, and with or without the final
point, that it finds most likely. The weights are tuned for the fewest word errors on a part of the lists
(weights.py), and measured on the others. If they do not remove errors of lists of that part that they were not
tuned on, the given scores stay alone.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from chainrule.contract.lm import LanguageModel
from chainrule.errors import CorpusError, ModelError, SettingsError
from chainrule.evaluation.surprisal import score
from chainrule.tasks.nbest.errors import WordErrorRates, word_errors
from chainrule.tasks.nbest.lists import GivenLists, NbestList, read_lists, tuning_and_test, with_ranks
from chainrule.tasks.nbest.weights import Features, chosen, count_errors, tune

OWN = ("lm", "lists", "words", "unknown")
"""The features that are added to the given scores: ln p, ln q, the number of words, and of unknown words."""
_FOLDS = 4
_SAMPLE = 100  # hypotheses by which the model chooses how they are written

Learner: TypeAlias = Callable[[list[str]], LanguageModel]
"""A function that trains a model on references."""


@dataclass(frozen=True)
class Reranked:
    """Re-ranked lists, and their word error rates."""

    lists: tuple[NbestList, ...] = field(repr=False)
    totals: tuple[np.ndarray, ...] = field(repr=False)
    """The weighted score of each hypothesis of each list."""
    weights: dict[str, float]
    tuned: WordErrorRates | None
    """The rates on the lists that the weights were tuned on; None if the weights were given."""
    tested: WordErrorRates | None
    """The rates on the other lists; None if references are not known."""
    model: LanguageModel
    """The language model; if it was trained here, the one that read all references of the tuning part."""
    helps: bool | None = None
    """True if tuned weights removed errors of lists that they were not tuned on; None if weights were given."""

    @property
    def best(self) -> list[str]:
        """Return the best hypothesis of each list."""
        return [one.hypotheses[int(np.argmax(some))] for one, some in zip(self.lists, self.totals, strict=True)]

    def to_json(self) -> dict[str, Any]:
        """Return weights and rates as JSON."""
        rates = {"tuned": self.tuned, "tested": self.tested}
        found = {name: rate and rate.to_json() for name, rate in rates.items()}
        return {"weights": self.weights, "helps": self.helps, **found}


def rerank(
    lm: LanguageModel | Learner,
    lists: GivenLists,
    *,
    weights: Mapping[str, float] | None = None,
    share: float = 0.5,
    seed: int = 0,
) -> Reranked:
    """Re-rank n-best lists by their scores and a language model.

    Weights are tuned on a random share of the lists, and word error rates are measured on the others; or they are
    given, by the names of the scores and of OWN. Instead of a model, a function may be given that trains one on a
    list of references. It gets those of the tuning part; while weights are tuned, each list is scored by a model
    that has not read its reference.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["show me flights"], order=2, smoothing="laplace", tokenizer="word")
    >>> lists = [NbestList(("show me lights", "show me flights"), {"am_score": (-1.0, -1.5)})]
    >>> rerank(lm, lists, weights={"am_score": 1.0, "lm": 1.0}).best
    ['show me flights']
    """
    every = tuple(with_ranks(one) for one in (read_lists(lists) if isinstance(lists, (str, Path)) else lists))
    names, own = _names(every), _log_shares(every)
    if weights is not None:
        given = LanguageModel.expect(lm)
        whole = features(given, every, names, own)
        return _result(every, whole, _as_vector(weights, names), names, given, None, None)
    if missing := [one.id for one in every if one.reference is None]:
        raise CorpusError(f"list {missing[0]} has no reference, which tuning needs: give weights instead")
    tuning, testing = tuning_and_test(len(every), share, seed)
    some, some_own = [every[i] for i in tuning], [own[i] for i in tuning]
    if isinstance(lm, LanguageModel) or not callable(lm):
        model = LanguageModel.expect(lm)
        tuned_on = features(model, some, names, some_own)
    else:
        tuned_on = _learned(lm, some, names, some_own)
        model = LanguageModel.expect(lm([_reference(one) for one in some]))
    errors, _ = word_errors(some)
    start_D = np.asarray([float(name not in OWN) for name in names])  # the given scores alone
    helps = _gain(tuned_on, errors, start_D, seed) > 0
    weights_D = tune(tuned_on, errors, start_D, seed=seed) if helps else start_D
    weights_D /= abs(weights_D[0]) or 1.0  # a positive factor changes no choice
    whole = features(model, every, names, own)
    for i, of_list in zip(tuning.tolist(), tuned_on, strict=True):
        whole[i] = of_list
    return _result(every, whole, weights_D, names, model, (tuning, testing), helps)


def _gain(tuned_on: Features, errors: Sequence[np.ndarray], start_D: np.ndarray, seed: int) -> float:
    """Return the errors that tuned weights remove, each fold by the weights of the others."""
    removed, folds = 0.0, min(_FOLDS, len(tuned_on))
    for fold in range(folds):
        rest = [i for i in range(len(tuned_on)) if i % folds != fold]
        weights_D = tune([tuned_on[i] for i in rest], [errors[i] for i in rest], start_D, starts=5, seed=seed)
        fold_features, fold_errors = tuned_on[fold::folds], errors[fold::folds]
        removed += count_errors(fold_features, fold_errors, start_D)
        removed -= count_errors(fold_features, fold_errors, weights_D)
    return removed


def _result(
    lists: tuple[NbestList, ...],
    whole: list[np.ndarray],
    weights_D: np.ndarray,
    names: Sequence[str],
    model: LanguageModel,
    split: tuple[np.ndarray, np.ndarray] | None,
    helps: bool | None,
) -> Reranked:
    def rates(rows: Sequence[int]) -> WordErrorRates | None:
        if not all(lists[i].reference is not None for i in rows):
            return None
        errors, words = word_errors([lists[i] for i in rows])
        return WordErrorRates.of(errors, words, chosen([whole[i] for i in rows], weights_D))

    tuned = None if split is None else rates(split[0].tolist())
    tested = rates(range(len(lists)) if split is None else split[1].tolist())
    totals = tuple(some_KD @ weights_D for some_KD in whole)
    return Reranked(lists, totals, dict(zip(names, weights_D.tolist(), strict=True)), tuned, tested, model, helps)


def features(
    lm: LanguageModel, lists: Sequence[NbestList], names: Sequence[str], own: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the features of the hypotheses of each list, [K, D]: the given scores, then OWN."""
    write = _likely_writing(lm, [one.hypotheses[0] for one in lists])
    scores = score(lm, [write(text) for one in lists for text in one.hypotheses])
    log_probs, unknown = scores.log_prob, scores.unknown
    if not np.isfinite(log_probs).all():
        text = scores.texts[int(np.argmin(np.isfinite(log_probs)))]
        raise ModelError(f"the model gives the hypothesis {text!r} probability 0: use a smoothed model")
    ends = np.cumsum([len(one.hypotheses) for one in lists])[:-1]
    of_lists = zip(lists, own, np.split(log_probs, ends), np.split(unknown, ends), strict=True)
    found = []
    for one, own_K, log_probs_K, unknown_K in of_lists:
        words = [len(text.split()) for text in one.hypotheses]
        given = [one.scores[name] for name in names if name not in OWN]
        found.append(np.asarray([*given, log_probs_K, own_K, words, unknown_K], dtype=np.float64).T)
    return found


def _likely_writing(lm: LanguageModel, texts: Sequence[str]) -> Callable[[str], str]:
    """Return how to write hypotheses: as they are, or in the case and with the end that the model expects."""
    ways: tuple[Callable[[str], str], ...] = (str, str.lower, _capitalised, _as_sentence)
    some = [text for text in texts[:_SAMPLE] if text]

    def likely(way: Callable[[str], str]) -> tuple[int, float]:
        scores = score(lm, [way(text) for text in some])
        return -int(scores.unknown.sum()), float(scores.log_prob.sum())

    return max(ways, key=likely) if some else str


def _capitalised(text: str) -> str:
    return text[:1].upper() + text[1:].lower()


def _as_sentence(text: str) -> str:
    return _capitalised(text) + "." * (not text.endswith((".", "?", "!")))


def _log_shares(lists: Sequence[NbestList]) -> list[np.ndarray]:
    """Return ln q of each hypothesis of each list: of its words by their share in all other lists, plus one."""
    of_lists, whole = [], Counter[str]()
    for one in lists:
        counts = Counter(word for text in one.hypotheses for word in text.split())
        of_lists.append({word: count / len(one.hypotheses) for word, count in counts.items()})
        whole.update(of_lists[-1])
    size, total = len(whole) + 1, sum(whole.values())
    found = []
    for one, own in zip(lists, of_lists, strict=True):
        others = total - sum(own.values()) + size
        shares = {word: math.log((whole[word] - count + 1) / others) for word, count in own.items()}
        found.append(np.asarray([sum(shares[word] for word in text.split()) for text in one.hypotheses]))
    return found


def _learned(
    learner: Learner, lists: Sequence[NbestList], names: Sequence[str], own: Sequence[np.ndarray]
) -> list[np.ndarray]:
    """Return the features of each list by a model trained on the references of other folds."""
    folds = min(_FOLDS, len(lists))
    if folds < 2:
        raise CorpusError("there is one list to tune on; to train a model on references takes two or more")
    found: list[np.ndarray] = [np.empty(0)] * len(lists)
    for fold in range(folds):
        lm = LanguageModel.expect(learner([_reference(one) for i, one in enumerate(lists) if i % folds != fold]))
        found[fold::folds] = features(lm, lists[fold::folds], names, own[fold::folds])
    return found


def _reference(one: NbestList) -> str:
    assert one.reference is not None
    return one.reference


def _names(lists: Sequence[NbestList]) -> list[str]:
    if not lists:
        raise CorpusError("there are no n-best lists")
    given = list(lists[0].scores)
    for number, one in enumerate(lists):
        if list(one.scores) != given:
            raise CorpusError(f"list {number} has the scores {list(one.scores)}, the first one {given}")
    if taken := [name for name in given if name in OWN]:
        raise CorpusError(f'a score may not be called "{taken[0]}", which is a feature of its own here')
    return [*given, *OWN]


def _as_vector(weights: Mapping[str, float], names: Sequence[str]) -> np.ndarray:
    if unknown := [name for name in weights if name not in names]:
        raise SettingsError(f'there is no score "{unknown[0]}" to weigh; there are: {", ".join(names)}')
    return np.asarray([float(weights.get(name, 0.0)) for name in names])
