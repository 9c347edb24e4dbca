"""Alignments: which tokens of a source the decoder looked at when it wrote each token of a target.

A weight α_ts says how much of source token s there was in what attention found when target token t was predicted;
the weights of a target token sum to one. A Transformer has such weights for each head of each layer: here they are
the mean over the heads of its last layer but one, or of its only one, which is where they agree best with what was
translated to what (Garg and others 2019, "Jointly learning to align and translate"; tests hold it for toy tasks).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from xml.sax.saxutils import escape

import numpy as np

from chainrule.contract.model import Model
from chainrule.errors import ModelError
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.translate import translate
from chainrule.tokens.base import Tokenizer


@dataclass(frozen=True)
class Alignment:
    """A source and a target, and how much each part of the target looked at each part of the source."""

    source: tuple[str, ...]
    """The tokens, or the words, of the source; </s> is the last."""
    target: tuple[str, ...]
    weights_TS: np.ndarray
    """A row for each part of the target, which sums to one."""

    def best(self) -> list[int]:
        """The index of the source part that each target part looked at most."""
        return [int(index) for index in self.weights_TS.argmax(axis=1)]

    def of_words(self) -> Alignment:
        """The same between words: the weights of a source word are summed, those of a target word averaged.

        A token that begins with a space begins a word, as those of subword tokenizers do; others stay as they are.
        """
        sources, targets = _words(self.source), _words(self.target)
        summed = np.stack([self.weights_TS[:, part].sum(axis=1) for part in sources], axis=1)
        mean = np.stack([summed[part].mean(axis=0) for part in targets])
        return Alignment(_joined(self.source, sources), _joined(self.target, targets), mean)


def align(model: Model, source: str, target: str | None = None) -> Alignment:
    """How the model aligns a source and a target; without a target, with its own translation."""
    lm = ConditionalModel.expect(model)
    target = translate(lm, source) if target is None else target
    ids = np.asarray([*lm.tokenizer.encode(target), lm.tokenizer.eos])
    return align_ids(lm, lm.encode_source(source), ids)


def align_ids(lm: ConditionalModel, source: np.ndarray, target: np.ndarray) -> Alignment:
    """The alignment of ids, both ended by </s>."""
    weights_LHTS = lm.attention_weights(source, target)
    if weights_LHTS is None:
        raise ModelError("this model has no attention, so there is no alignment: set attention when training")
    # the last layer but one, and the mean over its heads
    weights_TS = weights_LHTS[max(len(weights_LHTS) - 2, 0)].mean(axis=0)
    return Alignment(_names(lm.source_tokenizer, source), _names(lm.tokenizer, target), weights_TS)


def _names(tokenizer: Tokenizer, ids: np.ndarray) -> tuple[str, ...]:
    return tuple(tokenizer.token(int(one)) for one in ids)


def _words(tokens: Sequence[str]) -> list[slice]:
    """The stretches of tokens that are words; </s> is one by itself."""
    has_spaces = any(token.startswith(" ") for token in tokens)
    begins = [
        i
        for i, token in enumerate(tokens)
        if i == 0 or not has_spaces or token.startswith(" ") or i == len(tokens) - 1
    ]
    return [slice(begin, end) for begin, end in zip(begins, [*begins[1:], len(tokens)], strict=True)]


def _joined(tokens: Sequence[str], parts: Sequence[slice]) -> tuple[str, ...]:
    return tuple("".join(tokens[part]).strip() or "␣" for part in parts)


# -- the picture ------------------------------------------------------------------------------------------

_CELL, _LETTER, _GAP, _LONGEST = 26, 7.6, 30, 24
_STYLE = """
text { font: 13px Helvetica, Arial, "DejaVu Sans", sans-serif; fill: #1d2733 }
.paper { fill: #ffffff }
.frame { fill: none; stroke: #c3cad2; stroke-width: 1 }
.grid { stroke: #e6e9ed; stroke-width: 1 }
.weight { fill: #2456a6 }
.side { font-size: 12px; fill: #6b7682 }
@media (prefers-color-scheme: dark) {
  .paper { fill: #14181d }
  text { fill: #e4e8ec }
  .frame { stroke: #46505b }
  .grid { stroke: #262d35 }
  .weight { fill: #7fb2ff }
  .side { fill: #9aa5b1 }
}
"""


def alignment_picture(alignments: Sequence[Alignment]) -> str:
    """Alignments one below the other, sources across and targets down, as the text of an SVG file."""
    panels, top, widest = [], 8.0, 240.0
    for alignment in alignments:
        lines, width, height = _panel(alignment, top)
        panels += lines
        top += height + _GAP
        widest = max(widest, width)
    height = top - _GAP + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {widest:.0f} {height:.0f}" '
            f'width="{widest:.0f}" height="{height:.0f}" role="img">',
            "<title>which words of the source each word of the target looked at</title>",
            f"<style>{_STYLE}</style>",
            f'<rect class="paper" width="{widest:.0f}" height="{height:.0f}"/>',
            *panels,
            "</svg>\n",
        ]
    )


def _panel(alignment: Alignment, top: float) -> tuple[list[str], float, float]:
    """The lines of one alignment, its width and its height."""
    sources, targets = ([_short(name) for name in names] for names in (alignment.source, alignment.target))
    S, T = len(sources), len(targets)
    left = 16 + _LETTER * max(map(len, targets))
    above = 26 + _LETTER * max(map(len, sources)) * 0.8  # the labels of the source are slanted
    x0, y0 = left + 8, top + above
    lines = [f'<text class="side" x="8" y="{top + 14:.0f}">source across, target down</text>']
    for s, name in enumerate(sources):
        x, y = x0 + (s + 0.5) * _CELL, y0 - 8
        slant = f"rotate(-50 {x:.1f} {y:.1f})"
        lines.append(f'<text x="{x:.1f}" y="{y:.1f}" transform="{slant}">{escape(name)}</text>')
    for t, name in enumerate(targets):
        at = y0 + (t + 0.5) * _CELL + 4.5
        lines.append(f'<text x="{left:.1f}" y="{at:.1f}" text-anchor="end">{escape(name)}</text>')
    for t in range(1, T):
        y = y0 + t * _CELL
        lines.append(f'<line class="grid" x1="{x0:.1f}" x2="{x0 + S * _CELL:.1f}" y1="{y:.1f}" y2="{y:.1f}"/>')
    for s in range(1, S):
        x = x0 + s * _CELL
        lines.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{y0:.1f}" y2="{y0 + T * _CELL:.1f}"/>')
    for t in range(T):
        for s in range(S):
            weight = float(alignment.weights_TS[t, s])
            if weight >= 0.005:
                lines.append(
                    f'<rect class="weight" x="{x0 + s * _CELL:.1f}" y="{y0 + t * _CELL:.1f}" width="{_CELL}" '
                    f'height="{_CELL}" fill-opacity="{weight:.3f}"><title>{escape(alignment.target[t])} looked at '
                    f"{escape(alignment.source[s])}: {weight:.2f}</title></rect>"
                )
    lines.append(f'<rect class="frame" x="{x0:.1f}" y="{y0:.1f}" width="{S * _CELL}" height="{T * _CELL}"/>')
    slanted = _LETTER * max(len(name) for name in sources) * 0.65
    return lines, x0 + S * _CELL + max(slanted - _CELL, 0) + 16, above + T * _CELL


def _short(name: str) -> str:
    """A label that is no wider than others need."""
    name = name.strip() or "␣"
    return name if len(name) <= _LONGEST else name[: _LONGEST - 1] + "…"
