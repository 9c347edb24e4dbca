"""Probes: does a model remember over a distance, tell apart orders, learn from its prompt, read past its window?

The questions come from the same source as a made text (`text/builtin/probes.py`); a model that is asked has been
trained on that text. A model that does not know gives the right word one half.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np

from chainrule.arrays import pad, refuse_nan, to_numpy
from chainrule.contract.kinds import load_content
from chainrule.contract.lm import LanguageModel
from chainrule.errors import CorpusError, ModelError
from chainrule.explanation.reading import one_token
from chainrule.text.builtin.probes import LONGEST, QUESTIONS, gaps_of, questions

PLACES = 32
"""The positions that share a figure in `by_position`."""
WINDOWS = 64
"""The most stretches of a text that `by_position` reads."""


@dataclass(frozen=True)
class OfGap:
    """The answers to the questions of one gap."""

    gap: int
    probability: float
    """The mean of p(right) / (p(right) + p(wrong)); one half is guessing."""
    accuracy: float
    """The share of questions whose right word is the more likely one; a tie counts half."""


def probe(lm: LanguageModel, name: str, *, longest: int = LONGEST, count: int = QUESTIONS) -> list[OfGap]:
    """Ask a model the questions of a probe (gaps, order, agreement or shots), for each gap up to the longest.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", cr.Corpus.open("builtin:gaps"), order=4, tokenizer="word")
    >>> found = probe(lm, "gaps", longest=3)
    >>> [round(one.probability, 2) for one in found]  # a 4-gram sees three words: the word, one between, and "with"
    [1.0, 0.95, 0.52, 0.49]
    """
    found = []
    for gap in gaps_of(name, longest):
        asked = questions(name, gap, count)
        ids_BT = pad([lm.tokenizer.encode(one.prompt) for one in asked])
        log_probs_BV = to_numpy(lm.next_log_probs(lm.extend(lm.start(len(asked)), ids_BT)))
        refuse_nan(log_probs_BV)
        words = [[_known(lm, word, name) for word in (one.right, one.wrong)] for one in asked]
        right_B, wrong_B = np.take_along_axis(log_probs_BV, np.asarray(words), axis=1).T
        differences_B = right_B - wrong_B
        # p / (p + q) = 1 / (1 + q / p)
        probability = float((1 / (1 + np.exp(-differences_B))).mean())
        credit = np.where(differences_B == 0, 0.5, differences_B > 0)
        found.append(OfGap(gap, probability, float(credit.mean())))
    return found


def _known(lm: LanguageModel, word: str, name: str) -> int:
    token = one_token(lm.tokenizer, word, "word of a question")
    if token == lm.tokenizer.unk:
        raise ModelError(
            f"the model does not know the word {word!r}: train it on builtin:{name} with --tokenizer word"
        )
    return token


# -- train short, test long -------------------------------------------------------------------------------


@dataclass(frozen=True)
class OfPlaces:
    """The perplexity at some positions, counted from the start of what a model reads at once."""

    first: int
    last: int
    perplexity: float


def by_position(lm: LanguageModel, text: str, length: int) -> list[OfPlaces]:
    """Measure the perplexity of tokens by their position in stretches of `length` tokens of a text.

    A Transformer reads each stretch at once, even if it was trained on a shorter window.

    >>> import chainrule as cr
    >>> lm = cr.train("ngram", ["a b c d"] * 9, order=2, smoothing="laplace", tokenizer="word")
    >>> [(one.first, one.last) for one in by_position(lm, "a b c d " * 20, 40)]
    [(0, 31), (32, 39)]
    """
    ids = lm.tokenizer.encode(text).astype(np.int64)
    count = min(len(ids) // length, WINDOWS)
    if not count:
        raise CorpusError(f"the text has {len(ids):,} tokens; at least {length:,} are needed")
    rows_BT = ids[: count * length].reshape(count, length)
    scores_BT = to_numpy(with_window(lm, length + 1).score(rows_BT))
    places = [(first, min(first + PLACES, length)) for first in range(0, length, PLACES)]
    return [OfPlaces(a, b - 1, float(np.exp(-scores_BT[:, a:b].mean()))) for a, b in places]


def with_window(lm: LanguageModel, window: int) -> LanguageModel:
    """Return the model with a window of so many tokens, where it has one that can grow; else the model itself.

    Positions that are computed exist for any token; learned positions exist only as far as they were learned.
    """
    content = lm.content()
    config: dict[str, Any] = dict(content.config)
    if "positions" not in config or config["window"] >= window:
        return lm
    if config["positions"] == "learned":
        raise ModelError(
            f"this Transformer learned the positions of {config['window']} tokens and has none for {window}; "
            "train one with --set positions=rotary, alibi, sinusoidal or none"
        )
    return cast(LanguageModel, load_content(replace(content, config={**config, "window": window})))
