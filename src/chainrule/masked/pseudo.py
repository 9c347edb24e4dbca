"""Pseudo-log-likelihoods of sentences (Salazar and others 2020): each token is hidden in turn.

    PLL(x) = Σ_t ln p(x_t | x_<t, x_>t)

It is no probability of the sentence, and exp(-PLL / T) no perplexity: every token is predicted from those after it
as well. It ranks sentences, and compares masked models that share a tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.arrays import PAD, batches
from chainrule.masked.contract import MaskedModel
from chainrule.system.progress import SILENT, Progress

TOKENS_AT_ONCE = 1 << 14
"""The most tokens that are read at once; a row of T tokens is read T times."""
OVERLAP = 4
"""The pieces of a row that is too long overlap by 1/OVERLAP of the longest row of the model."""


@dataclass(frozen=True)
class _Question:
    """One hidden token: the piece of a row that is read, and the place of the token in it."""

    row: int
    begin: int
    end: int
    place: int


def pseudo_log_likelihoods(
    model: MaskedModel, rows: Sequence[np.ndarray], *, progress: Progress = SILENT
) -> list[np.ndarray]:
    """Return ln p of each token of each row, given all others; the </s> at a row's end is not scored.

    A row that is longer than the model takes is read in pieces that overlap.
    """
    rows = [np.asarray(row, dtype=np.int64) for row in rows]
    found = [np.zeros(scored_tokens(model, row)) for row in rows]
    questions = [question for number, row in enumerate(rows) for question in _questions(model, number, row)]
    lengths = np.asarray([question.end - question.begin for question in questions], dtype=np.int64)
    with progress.task("scoring", len(questions), "tokens") as task:
        for some in batches(lengths, TOKENS_AT_ONCE) if questions else ():
            asked = [questions[number] for number in some]
            ids_BT = np.full((len(asked), int(lengths[some].max())), PAD, dtype=np.int64)
            hidden = np.empty(len(asked), dtype=np.int64)
            for i, question in enumerate(asked):
                ids_BT[i, : question.end - question.begin] = rows[question.row][question.begin : question.end]
                hidden[i] = ids_BT[i, question.place]
                ids_BT[i, question.place] = model.mask
            log_probs = model.predict(ids_BT)[np.arange(len(asked)), hidden]
            for question, log_prob in zip(asked, log_probs.tolist(), strict=True):
                found[question.row][question.begin + question.place] = log_prob
            task.advance(len(asked))
    return found


def one_by_one(model: MaskedModel, row: np.ndarray) -> np.ndarray:
    """Return the pseudo-log-likelihoods of one short row, token by token: the slow reference."""
    scores = []
    for place in range(scored_tokens(model, row)):
        hidden = np.asarray(row, dtype=np.int64).copy()
        hidden[place] = model.mask
        scores.append(float(model.predict(hidden[None])[0, row[place]]))
    return np.asarray(scores)


def scored_tokens(model: MaskedModel, row: np.ndarray) -> int:
    """Return how many tokens of a row are scored: all but the </s> at its end."""
    return len(row) - bool(len(row) and row[-1] == model.tokenizer.eos)


def _questions(model: MaskedModel, number: int, row: np.ndarray) -> Iterator[_Question]:
    """Yield a question for each token that is scored."""
    scored, longest = scored_tokens(model, row), model.longest
    overlap = longest // OVERLAP if len(row) > longest else 0
    begin = first = 0
    while first < scored:
        end = min(begin + longest, len(row))
        # the last tokens of a piece lack what follows, and are scored in the next one: half of the overlap
        last = scored if end == len(row) else max(end - overlap // 2, first + 1)
        yield from (_Question(number, begin, end, place - begin) for place in range(first, min(last, scored)))
        first, begin = last, max(last - overlap // 2, begin + 1)
