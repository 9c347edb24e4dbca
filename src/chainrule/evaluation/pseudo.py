"""Pseudo-log-likelihoods of the records of a text, and of all of it, under a masked model.

They are no probabilities and no perplexities (`masked/pseudo.py` says why), and have other names than those.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from chainrule.errors import CorpusError
from chainrule.evaluation.metrics import perplexity_of
from chainrule.evaluation.records import ScoredBatch, is_one_file
from chainrule.masked.contract import MaskedModel
from chainrule.masked.pseudo import pseudo_log_likelihoods
from chainrule.system.display import Measurements, Part, number
from chainrule.system.progress import Reports, as_progress
from chainrule.text.batches import record_batches
from chainrule.text.given import Text, as_corpus
from chainrule.tokens.base import encode_in_parallel, line_bounds

_BYTES_AT_ONCE = 1 << 14

CAVEAT = (
    "PLL: the mean of ln p of each token given those on both sides, in nats. It is no probability of the text, and "
    "exp(-PLL), the pseudo-perplexity, is no perplexity: it does not compare with that of a language model"
)


@dataclass(frozen=True)
class PseudoScored:
    """A record, its tokens without line ends, and ln p of each given all others."""

    id: int | str
    text: str
    ids: tuple[int, ...]
    log_probs: tuple[float, ...]

    @property
    def pll(self) -> float:
        """Its pseudo-log-likelihood, in nats."""
        return math.fsum(self.log_probs)

    @property
    def pll_per_token(self) -> float:
        """The mean of ln p over its tokens; 0 if it has none."""
        return self.pll / max(1, len(self.ids))

    @property
    def pseudo_perplexity(self) -> float:
        """exp(-PLL / T): no perplexity, since every token is predicted from those after it as well."""
        return perplexity_of(-self.pll_per_token)


@dataclass(frozen=True)
class PseudoMeasured(Measurements):
    """The measurements of a masked model on a text."""

    pseudo_perplexity: float
    pll_per_token: float
    """The mean of ln p of each token given all others of its line, in nats."""
    tokens: int
    """Tokens predicted, without line ends."""
    oov: float
    """The share of tokens that are <unk>."""
    seconds: float
    tokens_per_second: float

    def figures(self) -> dict[str, str]:
        pll, pseudo = (number(value, 4) for value in (self.pll_per_token, self.pseudo_perplexity))
        return {"PLL": pll, "pseudo-perplexity": pseudo, "tokens": f"{self.tokens:,}", "OOV": f"{self.oov:.2%}"}

    def remarks(self) -> list[Part]:
        return [CAVEAT]


def pseudo_records(
    model: MaskedModel, text: Text, *, per_line: bool = False, progress: Reports = False
) -> Iterator[PseudoScored]:
    """Yield the records of a text with their scores; each line is read by itself, also with stream context."""
    corpus, progress = as_corpus(text), as_progress(progress)
    with progress.task("scoring", corpus.size(), "B") as task:
        for records in record_batches(corpus, _BYTES_AT_ONCE, per_line=per_line):
            ids = encode_in_parallel(model.tokenizer, records.block).astype(np.int64)
            starts, ends = line_bounds(ids, model.tokenizer.eos)
            scores = pseudo_log_likelihoods(model, [ids[a:b] for a, b in zip(starts, ends, strict=True)])
            offsets = np.cumsum([0, *map(len, scores)])[np.cumsum([0, *records.lines])]
            inside = ids[ids != model.tokenizer.eos]
            batch = ScoredBatch(records, inside, np.concatenate(scores), offsets, is_one_file(corpus))
            yield from (PseudoScored(one.id, one.text, one.ids, one.log_probs) for one in batch)
            task.advance(len(records.block))


def evaluate_masked(model: MaskedModel, text: Text, *, progress: Reports = False) -> PseudoMeasured:
    """Measure a masked model on a text, line by line."""
    began, total, tokens, unknown = time.perf_counter(), 0.0, 0, 0
    corpus = as_corpus(text)
    for record in pseudo_records(model, corpus, progress=progress):
        total += record.pll
        tokens += len(record.ids)
        unknown += 0 if model.tokenizer.unk is None else record.ids.count(model.tokenizer.unk)
    if not tokens:
        raise CorpusError(f"{corpus.name}: there are no tokens to predict")
    seconds, mean = time.perf_counter() - began, total / tokens
    return PseudoMeasured(
        perplexity_of(-mean), mean, tokens, unknown / tokens, seconds, tokens / max(seconds, 1e-9)
    )
