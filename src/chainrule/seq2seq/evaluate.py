"""How good translations are: perplexity of the targets given their sources, BLEU and chrF.

BLEU and chrF compare the model's translations with the targets; sacrebleu computes them, on text as people read it,
and its signatures say exactly how. BLEU against the length of the source shows what attention is for: without it
the decoder has one vector for the whole source, however long that is.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from chainrule.arrays import batches, checked, pad, to_numpy
from chainrule.decode.strategies import Beam, Strategy
from chainrule.errors import MissingExtraError
from chainrule.kinds import Figures, HeldOut
from chainrule.model import Model
from chainrule.progress import SILENT, Progress, Reports, as_progress
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import BEAM, translate_ids
from chainrule.text.pairs import GivenPairs, Pairs, as_pairs

TOKENS_AT_ONCE = 1 << 14
"""The most tokens of sources and of targets in a batch that is scored."""

BUCKETS = (8, 12, 16, 20, 25, 30, 40, 60)
"""Where the lengths of sources are divided, in words."""


@dataclass(frozen=True)
class OfLength:
    """The translations of sources of about the same length."""

    least: int
    """The words of the shortest source that belongs here."""
    most: int | None
    """The words of the longest; None: any number."""
    pairs: int
    bleu: float

    @property
    def name(self) -> str:
        """The lengths as text: 9-12."""
        return f"{self.least}+" if self.most is None else f"{self.least}-{self.most}"


@dataclass(frozen=True)
class TranslationMeasured:
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
    """Sources that are longer than what the model takes, of which the beginning was read."""
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

    def to_json(self) -> dict[str, Any]:
        """The measurements as plain values."""
        return asdict(self)


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
    """The figures of a model in a comparison."""
    found = evaluate_pairs(model, Pairs(test.lines), progress=progress)
    first = next(iter(Pairs(test.lines)))[0]
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
    """-ln p of all targets given their sources, and how many tokens they have."""
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
    """Whether a source is longer than what the model takes."""
    most = lm.longest_source
    return most is not None and len(lm.source_tokenizer.encode(source)) + 1 > most


# -- BLEU and chrF ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Quality:
    """How close translations are to references, by sacrebleu."""

    bleu: float
    chrf: float
    signatures: dict[str, str]

    @classmethod
    def of(cls, translations: Sequence[str], references: Sequence[str]) -> Quality:
        """The metrics of translations, each with a reference."""
        bleu_of, chrf_of = _metrics()
        bleu = bleu_of.corpus_score(list(translations), [list(references)])
        chrf = chrf_of.corpus_score(list(translations), [list(references)])
        signatures = {"bleu": str(bleu_of.get_signature()), "chrf": str(chrf_of.get_signature())}
        return cls(bleu.score, chrf.score, signatures)


def _metrics() -> tuple[Any, Any]:
    try:
        from sacrebleu.metrics.bleu import BLEU
        from sacrebleu.metrics.chrf import CHRF
    except ImportError:
        raise MissingExtraError("sacrebleu", "translation", "measuring translations") from None
    return BLEU(), CHRF()


def by_length(examples: Sequence[tuple[str, str]], written: Sequence[str]) -> tuple[OfLength, ...]:
    """BLEU of the translations of sources of each length; lengths of which there are none are left out."""
    words = np.asarray([len(source.split()) for source, _ in examples])
    of = np.searchsorted(BUCKETS, words)  # a source of BUCKETS[i] words belongs to bucket i
    edges = [0, *BUCKETS]
    found = []
    for bucket in np.unique(of).tolist():
        rows = np.flatnonzero(of == bucket).tolist()
        quality = _metrics()[0].corpus_score([written[i] for i in rows], [[examples[i][1] for i in rows]])
        most = BUCKETS[bucket] if bucket < len(BUCKETS) else None
        found.append(OfLength(edges[bucket] + 1, most, len(rows), quality.score))
    return tuple(found)


# -- the plot ---------------------------------------------------------------------------------------------

_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP, _RIGHT = 640, 360, 56, 64, 44, 20
COLOURS = ("#3d6ea8", "#c8372d", "#2f8f5b", "#b98a17", "#7a4fa3", "#5c6770")
_STYLE = """
text { font: 13px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1d2733 }
.paper { fill: #ffffff }
.title { font-size: 15px; font-weight: bold }
.grid { stroke: #d5dae0; stroke-width: 1 }
.axis { stroke: #48535f; stroke-width: 1.2 }
.line { fill: none; stroke-width: 2.2 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181d }
  text { fill: #e4e8ec }
  .grid { stroke: #333b44 }
  .axis { stroke: #9aa5b1 }
}
"""


def length_plot(curves: Sequence[tuple[str, Sequence[OfLength]]]) -> str:
    """BLEU against the length of the source, a line for each model, as the text of an SVG file."""
    from xml.sax.saxutils import escape

    buckets = sorted({(one.least, one.name) for _, curve in curves for one in curve})
    place = {name: i for i, (_, name) in enumerate(buckets)}
    top = _ceiling(max((one.bleu for _, curve in curves for one in curve), default=0.0))
    height = _HEIGHT + 20 * len(curves)

    def x(name: str) -> float:
        return _LEFT + (place[name] + 0.5) * (_WIDTH - _LEFT - _RIGHT) / max(len(buckets), 1)

    def y(bleu: float) -> float:
        return _HEIGHT - _BOTTOM - bleu / top * (_HEIGHT - _BOTTOM - _TOP)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" '
        f'height="{height}" role="img">',
        "<title>BLEU against the length of the source</title>",
        f"<style>{_STYLE}</style>",
        f'<rect class="paper" width="{_WIDTH}" height="{height}"/>',
        f'<text class="title" x="{_LEFT}" y="26">BLEU against the length of the source</text>',
    ]
    for step in range(5):
        bleu = top * step / 4
        lines.append(
            f'<line class="{"grid" if step else "axis"}" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y(bleu):.1f}" '
            f'y2="{y(bleu):.1f}"/>'
        )
        lines.append(f'<text x="{_LEFT - 8}" y="{y(bleu) + 4:.1f}" text-anchor="end">{bleu:g}</text>')
    for _, name in buckets:
        lines.append(
            f'<text x="{x(name):.1f}" y="{_HEIGHT - _BOTTOM + 20}" text-anchor="middle">{escape(name)}</text>'
        )
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    lines.append(f'<text x="{middle:.0f}" y="{_HEIGHT - 22}" text-anchor="middle">words of the source</text>')
    for number, (name, curve) in enumerate(curves):
        lines += _curve(name, curve, COLOURS[number % len(COLOURS)], _HEIGHT + 20 * number, x, y)
    return "\n".join([*lines, "</svg>"]) + "\n"


def _curve(name: str, curve: Iterable[OfLength], colour: str, below: float, x: Any, y: Any) -> list[str]:
    """A line with its points, and its name below the plot."""
    from xml.sax.saxutils import escape

    points = [(x(one.name), y(one.bleu), one) for one in curve]
    path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _ in points)
    return [
        f'<polyline class="line" points="{path}" stroke="{colour}"/>',
        *(
            f'<circle cx="{px:.1f}" cy="{py:.1f}" r="4" fill="{colour}"><title>{one.name} words: BLEU '
            f"{one.bleu:.1f}, {one.pairs} pairs</title></circle>"
            for px, py, one in points
        ),
        f'<line x1="{_LEFT}" x2="{_LEFT + 24}" y1="{below}" y2="{below}" stroke="{colour}" stroke-width="2.2"/>',
        f'<text x="{_LEFT + 32}" y="{below + 4}">{escape(name)}</text>',
    ]


def _ceiling(highest: float) -> float:
    """A round number, which four steps divide, above the highest value."""
    return next((float(top) for top in (4, 8, 20, 40, 60, 80) if highest <= top), 100.0)
