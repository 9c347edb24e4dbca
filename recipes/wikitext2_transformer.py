"""WikiText-2, words: six small blocks with much dropout, because the text is small."""

from __future__ import annotations

from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="transformer",
        train="wikitext-2/train.txt",
        valid="wikitext-2/valid.txt",
        test="wikitext-2/test.txt",
        reaches="perplexity 76.5 on WikiText-2's test text, with the last 192 words or more as context",
        settings={
            "layers": 6,
            "width": 512,
            "heads": 8,
            "window": 256,
            "slide": 0.25,
            "tied": True,
            "dropout": 0.4,
            "embedding_dropout": 0.4,
            "attention_dropout": 0.1,
            "hidden_dropout": 0.4,
            "token_dropout": 0.1,
            "batch": 8192,
            "learning_rate": 1e-3,
            "weight_decay": 0.3,
            "schedule": "linear",
            "average": "ema",
            "steps": 6900,
        },
    )
