"""The tables of a diagnosis: gradients, gates and attention weights, each as a line of blocks over the steps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from chainrule.explanation.diagnosis import Diagnosis
from chainrule.system.display import Part, ResultTable, number

_BLOCKS = "▁▂▃▄▅▆▇█"
_NOTHING = "·"
_FIGURES = 56  # the width of a table without its line of blocks


def diagnosis_parts(found: Diagnosis, width: int) -> list[Part]:
    """Return a diagnosis as sentences and tables that fit a screen of so many columns."""
    parts: list[Part] = [found.title, "", *_gradients(found, width - _FIGURES)]
    if found.gates:
        parts += ["", *_gates(found, width - _FIGURES)]
    if found.attention_LHTT is not None:
        parts += ["", *_attention(found, found.attention_LHTT, width * 2 // 5)]
    return parts


def _gradients(found: Diagnosis, width: int) -> list[Part]:
    norms = {"embedding": found.embedding_gradient_T}
    for name, norms_LT in found.state_gradients.items():
        norms |= {f"{name}, layer {layer}": norms_T for layer, norms_T in enumerate(norms_LT)}
    seen = [norm for norms_T in norms.values() for norm in norms_T if 0 < norm < math.inf] or [1.0]
    least, most = min(seen), max(seen)
    rows = []
    for name, norms_T in norms.items():
        levels = [_log_level(norm, least, most) for norm in norms_T]
        first, last = float(norms_T[0]), float(norms_T[-1])
        ratio = f"{first / last:.1e}" if last else ""
        rows.append([name, heat_line(levels, width), f"{first:.1e}", f"{last:.1e}", ratio])
    return [
        ResultTable(["gradient by", "step by step", "first", "last", "first / last"], rows),
        f"blocks, by logarithms: ▁ {least:.1e} to █ {most:.1e}; {_NOTHING} no gradient at all",
        f"most depends on {_largest(found, found.embedding_gradient_T)}",
    ]


def _gates(found: Diagnosis, width: int) -> list[Part]:
    rows = []
    for layer in range(len(next(iter(found.gates.values())))):
        for name, layers in found.gates.items():
            means_T = layers[layer].mean(axis=1)
            # gates lie between 0 and 1, a candidate between -1 and 1
            levels = ((means_T + 1) / 2 if name == "candidate" else means_T).tolist()
            figures = (f"{value:.3f}" for value in (means_T.min(), means_T.mean(), means_T.max()))
            rows.append([f"{name}, layer {layer}", heat_line(levels, width), *figures])
    table = ResultTable(["mean of units", "step by step", "least", "mean", "most"], rows)
    return [table, "blocks: ▁ 0 to █ 1; of candidates ▁ -1 to █ 1"]


def _attention(found: Diagnosis, attention_LHTT: np.ndarray, width: int) -> list[Part]:
    rows = []
    for layer, head in np.ndindex(attention_LHTT.shape[:2]):
        weights_T = attention_LHTT[layer, head, -1]
        line = heat_line((weights_T / weights_T.max()).tolist(), width)
        rows.append([f"layer {layer}, head {head}", line, _largest(found, weights_T)])
    table = ResultTable([f"attention of {found.tokens[-1]!r}", "step by step", "most to"], rows, left=[2])
    return [table, "blocks: ▁ 0 to █ the largest weight of the row"]


def heat_line(levels: Sequence[float | None], width: int) -> str:
    """Draw levels from 0 to 1 as blocks, None as a dot; where there are too few columns, neighbours share one.

    >>> heat_line([0.0, 0.5, 1.0, None], 10)
    '▁▅█·'
    """
    columns = max(min(len(levels), width), 1)
    edges = [i * len(levels) // columns for i in range(columns + 1)]
    line = ""
    for first, last in pairwise(edges):
        here = [level for level in levels[first:last] if level is not None]
        mean = sum(here) / len(here) if here else None
        line += _NOTHING if mean is None else _BLOCKS[min(int(mean * len(_BLOCKS)), len(_BLOCKS) - 1)]
    return line


def _log_level(norm: float, least: float, most: float) -> float | None:
    """Return the level of a norm between the least (0) and the most (1), by logarithms; None if it is 0."""
    if not norm > 0:
        return None
    low, high = math.log(least), math.log(most)
    return (math.log(min(norm, most)) - low) / (high - low) if high > low else 1.0


def _largest(found: Diagnosis, values_T: np.ndarray) -> str:
    """Name the three tokens with the largest values, with their steps and values."""
    best = sorted(range(len(values_T)), key=lambda step: -values_T[step])[:3]
    return ", ".join(f"{found.tokens[step]!r} at {step} ({number(float(values_T[step]))})" for step in best)
