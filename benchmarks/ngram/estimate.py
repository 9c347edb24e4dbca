"""Text to a model on disk that can be asked, from a fresh process, under one cap on memory."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import show
from benchmarks.ngram.lab import PAIRS, Lab, Ran, has_kenlm, size_of

MB = 1_000_000


def run(lab: Lab) -> None:
    with_kenlm = has_kenlm("lmplz", "build_binary")
    rows = []
    for ours, theirs in PAIRS.items():
        figures = _figures(*lab.ours(ours))
        rows.append([f"chainrule, {ours}", *map(_shown, figures), ""])
        if with_kenlm:
            peer = _figures(*lab.theirs(theirs))
            ratios = "  ".join(f"{other / own:.2f}" for own, other in zip(figures, peer, strict=True))
            rows.append([f"KenLM, {theirs}", *map(_shown, peer), ratios])
    if with_kenlm:
        _, lmplz = lab.arpa()
        rows.append(["of which lmplz", _shown(lmplz.seconds), _shown(lmplz.cpu), _shown(lmplz.peak / MB), "", ""])
    headings = ["text to model", "seconds", "CPU s", "peak MB", "MB on disk", "times ours, each"]
    show(f"order 5, modified Kneser-Ney, {lab.words:,} words", headings, rows)


def _figures(path: Path, ran: Ran) -> tuple[float, float, float, float]:
    """Seconds, CPU seconds, peak memory and size."""
    return ran.seconds, ran.cpu, ran.peak / MB, size_of(path) / MB


def _shown(figure: float) -> str:
    return f"{figure:,.1f}"
