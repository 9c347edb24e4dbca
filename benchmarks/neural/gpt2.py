"""A Transformer of 124 M parameters, 1,024 tokens of context: tokens per second of training, and loss per token."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import recipes

from benchmarks.harness import open_text, show
from benchmarks.neural.lab import Lab, Texts, ratio
from benchmarks.neural.nanogpt import NanoGPT, Plan
from chainrule.networks.config import padded_size
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_tokenizer
from chainrule.tokens.subwords.library import byte_level
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit

ROWS, CONTEXT, STEPS = 64, 1024, 300
LOOKS = 4
"""How often the held-out loss is measured, the last time at the end; the time of that does not count."""
LINES = 200_000
"""The lines of the text to train on."""


class Training(NamedTuple):
    """The figures of a side."""

    rate: float
    """Tokens per second, without the first quarter, which includes the warm-up."""
    startup: float
    losses: list[float]
    """Held-out nats a token, at each measurement."""


def run(lab: Lab) -> None:
    texts, steps = _texts(lab), lab.options.steps or lab.pick(STEPS, 4)
    print(f"{texts.train.tokens:,} tokens, {texts.tokenizer.vocab_size:,} different", flush=True)
    sides = {name: _train_ours(lab, name, design, texts, steps) for name, design in designs(lab).items()}
    checkout = lab.peer("nanoGPT")
    theirs = None if checkout is None else _train_theirs(lab, checkout, texts, steps)
    if theirs is not None:
        sides["nanoGPT"] = theirs
    rows = []
    for name, side in sides.items():
        compared = ratio(side.rate, theirs.rate) if theirs is not None and side is not theirs else ""
        rows.append([name, f"{side.rate:,.0f}", f"{side.startup:.0f}", compared])
    show("training", ["side", "tokens/s", "s before it", "ours is"], rows)
    batch = lab.pick(ROWS * CONTEXT, 64)
    table = [
        [f"{(look + 1) * steps // LOOKS * batch:,}", *(f"{side.losses[look]:.4f}" for side in sides.values())]
        for look in range(LOOKS)
    ]
    show("held-out nats a token", ["tokens seen", *sides], table)


def designs(lab: Lab) -> dict[str, dict[str, Any]]:
    """Return our designs: the recipe, the recipe by AdamW, and nanoGPT's design."""
    recipe = {key: value for key, value in recipes.find("gpt2").settings.items() if key != "epochs"}
    same = {"preset": "gpt2", "bias": False, "heads": 12, "precision": "bfloat16", "learning_rate": 6e-4}
    tiny = {"layers": 1, "width": 24, "window": 16, "batch": 64, "compile": "no", "precision": "float32"}
    small = lab.pick({"batch": ROWS * CONTEXT}, tiny)
    return {
        "chainrule, fast": {**recipe, **small},
        "chainrule, fast, AdamW": {**recipe, "optimiser": "adamw", "learning_rate": 1.5e-3, **small},
        "chainrule, the same design": {**recipe, "optimiser": "adamw", **same, **small},
    }


def _train_ours(lab: Lab, name: str, design: dict[str, Any], texts: Texts, steps: int) -> Training:
    settings = {**design, "steps": steps, "validate_every": steps // LOOKS}
    trained = lab.train("transformer", texts, settings, validate=True)
    found = Training(trained.rate, trained.startup, [loss for _, loss in trained.validations])
    figures = f"{found.rate:,.0f} tokens/s, {found.losses[-1]:.4f} nats"
    print(f"{name}, {trained.parameters / 1e6:.1f} M parameters: {figures}", flush=True)
    return found


def _train_theirs(lab: Lab, checkout: Path, texts: Texts, steps: int) -> Training:
    plan = Plan(
        layers=lab.pick(12, 1),
        heads=12,
        width=lab.pick(768, 24),
        context=lab.pick(CONTEXT, 16),
        rows=lab.pick(ROWS, 4),
        learning_rate=6e-4,
        iterations=steps,
        warmup=max(1, steps // 50),
        beta2=0.95,
    )
    vocab_size = padded_size(texts.tokenizer.vocab_size)
    peer, startup = NanoGPT.compiled(lab, checkout, plan, texts.train.ids, vocab_size)
    seconds, losses = [], []
    for look in range(LOOKS):
        seconds.append(lab.seconds(lambda: peer.steps((look + 1) * steps // LOOKS - peer.done)))  # noqa: B023
        losses.append(peer.loss(texts.valid.ids))
    return Training(plan.tokens * (steps - steps // LOOKS) / sum(seconds[1:]), startup, losses)


def _texts(lab: Lab) -> Texts:
    """Return the text in GPT-2's subwords, or in equally many that are trained on the text."""
    path = lab.folder / "simplewiki.txt"
    with open_text(lab.text("simplewiki/train.txt.gz")) as source, path.open("wb") as target:
        target.writelines(islice(source, lab.pick(LINES, 200)))
    corpus, valid = Corpus.open(path), Corpus.open(lab.text("simplewiki/valid.txt"))
    limit = Limit(top=lab.pick(50_257, 300))
    tokenizer = gpt2_tokenizer(lab.data / "gpt2-vocab") or train_tokenizer("bpe", corpus, limit)
    return lab.encode(tokenizer, corpus, valid)


def gpt2_tokenizer(folder: Path) -> Tokenizer | None:
    """Return GPT-2's tokenizer from its published files; None if they are missing."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models

    names = [folder / name for name in ("encoder.json", "vocab.bpe")]
    if not all(path.exists() for path in names):
        return None
    library = Library(models.BPE.from_file(*map(str, names)))
    library.pre_tokenizer, library.decoder = byte_level(), decoders.ByteLevel()
    return SubwordTokenizer("bpe", library.to_str())
