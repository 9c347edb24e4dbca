"""N-gram models beside KenLM and NLTK: `python -m benchmarks ngram [PART ...] [options]`.

    estimate   text to a model on disk: seconds, CPU seconds, peak memory, size; beside lmplz and build_binary
    score      held-out text in memory to ln p of each token, on one core and on all; beside the kenlm module
    texts      many lines as a list of strings to ln p of each line and token, beside loops over the kenlm module
    growth     ten times the text: how many times the seconds; and the peak memory under a cap
    start      a first model of 1 MB of text, with Numba's cache empty and full
    suggest    milliseconds of a suggestion for texts that stop anywhere, of words, BPE and characters
    write      tokens written a second, one sequence and 256, several strategies; beside the plain way and peers
    nltk       training and scoring of order 3, beside NLTK
    gpu        ids on a GPU to a model there, beside lmplz (on a machine that has one)

Without a part: all of them. KenLM's programs are taken from PATH, the modules kenlm and nltk from the extra
`benchmarks`; what is not there is left out, and a line says so.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from benchmarks.harness import DATA
from benchmarks.ngram import estimate, gpu, growth, score, suggesting, texts, toolkit, writing
from benchmarks.ngram.lab import Lab

# texts and all below work in this process; what it holds would count as a child's memory: they come last
PARTS = {
    "estimate": estimate.run,
    "score": score.run,
    "growth": growth.run,
    "start": growth.run_start,
    "texts": texts.run,
    "suggest": suggesting.run,
    "write": writing.run,
    "nltk": toolkit.run,
    "gpu": gpu.run,
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks ngram", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [default: all]")
    parser.add_argument("--text", type=Path, help="the text to train on [default: simplewiki, if it is there]")
    parser.add_argument("--held-out", type=Path, help="the text to score [default: simplewiki's]")
    parser.add_argument("--lines", type=int, default=25_000, help="train on so many lines [default: 25,000]")
    parser.add_argument("--whole", action="store_true", help="train on every line")
    parser.add_argument("--memory", default="2GB", help="most memory, for both sides [default: 2GB]")
    parser.add_argument("--cap", default="1GB", help="growth: the cap to stay under [default: 1GB]")
    parser.add_argument("--device", default="cuda", help="gpu: torch's name of the device [default: cuda]")
    parser.add_argument("--kenlm-words-per-second", type=float, help="gpu: lmplz's rate, where it is not here")
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there are: {', '.join(PARTS)}")
    simplewiki = DATA / "simplewiki"
    text, held_out = options.text or simplewiki / "train.txt.gz", options.held_out or simplewiki / "valid.txt"
    for path in (text, held_out):
        if not path.exists():
            parser.error(f"{path} is not here: name texts with --text and --held-out")
    with tempfile.TemporaryDirectory(prefix="chainrule-benchmark-") as folder:
        lab = Lab.prepare(Path(folder), text, held_out, None if options.whole else options.lines, options)
        print(f"{text.name}: {lab.words:,} words in {lab.lines:,} lines; memory {options.memory}", flush=True)
        for name, part in PARTS.items():
            if not options.parts or name in options.parts:
                part(lab)
