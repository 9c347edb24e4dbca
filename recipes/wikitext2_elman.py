"""WikiText-2, words: one recurrent layer without gates."""

from __future__ import annotations

from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="elman",
        train="wikitext-2/train.txt",
        valid="wikitext-2/valid.txt",
        test="wikitext-2/test.txt",
        reaches="perplexity 125.5 on WikiText-2's test text",
        settings={
            "embedding": 400,
            "hidden": 1152,
            "layers": 1,
            "input_dropout": 0.5,
            "output_dropout": 0.5,
            "batch": 5600,
            "length": 35,
            "compile": "no",
            "learning_rate": 1e-3,
            "weight_decay": 0.1,
            "schedule": "linear",
            "steps": 11_700,
        },
    )
