"""Distributions over the next token: of every model they sum to one, after every context that is tried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any, get_args

import numpy as np

import chainrule as cr
from chainrule.contract.lm import LanguageModel
from chainrule.ngram.settings import SCORES, Smoothing

from .frame import Trial
from .models import KINDS, TEXT, made, trained

SMOOTHINGS = [name for name in get_args(Smoothing) if name not in (*SCORES, "infinite", "imported", "mixed")]
"""The methods that give probabilities, and that a text can be counted for."""
EXACT, SINGLE = 1e-9, 1e-5
"""How far a sum may be from one: of numbers of double, and of single precision."""
ROWS = 100
"""Contexts at once."""


def _generated(random: Random, **settings: Any) -> LanguageModel:
    """An n-gram model of a generated text."""
    words = [f"w{i}" for i in range(random.randrange(2, 40))]
    weights = [1 / (1 + i) for i in range(len(words))]
    lines = [
        " ".join(random.choices(words, weights, k=random.randrange(1, 12))) for _ in range(random.randrange(5, 80))
    ]
    return cr.train("ngram", lines, order=random.randrange(1, 6), tokenizer="word", **settings)


@cache
def _others() -> dict[str, Callable[[], Any]]:
    """Models of other kinds, by name."""
    networks = [
        kind
        for kind in KINDS
        if kind in ("feedforward", "bagofwords", "elman", "lstm", "gru", "qrnn", "transformer")
    ]
    text = TEXT.splitlines()
    return {
        **{kind: lambda kind=kind: trained(kind, steps=3) for kind in [*networks, "seq2seq"]},
        "anygram": lambda: made("anygram"),
        "table": lambda: made("table"),
        "mixture": lambda: made("mixture"),
        "cache": lambda: cr.mix([made("ngram")], weights=[0.6, 0.4], cache=3),
        "continuous cache": lambda: cr.mix(
            [trained("lstm", steps=3)], weights=[0.5, 0.5], continuous_cache=4, theta=1.0
        ),
        "log-linear": lambda: cr.mix([made("ngram"), made("ngram")], weights=[0.9, 0.4], form="log-linear"),
        "quantised": lambda: cr.train("ngram", text, order=4, tokenizer="word", bits=4),
        "pruned": lambda: cr.train("ngram", text, order=4, tokenizer="word", prune="0,0,1"),
    }


def run(trial: Trial) -> None:
    """Add up distributions of generated n-gram models and of one model of each other sort; a try is a context."""
    names = trial.chosen([*SMOOTHINGS, *_others(), "masked", "dynamic"])
    least = trial.count // len(names)
    for name in names:
        if name in SMOOTHINGS:
            for _ in range(2 if trial.small else 20):
                if trial.is_over:
                    return
                _check(trial, name, _generated(trial.random, smoothing=name), every=True)
        elif name in ("masked", "dynamic"):
            {"masked": _check_masked, "dynamic": _check_dynamic}[name](trial, least // 10)
        else:
            lm, done = _others()[name](), 0
            while done < least and not trial.is_over:
                done += _check(trial, name, lm, every=False)


def _check(trial: Trial, name: str, lm: Any, *, every: bool) -> int:
    """Add up the distributions after some contexts; returns how many there were."""
    tolerance = EXACT if _is_double(lm) else SINGLE
    count = 0
    for rows in _contexts(trial.random, lm, every=every):
        state = _start(lm, len(rows))
        state = lm.extend(state, rows) if rows.shape[1] else state
        log_probs = cr.to_numpy(lm.next_log_probs(state)).astype(np.float64)
        sums = np.exp(log_probs).sum(1)
        worst = float(np.abs(sums - 1).max())
        count += len(rows)
        wrong = not worst < tolerance or np.isnan(log_probs).any() or log_probs.max() > tolerance
        trial.note(name, f"a sum of 1 {worst:+.1e}" if wrong else None, times=len(rows))
    return count


def _is_double(lm: Any) -> bool:
    """Whether a model computes in double precision, of numbers that are stored so; n-gram models store single."""
    stored = [array.dtype for array in lm.tensors().values() if array.dtype.kind == "f"]
    return lm.dtype == "float64" and {*stored} <= {np.dtype(float)} and all(map(_is_double, lm.parts().values()))


def _start(lm: Any, count: int) -> Any:
    """States before the first token; those of an encoder-decoder have read a source."""
    return lm.begin([lm.encode_source("a b c")] * count) if lm.kind == "seq2seq" else lm.start(count)


def _contexts(random: Random, lm: Any, *, every: bool) -> Iterator[np.ndarray]:
    """Batches of contexts: every one of up to two tokens and random longer ones, or only random ones."""
    generator = np.random.default_rng(random.getrandbits(32))
    known = [i for i in range(lm.tokenizer.vocab_size) if i != lm.tokenizer.bos]
    if every:
        yield np.zeros((1, 0), np.int64)
        yield np.asarray(known)[:, None]
        pairs = np.stack(np.meshgrid(known, known), -1).reshape(-1, 2)
        yield from (pairs[i : i + 1000] for i in range(0, len(pairs), 1000))
    yield generator.choice(known, (ROWS, int(generator.integers(1, 9))))


def _check_masked(trial: Trial, count: int) -> None:
    """Add up what a masked model says of gaps."""
    model = trained("masked", steps=3)
    for _ in range(max(1, count)):
        if trial.is_over:
            return
        ids = np.asarray([[trial.random.randrange(3, model.tokenizer.vocab_size) for _ in range(12)]])
        ids[0, trial.random.randrange(12)] = model.mask
        total = float(np.exp(model.predict(ids).astype(np.float64)).sum())
        trial.note("masked", None if abs(total - 1) < SINGLE else f"a sum of {total}")


def _check_dynamic(trial: Trial, count: int) -> None:
    """Add up what a network that learns while it scores says of every next token."""
    from chainrule.mixtures.dynamic import Dynamic, dynamic_scores

    lm = trained("lstm", steps=3)
    known = [i for i in range(lm.tokenizer.vocab_size) if i not in (lm.tokenizer.bos, lm.tokenizer.eos)]
    for _ in range(max(1, count // len(known))):
        if trial.is_over:
            return
        context = trial.random.choices(known, k=4)
        texts = [np.asarray([*context, token, lm.tokenizer.eos]) for token in [*known, lm.tokenizer.eos]]
        scores = [np.concatenate([*dynamic_scores(lm, ids, Dynamic(0.01, segment=2))])[4] for ids in texts]
        total = float(np.exp(np.asarray(scores, np.float64)).sum())
        trial.note("dynamic", None if abs(total - 1) < SINGLE else f"a sum of {total}")
