"""Ten times the text, a cap on memory, and a user's first minutes."""

from __future__ import annotations

from pathlib import Path

from benchmarks.harness import show
from benchmarks.ngram.lab import Lab, Ran, train
from chainrule.ngram.workspace import parse_size

MB = 1_000_000
_WARM = 3


def run(lab: Lab) -> None:
    """A tenth of the text, all of it, and all of it under a cap."""
    cap, memory = lab.options.cap, f"memory={lab.options.memory}"
    tenth = train(lab.head(lab.words // 10), lab.folder / "growth", [memory])
    whole = train(lab.text, lab.folder / "growth", [memory])
    capped = train(lab.text, lab.folder / "growth", [f"memory={cap}"])
    show(
        "growth, order 5",
        ["text to model", "seconds", "CPU s", "peak MB"],
        [
            [f"{lab.words // 10:,} words", *_figures(tenth)],
            [f"{lab.words:,} words", *_figures(whole)],
            [f"{lab.words:,} words, {cap}", *_figures(capped)],
        ],
    )
    under = "under it" if capped.peak <= parse_size(cap) else "ABOVE it"
    print(f"ten times the words take {whole.seconds / tenth.seconds:.1f} times the seconds (12 at most)")
    print(f"with a cap of {cap} the peak is {capped.peak / MB:,.0f} MB, {under}", flush=True)


def run_start(lab: Lab) -> None:
    """1 MB of text, with nothing compiled, and then with everything."""
    text, cache = lab.folder / "start.txt", lab.folder / "numba"
    with lab.text.open("rb") as file:
        text.write_bytes(b"".join(file.readlines(1 * MB)))
    cold, *warm = (_start(text, lab.folder / "start", cache) for _ in range(1 + _WARM))
    show(
        f"{text.stat().st_size / MB:.1f} MB of text to a model",
        ["Numba's cache", "seconds", "CPU s", "peak MB"],
        [["empty (3 s at most)", *_figures(cold)], ["full (1.5 s at most)", *_figures(_median(warm))]],
    )


def _start(text: Path, folder: Path, cache: Path) -> Ran:
    return train(text, folder, [], {"NUMBA_CACHE_DIR": str(cache)})


def _median(runs: list[Ran]) -> Ran:
    return sorted(runs, key=lambda ran: ran.seconds)[len(runs) // 2]


def _figures(ran: Ran) -> list[str]:
    return [f"{ran.seconds:.2f}", f"{ran.cpu:.2f}", f"{ran.peak / MB:,.0f}"]
