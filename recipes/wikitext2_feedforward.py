"""WikiText-2, words: a feed-forward network with seven words of context."""

from __future__ import annotations

from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="feedforward",
        train="wikitext-2/train.txt",
        valid="wikitext-2/valid.txt",
        test="wikitext-2/test.txt",
        reaches="perplexity 143.4 on WikiText-2's test text, with the last seven words as context",
        settings={
            "order": 8,
            "embedding": 400,
            "hidden": 1024,
            "layers": 2,
            "tied": True,
            "dropout": 0.5,
            "token_dropout": 0.1,
            "batch": 8192,
            "length": 64,
            "compile": "no",
            "learning_rate": 1e-3,
            "weight_decay": 0.05,
            "schedule": "linear",
            "average": "ema",
            "steps": 12_000,
        },
    )
