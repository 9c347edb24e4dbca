"""How good translations are: perplexity of the targets given their sources, BLEU and chrF.

BLEU and chrF compare the model's translations with the targets; sacrebleu computes them, on text as people read it,
and its signatures say exactly how. BLEU against the length of the source shows the use of attention: without it
the decoder has one vector for the whole source, however long that is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chainrule.arrays import batches, checked, pad, to_numpy
from chainrule.contract.kinds import Figures, HeldOut
from chainrule.contract.model import Model
from chainrule.decode.strategies import Beam, Strategy
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.quality import OfLength, Quality, by_length
from chainrule.seq2seq.translate import BEAM, translate_ids
from chainrule.system.display import Measurements, Part, ResultTable, number
from chainrule.system.progress import SILENT, Progress, Reports, as_progress
from chainrule.text.pairs import GivenPairs, as_pairs

TOKENS_AT_ONCE = 1 << 14
"""The most tokens of sources and of targets in a batch that is scored."""


@dataclass(frozen=True)
class TranslationMeasured(Measurements):
    """The measurements of a model on pairs."""

    perplexity: float
    """Per token of the targets, given their sources."""
    nats: float
    """Cross-entropy per token, natural logarithm."""
    bits: float
    """Cross-entropy per token, base 2."""
    pairs: int
    tokens: int
    """Tokens of targets, ends included."""
    cut: int
    """The number of sources that are longer than the model takes; only their beginning was read."""
    bleu: float
    chrf: float
    copied_bleu: float
    """BLEU of the sources themselves, taken for translations: what copying reaches."""
    signatures: dict[str, str]
    """How sacrebleu computed BLEU and chrF."""
    lengths: tuple[OfLength, ...]
    """BLEU by the length of the source."""
    seconds: float
    """The time to translate all sources."""
    sentences_per_second: float

    def figures(self) -> dict[str, str]:
        return {
            "BLEU": f"{self.bleu:.1f}",
            "chrF": f"{self.chrf:.1f}",
            "perplexity": number(self.perplexity, 4),
            "sentences/s": number(self.sentences_per_second),
        }

    @property
    def size(self) -> str:
        """What was measured, in one line."""
        copying = f"copying the sources has BLEU {self.copied_bleu:.1f}"
        return f"{self.pairs:,} pairs, {self.tokens:,} tokens of targets; {copying}"

    def remarks(self) -> list[Part]:
        lengths = [["pairs", *(f"{one.pairs:,}" for one in self.lengths)]]
        lengths.append(["BLEU", *(f"{one.bleu:.1f}" for one in self.lengths)])
        return [self.size, ResultTable(["words of the source", *(one.name for one in self.lengths)], lengths)]


def evaluate_pairs(
    model: Model,
    pairs: GivenPairs,
    *,
    strategy: Strategy | Beam = BEAM,
    seed: int = 0,
    progress: Reports = False,
) -> TranslationMeasured:
    """Measure a model on pairs: every source is translated, and every target scored."""
    lm, progress = ConditionalModel.expect(model), as_progress(progress)
    examples = list(as_pairs(pairs))
    nats, tokens = score_pairs(lm, examples, progress=progress)
    sources = [lm.encode_source(source) for source, _ in examples]
    began = time.perf_counter()
    found = translate_ids(lm, sources, strategy, seed=seed, progress=progress)
    seconds = time.perf_counter() - began
    written = [best.text for best, *_ in found]
    quality = Quality.of(written, [target for _, target in examples])
    copied = Quality.of([source for source, _ in examples], [target for _, target in examples])
    mean = nats / tokens
    return TranslationMeasured(
        perplexity=math.exp(mean) if mean < math.log(1e308) else math.inf,
        nats=mean,
        bits=mean / math.log(2),
        pairs=len(examples),
        tokens=tokens,
        cut=sum(is_cut(lm, source) for source, _ in examples),
        bleu=quality.bleu,
        chrf=quality.chrf,
        copied_bleu=copied.bleu,
        signatures=quality.signatures,
        lengths=by_length(examples, written),
        seconds=seconds,
        sentences_per_second=len(examples) / max(seconds, 1e-9),
    )


def measure(model: Any, test: HeldOut, progress: Progress = SILENT) -> Figures:
    """Return the figures of a model in a comparison."""
    found = evaluate_pairs(model, test.examples, progress=progress)
    first = next(iter(test.examples))[0]
    written = translate_ids(model, [model.encode_source(first)])[0][0].text
    return Figures(
        values={"BLEU": found.bleu, "chrF": found.chrf, "perplexity": found.perplexity},
        loss=100 - found.bleu,
        tokens_per_second=found.tokens / max(found.seconds, 1e-9),
        note=f"BLEU {found.signatures['bleu']}; copying the sources has BLEU {found.copied_bleu:.1f}",
        sample=f"{first} → {written}",
    )


def score_pairs(
    lm: ConditionalModel, examples: Sequence[tuple[str, str]], *, progress: Progress = SILENT
) -> tuple[float, int]:
    """Return -ln p of all targets given their sources, and how many tokens they have."""
    sources = [lm.encode_source(source) for source, _ in examples]
    targets = [np.asarray([*lm.tokenizer.encode(target), lm.tokenizer.eos]) for _, target in examples]
    sizes = np.asarray([max(len(s), len(t)) for s, t in zip(sources, targets, strict=True)])
    nats = 0.0
    with progress.task("scoring", len(examples), "lines") as task:
        for rows in batches(sizes, TOKENS_AT_ONCE):
            state = lm.begin([sources[row] for row in rows])
            ids_BT = pad([targets[row] for row in rows])
            nats -= float(checked(to_numpy(lm.score(ids_BT, state))).sum())
            task.advance(len(rows))
    return nats, sum(map(len, targets))


def is_cut(lm: ConditionalModel, source: str) -> bool:
    """Return True if a source is longer than the model takes."""
    most = lm.longest_source
    return most is not None and len(lm.source_tokenizer.encode(source)) + 1 > most
