"""A Transformer of GPT-2's smallest size, on the text of an encyclopedia."""

from __future__ import annotations

import chainrule as cr
from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="transformer",
        train="simplewiki/train.txt.gz",
        valid="simplewiki/valid.txt",
        tokenizer=cr.TokenizerChoice("bpe", vocab_size=50257),
        reaches="Simple English Wikipedia's held-out text in subwords; 614,000 tokens/s of training on one H200",
        settings={
            "layers": 12,
            "width": 768,
            "heads": 6,
            "window": 1024,
            "tied": True,
            "optimiser": "muon",
            "precision": "float8",
            "compile": "yes",
            "batch": 64 * 1024,
            "epochs": 1,
        },
    )
