"""N-gram models beside KenLM and NLTK: `python -m benchmarks ngram [PART ...] [options]`.

    estimate   text to a model on disk: seconds, CPU seconds, peak memory, size; beside lmplz and build_binary
    score      held-out text in memory to ln p of each token, on one core and on all; beside the kenlm module
    texts      many lines as a list of strings to ln p of each line and token, beside loops over the kenlm module
    growth     ten times the text: how many times the seconds; and the peak memory under a cap
    start      a first model of 1 MB of text, with Numba's cache empty and full
    suggest    milliseconds of a suggestion for texts that stop anywhere, of words, BPE and characters
    write      tokens sampled a second, one sequence and 256, several strategies; beside the plain way and peers
    nltk       training and scoring of order 3, beside NLTK
    gpu        ids on a GPU to a model there, beside lmplz (on a machine that has one)

Without a part: all of them. KenLM's programs must be on PATH; the extra `benchmarks` installs the modules
kenlm and nltk. A peer that is missing is left out, and a line says so.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.harness import DATA, TEMPORARY, chosen_parts, new_parser
from benchmarks.ngram import costs, gpu, nltk_peer, sampling, score, suggesting
from benchmarks.ngram.lab import Lab

# texts and all below it run in this process: they come last, since its memory would count as that of a child
PARTS = {
    "estimate": costs.run_estimate,
    "score": score.run,
    "growth": costs.run_growth,
    "start": costs.run_start,
    "texts": score.run_texts,
    "suggest": suggesting.run,
    "write": sampling.run,
    "nltk": nltk_peer.run,
    "gpu": gpu.run,
}


def main(arguments: list[str]) -> None:
    parser = new_parser("ngram", __doc__)
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
    parts = chosen_parts(parser, options.parts, PARTS)
    simplewiki = DATA / "simplewiki"
    text, held_out = options.text or simplewiki / "train.txt.gz", options.held_out or simplewiki / "valid.txt"
    for path in (text, held_out):
        if not path.exists():
            parser.error(f"{path} is not here: name texts with --text and --held-out")
    with tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        lab = Lab.prepare(Path(folder), text, held_out, None if options.whole else options.lines, options)
        print(f"{text.name}: {lab.words:,} words in {lab.lines:,} lines; memory {options.memory}", flush=True)
        for part in parts:
            part(lab)
