"""Mixtures on WikiText-2: `python -m benchmarks mixtures [--lstm DIR] [--ngram DIR] [options]`.

Each row is the perplexity of a mixture of the LSTM, the 5-gram model and caches on the test text, with weights
tuned on the validation text. The last rows use dynamic evaluation, with a rate and a decay tuned on the first part
of the validation text. Without --lstm and --ngram the models are trained: the LSTM by the recipe wikitext2_lstm (in
less time with --minutes), the 5-gram model in seconds, with the LSTM's tokenizer. `--save DIR` saves the mixtures.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import recipes

import chainrule as cr
from benchmarks.harness import DATA, existing, exit_on_error, new_parser, show
from chainrule.cli.output import terminal_progress
from chainrule.mixtures.mixture import Mixture

RATES = (3e-5, 1e-4, 3e-4, 1e-3)
DECAYS = (1e-3, 1e-2)


def main(arguments: list[str]) -> None:
    parser = new_parser("mixtures", __doc__)
    parser.add_argument("--data", type=Path, default=DATA, help="the folder that has wikitext-2")
    parser.add_argument("--device", default="auto", help="cpu, cuda, ... [default: an accelerator if there is one]")
    parser.add_argument("--lstm", type=Path, help="a network's folder, with stream context [default: train one]")
    parser.add_argument("--ngram", type=Path, help="the folder of an n-gram model [default: train one]")
    parser.add_argument("--minutes", type=float, help="the time to train the LSTM [default: as the recipe says]")
    parser.add_argument("--order", type=int, default=5, help="of the n-gram model [default: 5]")
    parser.add_argument("--cache", type=int, default=1000, help="tokens in the unigram cache [default: 1000]")
    parser.add_argument("--continuous-cache", type=int, default=2000, help="tokens in the other [default: 2000]")
    parser.add_argument("--tokens", type=int, default=30_000, help="validation tokens to choose rates on")
    parser.add_argument("--method", choices=("rms", "sgd"), default="rms")
    parser.add_argument("--rates", type=float, nargs="+", default=RATES, help="rates of dynamic evaluation to try")
    parser.add_argument("--decays", type=float, nargs="+", default=DECAYS, help="decays to try")
    parser.add_argument("--segment", type=int, default=70, help="tokens between two steps [default: 70]")
    parser.add_argument("--save", type=Path, help="a folder to write the mixtures to")
    options = parser.parse_args(arguments)
    with exit_on_error():
        _measure(options)


def _measure(options: argparse.Namespace) -> None:
    folder = options.data / "wikitext-2"
    train, valid, test = (existing(folder / f"{name}.txt") for name in ("train", "valid", "test"))
    lstm, ngram = _models(options, train, valid)
    rows: list[list[str]] = []

    def add(name: str, lm: cr.LanguageModel, began: float, dynamic: cr.mixtures.Dynamic | None = None) -> None:
        """Measure a model and print its row at once; the table at the end has all rows."""
        tuned = time.perf_counter() - began
        measured = cr.evaluate(lm, test, dynamic=dynamic, progress=terminal_progress())
        weights, held_out = "", ""
        if isinstance(lm, Mixture):
            weights = " ".join(f"{weight:.3f}" for weight in lm.metrics["weights"])
            held_out = f"{lm.metrics['held_out_perplexity']:.2f}"
            if options.save is not None:
                lm.save(options.save / name.replace(", ", "-").replace(" ", "-"), overwrite=True)
        figures = f"{measured.perplexity:.2f}", held_out, weights, f"{tuned:.1f}", f"{measured.seconds:.1f}"
        rows.append([name, *figures])
        print("  ".join(rows[-1]), flush=True)

    add("LSTM", lstm, time.perf_counter())
    add(f"{options.order}-gram", ngram, time.perf_counter())
    caches = {"cache": options.cache, "continuous_cache": options.continuous_cache}
    mixtures: dict[str, tuple[list[cr.LanguageModel], dict[str, Any]]] = {
        "n-gram, unigram cache": ([ngram], {"cache": options.cache}),
        "LSTM, unigram cache": ([lstm], {"cache": options.cache}),
        "LSTM, continuous cache": ([lstm], {"continuous_cache": options.continuous_cache}),
        "both": ([lstm, ngram], {}),
        "both, by match": ([lstm, ngram], {"by": "match"}),
        "both, by entropy": ([lstm, ngram], {"by": "entropy"}),
        "both, caches": ([lstm, ngram], caches),
        "both, caches, by match": ([lstm, ngram], {**caches, "by": "match"}),
    }
    for name, (models, settings) in mixtures.items():
        began = time.perf_counter()
        add(name, cr.mix(models, valid, **settings), began)
    began = time.perf_counter()
    dynamic = _best_dynamic(lstm, valid, options)
    add("LSTM, dynamic", lstm, began, dynamic)
    began = time.perf_counter()
    add("both, caches, dynamic", cr.mix([lstm, ngram], valid, dynamic=dynamic, **caches), began, dynamic)
    headings = ["model", "test perplexity", "valid", "weights", "tuning, s", "scoring, s"]
    show("WikiText-2", headings, rows)


def _models(options: argparse.Namespace, train: Path, valid: Path) -> tuple[cr.LanguageModel, cr.LanguageModel]:
    if options.lstm is not None:
        lstm = cr.load(options.lstm, device=options.device)
    else:
        settings = {} if options.minutes is None else {"minutes": options.minutes}
        with tempfile.TemporaryDirectory(prefix="chainrule-mixtures-") as folder:
            lstm, _ = recipes.run(
                recipes.find("wikitext2_lstm"),
                options.data,
                device=options.device,
                settings=settings,
                run_folder=Path(folder) / "run",
                progress=terminal_progress(),
            )
    if options.ngram is not None:
        ngram = cr.load(options.ngram)
    else:
        same: dict[str, Any] = {"tokenizer": lstm.tokenizer, "context": lstm.context}
        ngram = cr.train("ngram", train, valid=valid, order=options.order, **same)
    return lstm, ngram


def _best_dynamic(lstm: cr.LanguageModel, valid: Path, options: argparse.Namespace) -> cr.mixtures.Dynamic:
    """Return the rate and the decay that make the first part of the validation text most likely."""
    lines, tokens = [], 0
    for line in valid.read_text(encoding="utf-8").splitlines():
        if tokens >= options.tokens:
            break
        lines.append(line)
        tokens += len(lstm.tokenizer.encode(line)) + 1
    text, first = "\n".join(lines) + "\n", cr.mixtures.Dynamic(segment=options.segment, method=options.method)
    print(f"without: {cr.evaluate(lstm, text).perplexity:.2f} on {tokens:,} validation tokens", flush=True)
    found = {}
    for rate in options.rates:
        for decay in options.decays:
            tried = replace(first, rate=rate, decay=decay)
            measured = cr.evaluate(lstm, text, dynamic=tried)
            found[tried] = measured.perplexity
            print(f"{rate=:g} {decay=:g}: {measured.perplexity:.2f}, {measured.seconds:.1f} s", flush=True)
    return min(found, key=lambda tried: found[tried])
