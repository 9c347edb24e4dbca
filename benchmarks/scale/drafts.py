"""Greedy text with drafts, and without: `python -m benchmarks scale drafts [options]`.

A Transformer of GPT-2's smallest size is trained on a text for some minutes, or loaded from a folder; n-gram models
are trained on the same text and tokens. Prompts are pieces of the training text and of held-out text. The
Transformer generates each text alone and then with each draft, one text at a time, in turns. The table has tokens
per second, the ratio to no drafts, tokens per step of the Transformer (accepted drafts and one of its own), and the
share of equal texts; in float32 all are equal, except for ties within rounding.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import DATA, TEMPORARY, exit_on_error, new_parser, open_text, show
from benchmarks.neural.gpt2 import gpt2_tokenizer
from chainrule.contract.lm import LanguageModel, prepare
from chainrule.decode.drafts import DraftSource
from chainrule.system.devices import choose_device

HELD_OUT = 0.02
PROMPT_TOKENS = 64


@dataclass(frozen=True)
class Side:
    """The figures of generation with one sort of drafts."""

    name: str
    rate: float
    """Tokens per second."""
    per_step: float
    same: float
    """The share of texts that are equal to those without drafts."""


def main(arguments: list[str]) -> None:
    options = _options(arguments)
    with exit_on_error(), tempfile.TemporaryDirectory(prefix=TEMPORARY) as folder:
        _run(options, Path(folder))


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = new_parser("scale drafts", __doc__)
    parser.add_argument("--device", default="auto", help="torch's name of the device [auto]")
    shakespeare = DATA / "tinyshakespeare" / "input.txt"
    parser.add_argument("--text", type=Path, default=shakespeare, help="a text, or its .gz")
    parser.add_argument("--lines", type=int, default=200_000, help="read no more lines of it [200,000]")
    parser.add_argument("--model", type=Path, help="the folder of a Transformer to load instead of training one")
    parser.add_argument("--keep", type=Path, help="a folder in which the trained Transformer is kept")
    parser.add_argument("--minutes", type=float, default=3.0, help="how long to train [3]")
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--window", type=int, default=1024)
    parser.add_argument("--batch", type=int, help="tokens of a training step [as the rule for settings says]")
    parser.add_argument("--vocab-size", type=int, help="learn so many subwords [GPT-2's own, where they are]")
    parser.add_argument("--dtypes", default="float32,bfloat16", help="precisions of generation [float32,bfloat16]")
    parser.add_argument("--draft-tokens", default="4,8,12", help="tokens drafted at once [4,8,12]")
    parser.add_argument("--tokens", type=int, default=256, help="tokens of a text [256]")
    parser.add_argument("--prompts", type=int, default=8, help="texts of each sort [8]")
    parser.add_argument("--order", type=int, default=5, help="of the n-gram model [5]")
    return parser.parse_args(arguments)


def _run(options: argparse.Namespace, folder: Path) -> None:
    device = choose_device(options.device)
    train, held_out = _texts(options, folder)
    lm = _transformer(options, train, device)
    parts: dict[str, Any] = {"tokenizer": lm.tokenizer, "context": "stream"}
    drafts: dict[str, tuple[DraftSource, ...]] = {"context": ("context",)}
    counts: tuple[tuple[str, str, dict[str, Any]], ...]
    counts = (f"{options.order}-gram", "ngram", {"order": options.order}), ("anygram", "anygram", {})
    for name, kind, settings in counts:
        began = time.perf_counter()
        counted = cr.train(kind, train, **parts, **settings)
        prepare(counted)
        print(f"{name} counted in {time.perf_counter() - began:.1f} s", flush=True)
        drafts[name] = (counted,)
        drafts[f"context, then {name}"] = ("context", counted)
    texts = {"training text": train, "held-out text": held_out}
    prompts = {sort: _prompts(lm, path, options.prompts) for sort, path in texts.items()}
    for dtype in options.dtypes.split(","):
        model = lm.on(device, dtype)
        for sort, some in prompts.items():
            sides = _sides(options, model, drafts, some)
            rows = [
                [s.name, f"{s.rate:,.0f}", f"{s.rate / sides[0].rate:.2f}x", f"{s.per_step:.2f}", f"{s.same:.0%}"]
                for s in sides
            ]
            title = f"greedy, one text at a time, {options.tokens} tokens, {dtype} on {device}, prompts of {sort}"
            show(title, ["drafts", "tokens/s", "ratio", "tokens a step", "same text"], rows)


def _sides(
    options: argparse.Namespace, lm: LanguageModel, drafts: dict[str, tuple[DraftSource, ...]], prompts: list[str]
) -> list[Side]:
    """Return the figures without drafts, and with each sort of drafts."""
    plain, rate, _ = _generate(options, lm, prompts, None)
    sides = [Side("none", rate, 1.0, 1.0)]
    for name, sources in drafts.items():
        for tokens in map(int, options.draft_tokens.split(",")):
            found, rate, per_step = _generate(options, lm, prompts, cr.decode.Draft(sources, tokens=tokens))
            same = statistics.mean(a == b for a, b in zip(found, plain, strict=True))
            sides.append(Side(f"{name}, {tokens}", rate, per_step, same))
    return sides


def _generate(
    options: argparse.Namespace, lm: LanguageModel, prompts: list[str], draft: cr.decode.Draft | None
) -> tuple[list[str], float, float]:
    """Return the texts, tokens per second and tokens per step; a first text, which compiles, does not count."""
    how: dict[str, Any] = {"max_tokens": options.tokens, "heal": False, "draft": draft}
    cr.generate_many(lm, prompts[:1], cr.Greedy(), **how)
    began = time.perf_counter()
    found = [cr.generate_many(lm, [prompt], cr.Greedy(), **how)[0] for prompt in prompts]
    seconds = time.perf_counter() - began
    tokens = sum(text.tokens for text in found)
    steps = sum(text.steps or text.tokens for text in found)
    return [text.text for text in found], tokens / seconds, tokens / max(steps, 1)


def _texts(options: argparse.Namespace, folder: Path) -> tuple[Path, Path]:
    """Write the text without its last part and the last part to files."""
    with open_text(options.text) as file:
        lines = list(islice(file, options.lines))
    cut = int(len(lines) * (1 - HELD_OUT))
    paths = folder / "train.txt", folder / "held-out.txt"
    for path, some in zip(paths, (lines[:cut], lines[cut:]), strict=True):
        path.write_bytes(b"".join(some))
    return paths


def _transformer(options: argparse.Namespace, train: Path, device: str) -> LanguageModel:
    if options.model is not None:
        return cr.load(options.model)
    tokenizer = None if options.vocab_size else gpt2_tokenizer(DATA / "gpt2-vocab")
    settings: dict[str, Any] = {
        "preset": "gpt2",
        "layers": options.layers,
        "width": options.width,
        "heads": max(options.width // 64, 1),
        "window": options.window,
        "minutes": options.minutes,
        **({} if options.batch is None else {"batch": options.batch}),
    }
    began = time.perf_counter()
    lm = cr.train(
        "transformer",
        train,
        tokenizer=tokenizer or cr.TokenizerChoice("bpe", vocab_size=options.vocab_size or 8192),
        context="stream",
        device=device,
        **settings,
    )
    known = {name: lm.metrics.get(name) for name in ("parameters", "steps", "tokens_seen", "validation_nats")}
    print(f"trained in {time.perf_counter() - began:.0f} s: {known}", flush=True)
    if options.keep is not None:
        lm.save(options.keep, overwrite=True)
    return lm


def _prompts(lm: LanguageModel, path: Path, count: int) -> list[str]:
    """Return pieces of a text with equally many tokens, from places that are evenly spread."""
    ids = lm.tokenizer.encode_lines(path.read_bytes())
    places = [len(ids) * number // count for number in range(count)]
    return [lm.tokenizer.decode(ids[place : place + PROMPT_TOKENS].tolist()) for place in places]
