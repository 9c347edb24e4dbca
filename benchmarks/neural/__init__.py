"""Networks beside their peers: `python -m benchmarks neural [PART ...] [options]`.

    cpu          training a tiny Transformer on a CPU, and its loss after as many tokens; beside nanoGPT
    minutes      what our default networks learn on a CPU in the time of nanoGPT's setting for one
    shakespeare  seconds until a validation loss on Tiny Shakespeare, and the best one; beside nanoGPT
    gpt2         training a Transformer of 124 M parameters; its loss after as many tokens; beside nanoGPT
    lstm         training the three layers of AWD-LSTM; beside nn.LSTM in a plain loop
    generate     text from 1.1 B parameters, and from 124 M, alone and 32 at once; beside transformers, gpt-fast
    wikitext     the recipes for WikiText-2 (--recipe: one of them) beside our 5-gram model

Without a part: cpu. All others but minutes mean a GPU; --small makes every part so small that it runs anywhere in
seconds, and its figures mean nothing. Peers are used as they are, from checkouts that options name; what is not
there is left out, and a line says so.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from pathlib import Path

from benchmarks.harness import DATA
from benchmarks.neural import cpu, generate, gpt2, lstm, minutes, shakespeare, wikitext
from benchmarks.neural.lab import Lab
from chainrule.errors import ChainruleError
from chainrule.settings import split_words
from chainrule.system.devices import choose_device

PARTS = {
    "cpu": cpu.run,
    "minutes": minutes.run,
    "shakespeare": shakespeare.run,
    "gpt2": gpt2.run,
    "lstm": lstm.run,
    "wikitext": wikitext.run,
    # gpt-fast changes how everything after it is compiled
    "generate": generate.run,
}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks neural",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [default: cpu]")
    parser.add_argument("--device", default="auto", help="torch's name of the device [default: auto; cpu: the CPU]")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the texts")
    parser.add_argument("--nanogpt", type=Path, default=_folder("NANOGPT"), help="a checkout of nanoGPT")
    parser.add_argument("--gpt-fast", type=Path, default=_folder("GPT_FAST"), help="a checkout of gpt-fast")
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    parser.add_argument("--steps", type=int, help="cpu, gpt2: so many steps of training")
    parser.add_argument("--target", type=float, default=1.458, help="shakespeare: the loss to reach [1.458]")
    parser.add_argument("--recipe", action="append", default=[], help="wikitext: this recipe only; repeatable")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="another setting of ours; repeatable"
    )
    options = parser.parse_args(arguments)
    for part in options.parts:
        if part not in PARTS:
            parser.error(f"there is no part {part!r}; there are: {', '.join(PARTS)}")
    try:
        settings = split_words(options.set)
        with tempfile.TemporaryDirectory(prefix="chainrule-benchmark-") as folder:
            lab = Lab(Path(folder), options.data, choose_device(options.device), options.small, settings, options)
            for name, part in PARTS.items():
                if name in (options.parts or ["cpu"]):
                    part(lab)
    except ChainruleError as error:
        raise SystemExit(f"error: {error}") from error


def _folder(peer: str) -> Path | None:
    """Where a checkout is, by an environment variable."""
    named = os.environ.get(f"CHAINRULE_{peer}")
    return Path(named) if named else None
