"""A Transformer of 124 M parameters, 1,024 tokens of context: tokens per second of training, and loss per token."""

from __future__ import annotations

import gzip
from itertools import islice
from pathlib import Path
from typing import Any

import recipes

from benchmarks.harness import show
from benchmarks.neural.lab import Lab, Texts, ratio
from benchmarks.neural.nanogpt import NanoGPT, Plan
from chainrule.neural.designs import padded_size
from chainrule.text.corpus import Corpus
from chainrule.tokens.base import Tokenizer
from chainrule.tokens.registry import train_tokenizer
from chainrule.tokens.subword import SubwordTokenizer, byte_level
from chainrule.tokens.vocabulary import Limit

ROWS = (32, 64)
"""Batches that nanoGPT may choose from."""
WARM_UP, TIMED = 5, 40
LINES = 100_000
"""Of the text, where speed is all that is asked for."""


def run(lab: Lab) -> None:
    texts = _texts(lab)
    print(f"{texts.train.tokens:,} tokens, {texts.tokenizer.vocab_size:,} different", flush=True)
    checkout = lab.peer("nanoGPT")
    theirs: float | None = None
    rows_of_theirs = lab.pick(ROWS[-1], 4)
    if checkout is not None:
        theirs, rows_of_theirs = _best_of_theirs(lab, checkout, texts)
    rows = []
    for name, design in designs(lab).items():
        trained = lab.train("transformer", texts, {**design, "steps": lab.pick(300, 4), "validate_every": 300})
        millions = f"{trained.parameters / 1e6:,.1f}"
        rows.append([name, millions, f"{trained.rate:,.0f}", f"{trained.startup:.0f}", ratio(trained.rate, theirs)])
    if theirs is not None:
        rows.append([f"nanoGPT, {rows_of_theirs} rows", "", f"{theirs:,.0f}", "", ""])
    show("training", ["side", "M parameters", "tokens/s", "s before it", "ours is"], rows)
    if lab.options.loss:
        _losses(lab, checkout, texts, rows_of_theirs)


def designs(lab: Lab) -> dict[str, dict[str, Any]]:
    """Ours: the recipe, and nanoGPT's design in bfloat16."""
    recipe = {key: value for key, value in recipes.find("gpt2").settings.items() if key != "epochs"}
    same = {"preset": "gpt2", "bias": False, "heads": 12, "precision": "bfloat16", "optimiser": "adamw"}
    tiny = {"layers": 1, "width": 24, "window": 16, "batch": 64, "compile": "no", "precision": "float32"}
    small = lab.pick({}, tiny)
    return {
        "chainrule, fast": {**recipe, **small},
        "chainrule, the same design": {**recipe, **same, "learning_rate": 6e-4, **small},
    }


def _plan(lab: Lab, rows: int, steps: int) -> Plan:
    return Plan(
        layers=lab.pick(12, 1),
        heads=12,
        width=lab.pick(768, 24),
        context=lab.pick(1024, 16),
        rows=rows,
        learning_rate=6e-4,
        iterations=steps,
        warmup=max(1, steps // 50),
        beta2=0.95,
    )


def _best_of_theirs(lab: Lab, checkout: Path, texts: Texts) -> tuple[float, int]:
    """Tokens per second with the batch that suits it best, and that batch."""
    timed = lab.pick(TIMED, 2)

    def rate(rows: int) -> float:
        peer = _theirs(lab, checkout, texts, _plan(lab, rows, 10_000))
        peer.steps(lab.pick(WARM_UP, 1))
        found = peer.plan.tokens * timed / lab.seconds(lambda: peer.steps(timed))
        print(f"nanoGPT, {rows} rows: {found:,.0f} tokens/s", flush=True)
        return found

    return max((rate(rows), rows) for rows in lab.pick(ROWS, (4,)))


def _theirs(lab: Lab, checkout: Path, texts: Texts, plan: Plan) -> NanoGPT:
    return NanoGPT(lab, checkout, plan, texts.train.ids, padded_size(texts.tokenizer.vocab_size))


def _losses(lab: Lab, checkout: Path | None, texts: Texts, rows: int) -> None:
    """The held-out loss on the way, after as many tokens."""
    plan = _plan(lab, rows, 0)
    steps = lab.options.steps or lab.pick(texts.train.tokens // plan.tokens, 4)
    every = max(1, steps // 4)
    columns: dict[str, list[float]] = {}
    for name, design in designs(lab).items():
        settings = {**design, "batch": plan.tokens, "steps": steps, "validate_every": every}
        trained = lab.train("transformer", texts, settings, validate=True)
        columns[name] = [loss for _, loss in trained.validations]
    if checkout is not None:
        peer = _theirs(lab, checkout, texts, _plan(lab, rows, steps))
        losses = columns["nanoGPT"] = []
        while peer.done < steps:
            peer.steps(min(every, steps - peer.done))
            losses.append(peer.loss(texts.valid.ids))
    seen = [min(every * (number + 1), steps) * plan.tokens for number in range(len(next(iter(columns.values()))))]
    table = [[f"{tokens:,}", *(f"{column[i]:.4f}" for column in columns.values())] for i, tokens in enumerate(seen)]
    show("held-out nats a token", ["tokens seen", *columns], table)


def _texts(lab: Lab) -> Texts:
    """The text in GPT-2's subwords, or in as many of its own."""
    packed = lab.text("simplewiki/train.txt.gz")
    lines = lab.pick(None if lab.options.loss else LINES, 200)
    path = lab.folder / "simplewiki.txt"
    with gzip.open(packed) as source, path.open("wb") as target:
        target.writelines(islice(source, lines))
    corpus, valid = Corpus.open(path), Corpus.open(lab.text("simplewiki/valid.txt"))
    tokenizer = gpt2_tokenizer(lab.data / "gpt2-vocab") or train_tokenizer(
        "bpe", corpus, Limit(top=lab.pick(50_257, 300))
    )
    return lab.encode(tokenizer, corpus, valid)


def gpt2_tokenizer(folder: Path) -> Tokenizer | None:
    """GPT-2's own, from the files it is published as, if they are there."""
    from tokenizers import Tokenizer as Library
    from tokenizers import decoders, models

    names = [folder / name for name in ("encoder.json", "vocab.bpe")]
    if not all(path.exists() for path in names):
        return None
    library = Library(models.BPE.from_file(*map(str, names)))
    library.pre_tokenizer, library.decoder = byte_level(), decoders.ByteLevel()
    return SubwordTokenizer("bpe", library.to_str())
