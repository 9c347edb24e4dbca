"""Text to a model on disk, from a fresh process: its cost beside KenLM's, its growth, and the first start."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import show
from benchmarks.ngram.lab import PAIRS, Lab, Ran, has_kenlm, size_of, train
from chainrule.ngram.workspace import parse_size

MB = 1_000_000
_WARM = 3
_HEADINGS = ["seconds", "CPU s", "peak MB"]


def run_estimate(lab: Lab) -> None:
    """Compare each form of our model with KenLM's, under one cap on memory."""
    with_kenlm = has_kenlm("lmplz", "build_binary")
    rows = []
    for ours, theirs in PAIRS.items():
        figures = _with_size(*lab.ours(ours))
        rows.append([f"chainrule, {ours}", *map(_shown, figures), ""])
        if with_kenlm:
            peer = _with_size(*lab.theirs(theirs))
            ratios = "  ".join(f"{other / own:.2f}" for own, other in zip(figures, peer, strict=True))
            rows.append([f"KenLM, {theirs}", *map(_shown, peer), ratios])
    if with_kenlm:
        rows.append(["of which lmplz", *map(_shown, _figures(lab.arpa()[1])), "", ""])
    headings = ["text to model", *_HEADINGS, "MB on disk", "times ours, each"]
    show(f"order 5, modified Kneser-Ney, {lab.words:,} words", headings, rows)


def run_growth(lab: Lab) -> None:
    """Train on a tenth of the text, on all of it, and on all of it under a cap."""
    cap, memory = lab.options.cap, f"memory={lab.options.memory}"
    tenth = train(lab.head(lab.words // 10), lab.folder / "growth", [memory])
    whole = train(lab.text, lab.folder / "growth", [memory])
    capped = train(lab.text, lab.folder / "growth", [f"memory={cap}"])
    runs = {
        f"{lab.words // 10:,} words": tenth,
        f"{lab.words:,} words": whole,
        f"{lab.words:,} words, {cap}": capped,
    }
    _show_runs("growth, order 5", "text to model", runs)
    under = "under it" if capped.peak <= parse_size(cap) else "ABOVE it"
    print(f"ten times the words take {whole.seconds / tenth.seconds:.1f} times the seconds (12 at most)")
    print(f"with a cap of {cap} the peak is {capped.peak / MB:,.0f} MB, {under}", flush=True)


def run_start(lab: Lab) -> None:
    """Train on 1 MB of text with Numba's cache empty, and then with the cache full."""
    text, cache = lab.folder / "start.txt", {"NUMBA_CACHE_DIR": str(lab.folder / "numba")}
    with lab.text.open("rb") as file:
        text.write_bytes(b"".join(file.readlines(1 * MB)))
    cold, *warm = (train(text, lab.folder / "start", [], cache) for _ in range(1 + _WARM))
    median = sorted(warm, key=lambda ran: ran.seconds)[_WARM // 2]
    title = f"{text.stat().st_size / MB:.1f} MB of text to a model"
    _show_runs(title, "Numba's cache", {"empty (3 s at most)": cold, "full (1.5 s at most)": median})


def _show_runs(title: str, heading: str, runs: dict[str, Ran]) -> None:
    rows = [[name, *(f"{figure:,.2f}" for figure in _figures(ran))] for name, ran in runs.items()]
    show(title, [heading, *_HEADINGS], rows)


def _figures(ran: Ran) -> tuple[float, float, float]:
    """Return seconds, CPU seconds and peak memory."""
    return ran.seconds, ran.cpu, ran.peak / MB


def _with_size(path: Path, ran: Ran) -> tuple[float, ...]:
    return *_figures(ran), size_of(path) / MB


def _shown(figure: float) -> str:
    return f"{figure:,.1f}"
