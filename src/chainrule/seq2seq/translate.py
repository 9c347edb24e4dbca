"""Texts in, translations out: each text is a source, and its target is searched for or sampled.

Sources are translated in batches of similar length. A translation does not depend on its batch: the limit of its
length follows from its own source, and its random numbers from the seed and the source.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, TypeVar

import numpy as np

from chainrule.arrays import batches, to_numpy
from chainrule.contract.lm import State
from chainrule.contract.model import Model
from chainrule.decode.beam import beam_search
from chainrule.decode.randomness import Uniforms
from chainrule.decode.sample import Continuation, sample
from chainrule.decode.strategies import Beam, Forbid, Strategy
from chainrule.errors import DecodingError
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.system.progress import SILENT, Progress, Reports, as_progress

Given = TypeVar("Given", str, list[str])
"""A text, or a list of texts."""

BEAM = Beam(width=5, length_power=1.0, ending="best")
"""The search by default: five hypotheses, ranked by ln p per token, until five are finished.

To let hypotheses end at every step takes half as many steps again, for the same BLEU."""

TOKENS_AT_ONCE = {"cpu": 1 << 14, "gpu": 1 << 18}
"""The most tokens of sources in a batch, times the width of the beam: a GPU takes many rows as fast as one."""

FIRST_TEXTS, MOST_TEXTS = 32, 2048
"""The texts that are translated together at first. The number then doubles, so that the first results come soon."""


@dataclass(frozen=True)
class Translation:
    """A target that was found for a source."""

    text: str
    log_prob: float
    """ln p of the target, its end included, under the model."""
    ids: tuple[int, ...]
    """Its tokens; the last one is </s>, unless it was cut off."""
    is_finished: bool

    @property
    def score(self) -> float:
        """ln p per token, by which the hypotheses of a search are ranked."""
        return self.log_prob / max(len(self.ids), 1)


def translate(
    model: Model,
    texts: Given,
    strategy: Strategy | Beam | None = None,
    *,
    beams: int | None = None,
    max_tokens: int | None = None,
    seed: int = 0,
    progress: Reports = False,
) -> Given:
    """Return the translation of a text, or of each text of a list, by a model of the kind seq2seq.

    It is searched for with `beams` hypotheses (5), or chosen by a strategy such as Greedy() or TopP(0.9). A text is
    one source, also if it has several lines; one that is longer than the model takes is cut.

    >>> import chainrule as cr
    >>> pairs = [("a b", "b a"), ("b c", "c b"), ("c a", "a c")] * 4
    >>> model = cr.train("seq2seq", pairs, cell="gru", width=8, layers=1, steps=1, tokenizer="word")
    >>> len(translate(model, ["a b", "b c"]))
    2
    """
    lm = ConditionalModel.expect(model)
    if beams is not None and strategy is not None:
        raise DecodingError("choose one of beams and a strategy: Beam(5) is a strategy too")
    chosen = strategy or (BEAM if beams is None else replace(BEAM, width=beams))
    given = [texts] if isinstance(texts, str) else texts
    found = translate_texts(lm, given, chosen, max_tokens=max_tokens, seed=seed, progress=as_progress(progress))
    every = [best.text for best, *_ in found]
    return every[0] if isinstance(texts, str) else every


def translate_stream(
    lm: ConditionalModel,
    texts: Iterable[str],
    strategy: Strategy | Beam = BEAM,
    *,
    at_once: int = FIRST_TEXTS,
    grows: bool = True,
    **others: Any,
) -> Iterator[tuple[str, list[Translation]]]:
    """Yield each text with its translations, in order, as soon as those of `at_once` texts are found.

    If it `grows`, twice as many texts are taken the next time, up to `MOST_TEXTS`: larger batches are faster. The
    `others` are the options of `translate_ids`.
    """
    every = iter(texts)
    while some := list(islice(every, at_once)):
        yield from zip(some, translate_texts(lm, some, strategy, **others), strict=True)
        at_once = min(2 * at_once, max(MOST_TEXTS, at_once)) if grows else at_once


def translate_texts(
    lm: ConditionalModel, texts: Sequence[str], strategy: Strategy | Beam = BEAM, **others: Any
) -> list[list[Translation]]:
    """Return the translations of each text, by the options of `translate_ids`; an empty text has an empty one."""
    if any(not isinstance(text, str) for text in texts):
        raise DecodingError("expected a text, or a list of texts")
    some = [number for number, text in enumerate(texts) if text.strip()]
    written = translate_ids(lm, [lm.encode_source(texts[number]) for number in some], strategy, **others)
    found = [[Translation("", 0.0, (), True)] for _ in texts]
    for number, one in zip(some, written, strict=True):
        found[number] = one
    return found


def translate_ids(
    lm: ConditionalModel,
    sources: Sequence[np.ndarray],
    strategy: Strategy | Beam = BEAM,
    *,
    best: int = 1,
    max_tokens: int | None = None,
    seed: int = 0,
    progress: Progress = SILENT,
) -> list[list[Translation]]:
    """Return the `best` targets, or as many samples, of each source, which is ids ended by </s>."""
    width = strategy.width if isinstance(strategy, Beam) else best
    if best < 1 or (max_tokens is not None and max_tokens < 1):
        raise DecodingError("ask for at least one translation, of at least one token")
    if isinstance(strategy, Beam) and best > strategy.width:
        raise DecodingError(f"{strategy.width} beams cannot give {best} translations: ask for more beams")
    found: list[list[Translation]] = [[] for _ in sources]
    lengths = np.asarray([len(source) for source in sources])
    with progress.task("translating", len(sources), "lines") as task:
        at_once = TOKENS_AT_ONCE["cpu" if lm.device == "cpu" else "gpu"]
        for rows in batches(lengths, max(1, at_once // width)):
            some = [sources[row] for row in rows]
            limits = np.asarray([min(most_tokens(len(one)), max_tokens or sys.maxsize) for one in some])
            state, end = lm.begin(some), lm.tokenizer.eos
            if isinstance(strategy, Beam):
                never = _forbidden(lm)
                searched = beam_search(lm, state, strategy, max_tokens=limits, end=end, forbid=never, best=best)
            else:
                searched = _sampled(lm, state, some, strategy, limits, best, seed)
            for row, written in zip(rows, searched, strict=True):
                found[row] = [_as_translation(lm, one) for one in written]
            task.advance(len(rows))
    return found


def most_tokens(source_tokens: int) -> int:
    """Return the greatest length of a target: twice that of its source, and ten more."""
    return 2 * source_tokens + 10


def _as_translation(lm: ConditionalModel, found: Continuation) -> Translation:
    ends = bool(found.ids) and found.ids[-1] == lm.tokenizer.eos
    ids = found.ids[:-1] if ends else found.ids
    return Translation(lm.tokenizer.decode(ids), found.log_prob, found.ids, found.finished)


def _sampled(
    lm: ConditionalModel,
    state: State,
    sources: Sequence[np.ndarray],
    strategy: Strategy,
    limits: np.ndarray,
    copies: int,
    seed: int,
) -> list[list[Continuation]]:
    """Return `copies` samples for each source; a sample depends on the seed and the source, not on the batch."""
    rows = np.repeat(np.arange(len(sources)), copies).tolist()
    numbers = np.tile(np.arange(copies), len(sources)).tolist()
    uniforms = Uniforms(seed, [sources[row].tolist() for row in rows], numbers)
    never = _forbidden(lm)
    chosen = Forbid(tuple(never)) | strategy if never else strategy
    most = int(limits.max(initial=0))
    if copies > 1:
        state = state.select(np.asarray(rows, np.int64))
    flat = sample(lm, state, chosen, uniforms, max_tokens=most, end=lm.tokenizer.eos)
    cut = [_cut(lm, one, int(limits[row]), sources[row]) for one, row in zip(flat, rows, strict=True)]
    return [cut[i * copies : (i + 1) * copies] for i in range(len(sources))]


def _cut(lm: ConditionalModel, written: Continuation, limit: int, source: np.ndarray) -> Continuation:
    """Return a sample of a batch, no longer than it would be alone."""
    if len(written.ids) <= limit:
        return written
    ids = written.ids[:limit]
    log_prob = float(to_numpy(lm.score(np.asarray([ids]), lm.begin([source]))).sum())
    return Continuation(ids, log_prob, False)


def _forbidden(lm: ConditionalModel) -> list[int]:
    return [] if lm.tokenizer.unk is None else [lm.tokenizer.unk]
