"""Toy tasks for encoder-decoders, and models with random weights."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import chainrule as cr
from chainrule.seq2seq.contract import ConditionalModel
from chainrule.seq2seq.encoder_decoder_model import EncoderDecoderModel
from toy_models import with_random_weights

LETTERS = "abcdef"
TASKS: dict[str, Callable[[list[str]], list[str]]] = {
    "copy": lambda words: words,
    "reverse": lambda words: words[::-1],
    "sort": sorted,
}
DESIGNS: dict[str, dict[str, Any]] = {
    "no attention": {"cell": "elman", "attention": "none"},
    "one direction": {"cell": "lstm", "attention": "none", "bidirectional": False},
    "additive": {"cell": "gru", "attention": "additive", "layers": 2},
    "dot": {"cell": "lstm", "attention": "dot", "layers": 2},
    "general": {"cell": "elman", "attention": "general"},
    "scaled": {"cell": "gru", "attention": "scaled", "shared": False},
    "feeding": {"cell": "lstm", "attention": "general", "feeding": True},
    "transformer": {"cell": "transformer", "window": 5},
    "lecture": {"cell": "transformer", "preset": "lecture", "window": 6, "shared": False},
    "bart": {"cell": "transformer", "preset": "bart", "window": 6, "source_start": True},
    "alibi": {"cell": "transformer", "positions": "alibi", "layers": 2, "window": 5},
}


def pairs_of(task: str, number: int, seed: int = 0, longest: int = 6) -> list[tuple[str, str]]:
    """Pairs of a toy task: words of one letter, and what the task makes of them."""
    rng = random.Random(seed)
    sources = [[rng.choice(LETTERS) for _ in range(rng.randint(1, longest))] for _ in range(number)]
    return [(" ".join(words), " ".join(TASKS[task](words))) for words in sources]


def trained(pairs: list[tuple[str, str]], **settings: Any) -> ConditionalModel:
    """A small model of pairs, without what keeps a larger one from learning them by heart."""
    plain = {"layers": 1, "width": 32, "heads": 2, "dropout": 0, "token_dropout": 0, "label_smoothing": 0}
    chosen = {**plain, "batch": 512, "average": "none", "schedule": "linear", **settings}
    lm = cr.train("seq2seq", pairs, valid=pairs[:20], tokenizer="word", **chosen)
    assert isinstance(lm, ConditionalModel)
    return lm


def made(design: str, **settings: Any) -> EncoderDecoderModel:
    """A network of random weights, large enough to say something."""
    few = {"layers": 1, "width": 16, "heads": 2, "steps": 1, "batch": 64}
    lm = trained(pairs_of("copy", 40), **{**few, **DESIGNS[design], **settings})
    assert isinstance(lm, EncoderDecoderModel)
    return with_random_weights(lm)  # type: ignore[no-any-return]
