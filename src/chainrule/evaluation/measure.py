"""A model measured on a text."""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from chainrule.arrays import TOKENS_AT_ONCE, checked, to_numpy
from chainrule.evaluation.metrics import bits_per_byte, perplexity_of
from chainrule.lm import LanguageModel, State
from chainrule.progress import SILENT, Progress
from chainrule.text.corpus import Corpus, Source, as_corpus
from chainrule.tokens.base import line_bounds
from chainrule.tokens.ids import Encoded, encode_corpus


@dataclass(frozen=True)
class Measured:
    """What a model makes of a text."""

    perplexity: float
    nats: float
    """Cross-entropy per token, natural logarithm."""
    bits: float
    """Cross-entropy per token, base 2."""
    bits_per_byte: float
    tokens: int
    """Tokens predicted, line ends included."""
    bytes: int
    oov: float
    """The share of tokens that are <unk>."""
    lossless: bool
    """Whether the tokens spell out all of the text; if not, bits per byte leave some of it unpaid."""
    impossible: int
    """Tokens that the model gave probability 0: with one of them the perplexity is infinite."""
    normalised: bool
    """Whether the model gives probabilities; if not, the figures above are made of scores."""
    seconds: float
    tokens_per_second: float

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return asdict(self)


def evaluate(
    lm: LanguageModel, text: Corpus | Source | Sequence[Source], *, progress: Progress = SILENT
) -> Measured:
    """Measure a model on a corpus."""
    with tempfile.TemporaryDirectory(prefix="chainrule-") as folder:
        encoded = encode_corpus(as_corpus(text), lm.tokenizer, Path(folder) / "text.ids", progress)
        return measure(lm, encoded, progress=progress)


def measure(lm: LanguageModel, encoded: Encoded, *, progress: Progress = SILENT) -> Measured:
    """Measure a model on ids of its own tokenizer."""
    nats, impossible = 0.0, 0
    began = time.perf_counter()
    with progress.task("scoring", encoded.tokens, "tokens") as task:
        for scores in score_ids(lm, encoded.ids):
            finite = np.isfinite(scores)
            nats -= float(scores[finite].sum())
            impossible += int(len(scores) - finite.sum())
            task.advance(len(scores))
    seconds = time.perf_counter() - began
    total = math.inf if impossible else nats
    mean = total / encoded.tokens
    return Measured(
        perplexity=perplexity_of(mean),
        nats=mean,
        bits=mean / math.log(2),
        bits_per_byte=bits_per_byte(total, encoded.bytes),
        tokens=encoded.tokens,
        bytes=encoded.bytes,
        oov=encoded.unknown / encoded.tokens,
        lossless=lm.tokenizer.lossless and encoded.unknown == 0,
        impossible=impossible,
        normalised=lm.normalised,
        seconds=seconds,
        tokens_per_second=encoded.tokens / max(seconds, 1e-9),
    )


def score_ids(lm: LanguageModel, ids: np.ndarray) -> Iterator[np.ndarray]:
    """ln p of every token, in pieces."""
    if lm.context == "stream":
        yield from _score_stream(lm, ids)
        return
    starts, ends = line_bounds(ids, lm.tokenizer.eos)
    first, at_once = 0, lm.tokens_at_once
    while first < len(starts):
        last = max(int(np.searchsorted(ends, starts[first] + at_once, side="right")), first + 1)
        piece = ids[starts[first] : ends[last - 1]]
        begins = starts[first:last] - starts[first]
        yield checked(lm.score_all(piece, begins, ends[first:last] - starts[first]))
        first = last


def _score_stream(lm: LanguageModel, ids: np.ndarray) -> Iterator[np.ndarray]:
    """One long sequence in pieces; the state carries the context from one to the next."""
    state: State = lm.start(1)
    at_once = min(lm.tokens_at_once, TOKENS_AT_ONCE)
    for first in range(0, len(ids), at_once):
        piece = np.asarray(ids[None, first : first + at_once], dtype=np.int64)
        scores, state = lm.read(state, piece)
        yield checked(to_numpy(scores)[0])
