"""What a model makes of each line and each token of a text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.evaluation.metrics import perplexity_of
from chainrule.lm import LanguageModel, State, pad, to_numpy
from chainrule.text.corpus import Corpus, Source, as_corpus
from chainrule.tokens.base import lines_of

_LINES_AT_ONCE = 256


@dataclass(frozen=True)
class ScoredLine:
    """A line, its tokens (the last is </s>) and ln p of each."""

    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]

    @property
    def log_prob(self) -> float:
        """ln p of the line."""
        return math.fsum(self.log_probs) if all(map(math.isfinite, self.log_probs)) else -math.inf

    @property
    def perplexity(self) -> float:
        """exp of the mean surprisal."""
        return perplexity_of(-self.log_prob / len(self.ids))


def score_lines(lm: LanguageModel, text: Corpus | Source | Sequence[Source]) -> Iterator[ScoredLine]:
    """Line by line in the text's order; with stream context each line follows the ones before."""
    state: State = lm.start(1)
    for block in as_corpus(text).blocks():
        lines = lines_of(block)
        ids = lm.tokenizer.encode_lines(block).astype(np.int64)
        rows = np.split(ids, np.flatnonzero(ids == lm.tokenizer.eos)[:-1] + 1)
        for first in range(0, len(lines), _LINES_AT_ONCE):
            some = rows[first : first + _LINES_AT_ONCE]
            if lm.context == "line":
                scores = to_numpy(lm.score(pad(some)))
                pieces = [scores[i, : len(row)] for i, row in enumerate(some)]
            else:
                joined = np.concatenate(some)[None]
                flat = to_numpy(lm.score(joined, state))[0]
                state = lm.extend(state, joined)
                pieces = np.split(flat, np.cumsum([len(row) for row in some])[:-1])
            for line, row, piece in zip(lines[first : first + _LINES_AT_ONCE], some, pieces, strict=True):
                yield ScoredLine(line.decode(), tuple(row.tolist()), tuple(map(float, piece)))
