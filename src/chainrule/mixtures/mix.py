"""`mix`: make a mixture of models, with weights tuned on held-out text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from chainrule._version import __version__
from chainrule.arrays import refuse_nan, to_numpy
from chainrule.contract.lm import LanguageModel, offered, predictions, score_sequences
from chainrule.errors import ModelError
from chainrule.mixtures.caches import Cache
from chainrule.mixtures.dynamic import Dynamic, dynamic_columns
from chainrule.mixtures.gates import By, Floats, Gate, knots_for
from chainrule.mixtures.mixture import Mixture
from chainrule.mixtures.settings import Form, MixtureSettings
from chainrule.mixtures.tuning import (
    constant_weights,
    cross_validated,
    cross_validated_gain,
    gated_weights,
    log_linear_weights,
    mixed_scores,
)
from chainrule.ngram.mix import held_out_ids
from chainrule.system.progress import Progress, Reports, as_progress
from chainrule.text.given import Text
from chainrule.tokens.base import Tokenizer

_SAMPLE = 20_000  # tokens of held-out text on which θ is chosen
_SHARPNESS = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""The values of θ |h|² to try: by so many nats a context equal to the present one outweighs an unrelated one."""
_LOG_PROBS = 1 << 25  # of all models together, on which the exponents of a log-linear mixture are tuned
CROSS_VALIDATED = "cross_validated_perplexity"
_FEW = 3  # words named as examples


def mix(
    models: Sequence[LanguageModel],
    valid: Text | None = None,
    *,
    weights: Sequence[float] | None = None,
    form: Form = "linear",
    by: By = "none",
    of: int | None = None,
    cache: int = 0,
    continuous_cache: int = 0,
    theta: float | None = None,
    dynamic: Dynamic | None = None,
    progress: Reports = False,
) -> Mixture:
    """Mix language models over one vocabulary, and caches, into one model.

    The weights are those under which the text `valid` is most likely, or `weights`, one for each model and then for
    each cache; `form` says whether probabilities are added or multiplied ("log-linear"). By "length", "match" or
    "entropy" the weights depend on the context; `of` is the number of the model whose matches or entropies count,
    from 1 on. `cache` and `continuous_cache` are the sizes of caches in tokens; `theta` is chosen if not given.
    With `dynamic`, the weights are tuned for networks that learn while they score (`evaluate(..., dynamic=...)`).

    What was found is in `metrics`: the weights, and the perplexity of the text under each model and the mixture.
    Weights are tuned on each half of the text for the other, too: if the mixture is then no better than its best
    model, as may be on a short text, it is that model alone.

    >>> import chainrule as cr
    >>> long = cr.train("ngram", ["i love cats", "you love dogs"], order=3, tokenizer="word")
    >>> short = cr.train("ngram", ["i love cats", "you love dogs"], order=1, tokenizer=long.tokenizer)
    >>> both = cr.mix([long, short], weights=[0.7, 0.3])
    >>> both
    <Mixture of 8 word tokens, line>
    """
    progress, models = as_progress(progress), list(models)
    if (valid is None) == (weights is None):
        raise ModelError("give either held-out text to tune the weights on, or the weights")
    if form == "log-linear" and dynamic is not None:
        raise ModelError("the exponents of a log-linear mixture are tuned on models that stay as they are")
    if not models or (len(models) == 1 and not (cache or continuous_cache)):
        raise ModelError("a mixture needs two models or more, or a model and a cache")
    for lm in models:
        if LanguageModel.expect(lm).needs_source:
            raise ModelError(f"a {lm.kind} model writes a target for a source: it cannot be mixed")
    settings = MixtureSettings(
        models=len(models),
        form=form,
        by=by,
        of=_chosen(models, of, {"match": "match_lengths", "entropy": "features"}.get(by)),
        cache=cache,
        continuous_cache=continuous_cache,
        continuous_cache_of=_chosen(models, None, "features" if continuous_cache else None),
        theta=theta or 0.0,
    )
    check_models(models, settings)
    if weights is not None:
        return _with_weights(models, settings, weights)
    assert valid is not None
    ids = held_out_ids(valid, models[0].tokenizer)
    bounds = models[0].bounds(ids)
    if continuous_cache and theta is None:
        with progress.task("choosing theta"):
            settings = replace(settings, theta=_best_theta(models, settings, ids))
    lm, columns_NK, scores_N = _tuned(models, settings, ids, bounds, dynamic, progress)
    unknown = 0 if lm.tokenizer.unk is None else int((ids == lm.tokenizer.unk).sum())
    lm.metrics = {
        **lm.metrics,
        "held_out_tokens": len(ids),
        "held_out_perplexities": [_perplexity(mean) for mean in columns_NK.mean(axis=0).tolist()],
        "held_out_perplexity": _perplexity(scores_N.mean()),
        "held_out_oov": unknown / len(ids),
        **({} if dynamic is None else {"dynamic": asdict(dynamic)}),
    }
    return lm


def check_models(models: Sequence[LanguageModel], settings: MixtureSettings) -> None:
    """Refuse models that cannot be mixed as the settings say."""
    for number, lm in enumerate(models[1:], start=2):
        if lm.context != models[0].context:
            raise ModelError(
                f"models to mix need the same context: the first has {models[0].context}, number {number} has "
                f"{lm.context}; train them with the same --context"
            )
        if lm.tokenizer.to_json() != models[0].tokenizer.to_json():
            advice = "train them with the same one (--tokenizer DIR)"
            are_ngrams = offered(models[0], "match_lengths") and offered(lm, "match_lengths")
            own, others = ((one.tokenizer.kind, one.tokenizer.splitting) for one in (lm, models[0]))
            if are_ngrams and own == others:
                advice += ", or merge them (--merge)"
            raise ModelError(f"{_difference(models[0].tokenizer, lm.tokenizer, number)}; {advice}")
    if settings.form == "linear":
        for lm in models:
            if not lm.normalised:
                raise ModelError(f"a {lm.kind} model that gives scores, not probabilities, cannot be mixed")
    if settings.by == "match" and offered(models[settings.of - 1], "match_lengths") is None:
        raise ModelError("weights by match need an n-gram model of bounded order, and its number is that of none")
    if settings.continuous_cache and offered(models[settings.continuous_cache_of - 1], "features") is None:
        raise ModelError("a continuous cache has the features of a network as keys, and no model is a network")


def _difference(first: Tokenizer, other: Tokenizer, number: int) -> str:
    """Return a sentence that says how two vocabularies differ."""
    if first.splitting is None or (first.kind, first.splitting) != (other.kind, other.splitting):
        return (
            f"models to mix need one vocabulary: the first has {first.vocab_size:,} {first.name} tokens, number "
            f"{number} has {other.vocab_size:,} {other.name} tokens of its own"
        )
    mine, theirs = set(first.spellings), set(other.spellings)
    apart = [
        f"{len(words):,} that only {whose} has, such as {', '.join(map(_shown, sorted(words)[:_FEW]))}"
        for words, whose in ((mine - theirs, "the first"), (theirs - mine, f"number {number}"))
        if words
    ]
    what = "; ".join(apart) or "the same words stand in another order"
    return f"models to mix need one vocabulary, and their words differ: {what}"


def _shown(word: Any) -> str:
    return repr(word.decode(errors="replace") if isinstance(word, bytes) else word)


def _chosen(models: Sequence[LanguageModel], number: int | None, needed: str | None) -> int:
    """Return the number of a model: the given one, or that of the first model with the needed capability."""
    if number is not None or needed is None:
        return number or 1
    return next((place for place, lm in enumerate(models, start=1) if offered(lm, needed)), 1)


def _with_weights(models: list[LanguageModel], settings: MixtureSettings, weights: Sequence[float]) -> Mixture:
    given = np.asarray(weights, dtype=np.float64)
    columns = settings.models + bool(settings.cache) + bool(settings.continuous_cache)
    if given.shape != (columns,):
        raise ModelError(f"expected {columns} weights, one for each model and cache, found {given.size}")
    if settings.by != "none":
        raise ModelError("weights that depend on the context are tuned on held-out text, not given")
    if settings.continuous_cache and not settings.theta:
        raise ModelError("a continuous cache needs theta, or held-out text to choose it on")
    if not (np.isfinite(given).all() and (given >= 0).all() and given.sum() > 0):
        raise ModelError("weights should be numbers of 0 or more, and not all 0")
    if settings.form == "linear":
        given = given / given.sum()
    return _described(Mixture(models, settings, given[None]), given)


def _tuned(
    models: list[LanguageModel],
    settings: MixtureSettings,
    ids: np.ndarray,
    bounds: tuple[np.ndarray, np.ndarray],
    dynamic: Dynamic | None,
    progress: Progress,
) -> tuple[Mixture, Floats, Floats]:
    """Return the mixture with the best weights, ln p of the tokens by each model and cache, and by the mixture."""
    tokenizer, linear = models[0].tokenizer, replace(settings, form="linear")
    columns = settings.models + len(settings.caches(tokenizer.vocab_size, tokenizer.bos))
    even = Mixture(models, linear, np.full((1, columns), 1 / columns))
    with progress.task("scoring held-out text", len(ids), "tokens") as task:
        if dynamic is None:
            columns_NK, values_N = even.columns(ids, *bounds)
        else:
            columns_NK, values_N = dynamic_columns(even, ids, *bounds, dynamic, task)
    refuse_nan(columns_NK)
    if settings.form == "log-linear":
        with progress.task("tuning the exponents"):
            exponents_K, gain = _exponents(models, ids, bounds)
            means_M = columns_NK.mean(axis=0)
            if not gain > 0:
                exponents_K = np.eye(len(models))[means_M.argmax()]
        lm = _described(Mixture(models, settings, exponents_K[None]), exponents_K)
        lm.metrics = {**lm.metrics, CROSS_VALIDATED: _perplexity(means_M.max() + max(gain, 0.0))}
        with progress.task("scoring held-out text"):
            return lm, columns_NK, score_sequences(lm, ids, *bounds)
    with progress.task("tuning the weights"):
        gate = Gate(settings.by, settings.of - 1, knots_for(settings.by, values_N))
        weights_GK = gated_weights(columns_NK, gate, values_N)
        means_M = columns_NK[:, : len(models)].mean(axis=0)
        gained = float(cross_validated(columns_NK, gate, values_N).mean())
        if not gained > means_M.max() and np.isfinite(means_M.max()):
            weights_GK = np.zeros_like(weights_GK)
            weights_GK[:, means_M.argmax()] = 1.0
        weights_NK = gate.weights(weights_GK, values_N)
    lm = _described(Mixture(models, settings, weights_GK, gate.knots), weights_NK.mean(axis=0))
    lm.metrics = {**lm.metrics, CROSS_VALIDATED: _perplexity(max(gained, means_M.max()))}
    return lm, columns_NK, mixed_scores(columns_NK, weights_NK)


def _exponents(
    models: list[LanguageModel], ids: np.ndarray, bounds: tuple[np.ndarray, np.ndarray]
) -> tuple[Floats, float]:
    """Tune the exponents of a log-linear mixture on pieces of the text; also return the cross-validated gain."""
    most = max(_LOG_PROBS // (models[0].tokenizer.vocab_size * len(models)), 16)
    starts, ends = bounds
    if len(starts) == 1:  # one long sequence: some pieces of it, each after the tokens before it
        pieces, width = min(8, max(len(ids) // 64, 1)), most // 8
        firsts = np.linspace(0, max(len(ids) - width, 0), pieces).astype(np.int64)
        stretches = [(max(first - width, 0), first, min(first + width, len(ids))) for first in firsts]
    else:
        order = np.random.default_rng(0).permutation(len(starts))
        taken = order[: max(int(np.searchsorted(np.cumsum((ends - starts)[order]), most)), 1)]
        stretches = [(starts[row], starts[row], min(ends[row], starts[row] + most)) for row in taken]
    log_probs: list[list[Floats]] = [[] for _ in models]
    given = []
    for before, first, last in stretches:
        given.append(ids[first:last])
        for kept, model in zip(log_probs, models, strict=True):
            state = model.extend(model.start(1), ids[None, before:first])
            blocks = predictions(model, state, ids[None, first:last])
            kept += [to_numpy(block)[0].astype(np.float64) for block in blocks]
    tokens_KNV, given_N = [np.concatenate(kept) for kept in log_probs], np.concatenate(given)
    return log_linear_weights(tokens_KNV, given_N), cross_validated_gain(tokens_KNV, given_N)


def _best_theta(models: list[LanguageModel], settings: MixtureSettings, ids: np.ndarray) -> float:
    """Return the θ under which the first part of the text is most likely, with weights tuned for each θ."""
    some, of = ids[:_SAMPLE], settings.continuous_cache_of - 1
    bounds = models[0].bounds(some)
    if not len(bounds[0]) or bounds[1][-1] != len(some):  # the sample ends inside a line
        bounds = np.zeros(1, np.int64), np.asarray([len(some)])
    network: Any = models[of]
    _, features_BTD, _ = network.read_features(network.start(1), some[None, :1000])
    norm = float((to_numpy(features_BTD).astype(np.float64) ** 2).sum(axis=-1).mean())
    tokenizer = models[0].tokenizer
    thetas = [sharpness / max(norm, 1e-12) for sharpness in _SHARPNESS]
    others = [c for c in settings.caches(tokenizer.vocab_size, tokenizer.bos) if not c.is_continuous]
    tried = [Cache(settings.continuous_cache, tokenizer.vocab_size, tokenizer.bos, of, theta) for theta in thetas]
    columns = len(models) + len(others) + len(tried)
    plain = replace(settings, by="none")
    every = Mixture(models, plain, np.full((1, columns), 1 / columns), caches=[*others, *tried])
    columns_NK, _ = every.columns(some, *bounds)
    always = len(models) + len(others)
    losses = []
    for number in range(len(tried)):
        mine_NK = columns_NK[:, [*range(always), always + number]]
        losses.append(-float(mixed_scores(mine_NK, constant_weights(mine_NK)).mean()))
    return thetas[int(np.argmin(losses))]


def names_of(lm: Mixture) -> list[str]:
    """Return a name for each model, its kind, and for each cache."""
    caches = [
        f"{'continuous' if cache.is_continuous else 'unigram'} cache of {cache.size:,}" for cache in lm.caches
    ]
    return [model.kind for model in lm.models] + caches


def _perplexity(mean: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(-mean))


def _described(lm: Mixture, weights: Floats) -> Mixture:
    """Set provenance and metrics of a mixture, and return it; `weights` are the means over held-out text."""
    lm.provenance = {"mixed": [dict(model.provenance) for model in lm.models], "chainrule": __version__}
    lm.metrics = {"names": names_of(lm), "weights": weights.tolist()}
    return lm
