"""ln p of each line and each token of a text under a model."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.arrays import checked, to_numpy
from chainrule.evaluation.metrics import perplexity_of
from chainrule.lm import LanguageModel, State, read, score_rows
from chainrule.text.corpus import Corpus, Source, as_corpus
from chainrule.tokens.base import line_bounds, lines_of

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
    """The lines of a text with their scores, in order; with stream context each is scored after those before it."""
    state: State = lm.start(1)
    for block in as_corpus(text).blocks():
        lines = lines_of(block)
        ids = lm.tokenizer.encode_lines(block).astype(np.int64)
        bounds = list(zip(*line_bounds(ids, lm.tokenizer.eos), strict=True))
        for first in range(0, len(lines), _LINES_AT_ONCE):
            rows = [ids[start:end] for start, end in bounds[first : first + _LINES_AT_ONCE]]
            if lm.context == "line":
                scores = score_rows(lm, rows)
            else:
                joined = np.concatenate(rows)[None]
                found, state = read(lm, state, joined)
                flat = checked(to_numpy(found)[0], normalised=lm.normalised)
                scores = np.split(flat, np.cumsum([len(row) for row in rows])[:-1])
            for line, row, log_probs in zip(lines[first : first + _LINES_AT_ONCE], rows, scores, strict=True):
                yield ScoredLine(line.decode(), tuple(row.tolist()), tuple(log_probs.tolist()))
