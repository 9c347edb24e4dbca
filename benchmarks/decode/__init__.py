"""Writing and scoring by every family beside other programs: `python -m benchmarks decode [PART ...] [options]`.

    strategies   a Transformer of 41 M parameters, 16,000 tokens: every strategy, alone and 32 rows; transformers
    families     LSTM, GRU, Elman, feed-forward, bag of words and seq2seq decoders: alone, 32 and 256 rows
    beam         beam search of width 4 for 8 prompts of 128 tokens; transformers
    scoring      one long stream, and lines, by each family; transformers
    startup      `generate`, `suggest` and `translate` from the shell: import, context, load, first token
    ngrams       n-gram models on the CPU: penalties with top-p, 256 rows; scoring beside KenLM
    mixture      one token of a mixture after a prompt that is healed, beside the sum of its parts
    llama        a Transformer of 10 M parameters on the CPU; llama.cpp (the module llama_cpp) with the same weights
    large        124 M and 1.1 B parameters; transformers and gpt-fast

Without a part: all, in this order, the most important first; --minutes stops in that order. Networks have random
weights, in bfloat16 on a GPU and float32 on a CPU: the speed does not depend on what they have learned. A rate is
the median of several calls after a warm-up; the first call has a column of its own. --small makes every part so
small that it runs anywhere in seconds, with figures that mean nothing. A peer that is not installed, or has no
checkout, is left out, and a line says so; --alone leaves out all. The networks of `serve` beside llama.cpp's server
are in `python -m benchmarks serve llama`.
"""

from __future__ import annotations

import math
import os
import tempfile
import time
from pathlib import Path

from benchmarks.decode import ngrams, scoring, startup, writing
from benchmarks.decode.results import OutOfTime, Results
from benchmarks.harness import DATA, TEMPORARY, chosen_parts, exit_on_error, new_parser
from benchmarks.neural.lab import Lab
from chainrule.system.devices import choose_device

PARTS = {
    "strategies": writing.strategies,
    "families": writing.families,
    "beam": writing.beam,
    "scoring": scoring.scoring,
    "startup": startup.startup,
    "ngrams": ngrams.ngrams,
    "mixture": ngrams.mixture,
    "llama": ngrams.llama,
    # gpt-fast changes how everything after it is compiled
    "large": writing.large,
}


def main(arguments: list[str]) -> None:
    parser = new_parser("decode", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [default: all]")
    parser.add_argument("--device", default="auto", help="torch's name of the device [default: auto; cpu: the CPU]")
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    parser.add_argument("--alone", action="store_true", help="our side only")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after so many minutes")
    parser.add_argument(
        "--rounds", type=int, default=5, help="calls that are timed, of which the median counts [5]"
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="keep the rows in this file, as they are measured"
    )
    gpt_fast = os.environ.get("CHAINRULE_GPT_FAST")
    parser.add_argument("--gpt-fast", type=Path, default=gpt_fast, help="large: a checkout of gpt-fast")
    options = parser.parse_args(arguments)
    parts = chosen_parts(parser, options.parts, PARTS)
    until = time.monotonic() + 60 * options.minutes
    with exit_on_error(), tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        lab = Lab(Path(folder), DATA, choose_device(options.device), options.small, {}, options)
        rounds = 1 if options.small else options.rounds
        results = Results(lab, rounds, until, options.json, options.alone)
        try:
            for part in parts:
                results.attempt(part.__name__, part)
        except OutOfTime as left_out:
            print(f"the time is over before {left_out}, and what comes after it is left out", flush=True)
        results.show()
    if results.failures:
        raise SystemExit(f"{results.failures} sides failed")
