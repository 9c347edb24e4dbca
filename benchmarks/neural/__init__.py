"""Networks beside their peers: `python -m benchmarks neural [PART ...] [options]`.

    cpu          training a tiny Transformer on a CPU, and its loss after equally many tokens; beside nanoGPT
    minutes      the losses of our default networks on a CPU after the time of nanoGPT's setting for a CPU
    shakespeare  seconds until a validation loss on Tiny Shakespeare, and the best one; beside nanoGPT
    gpt2         training a Transformer of 124 M parameters; its loss after equally many tokens; beside nanoGPT
    lstm         training the three layers of AWD-LSTM; beside nn.LSTM in a plain loop
    wikitext     the recipes for WikiText-2 (--recipe: one of them) beside our 5-gram model

Without a part: cpu. All others except minutes need a GPU; --small makes every part so small that it runs anywhere
in seconds, with figures that mean nothing. Options name the checkouts of peers; a peer without one is left out, and
a line says so.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from benchmarks.harness import DATA, TEMPORARY, chosen_parts, exit_on_error, new_parser
from benchmarks.neural import cpu, gpt2, lstm, shakespeare, wikitext
from benchmarks.neural.lab import Lab
from chainrule.settings import split_words
from chainrule.system.devices import choose_device

PARTS = {
    "cpu": cpu.run,
    "minutes": cpu.run_minutes,
    "shakespeare": shakespeare.run,
    "gpt2": gpt2.run,
    "lstm": lstm.run,
    "wikitext": wikitext.run,
}


def main(arguments: list[str]) -> None:
    parser = new_parser("neural", __doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{', '.join(PARTS)} [default: cpu]")
    parser.add_argument("--device", default="auto", help="torch's name of the device [default: auto; cpu: the CPU]")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of the texts")
    parser.add_argument(
        "--nanogpt", type=Path, default=os.environ.get("CHAINRULE_NANOGPT"), help="a checkout of nanoGPT"
    )
    parser.add_argument("--small", action="store_true", help="very small, to see that it runs")
    parser.add_argument("--steps", type=int, help="cpu, gpt2: so many steps of training")
    parser.add_argument("--target", type=float, default=1.458, help="shakespeare: the loss to reach [1.458]")
    parser.add_argument("--recipe", action="append", default=[], help="wikitext: this recipe only; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="of ours; repeatable")
    options = parser.parse_args(arguments)
    parts = chosen_parts(parser, options.parts, PARTS, default=["cpu"])
    with exit_on_error(), tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        settings, device = split_words(options.set), choose_device(options.device)
        lab = Lab(Path(folder), options.data, device, options.small, settings, options)
        for part in parts:
            part(lab)
