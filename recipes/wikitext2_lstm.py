"""WikiText-2, words: three LSTM layers, regularised as in "Regularizing and optimizing LSTM language models"."""

from __future__ import annotations

from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="lstm",
        train="wikitext-2/train.txt",
        valid="wikitext-2/valid.txt",
        test="wikitext-2/test.txt",
        reaches="perplexity 64.9 on WikiText-2's test text, in 8.4 minutes on one H200",
        settings={
            "embedding": 400,
            "hidden": 1152,
            "layers": 3,
            "input_dropout": 0.6,
            "hidden_dropout": 0.2,
            "output_dropout": 0.4,
            "embedding_dropout": 0.1,
            "weight_dropout": 0.5,
            "alpha": 3,
            "beta": 2,
            "batch": 104 * 72,
            "length": 72,
            "compile": "no",
            "learning_rate": 5e-3,
            "beta1": 0.75,
            "beta2": 0.99,
            "clip": 0.1,
            "weight_decay": 0.1,
            "schedule": "cosine",
            "warmup": 0.25,
            "validate_every": 1450,
            "minutes": 8.4,
        },
    )
