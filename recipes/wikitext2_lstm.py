"""WikiText-2, words: three LSTM layers, regularised as in "Regularizing and optimizing LSTM language models"."""

from __future__ import annotations

from recipes import Recipe


def recipe() -> Recipe:
    """The run."""
    return Recipe(
        kind="lstm",
        train="wikitext-2/train.txt",
        valid="wikitext-2/valid.txt",
        test="wikitext-2/test.txt",
        reaches="WikiText-2's test text with three layers of gates, in 9 minutes on a GPU",
        settings={
            "embedding": 400,
            "hidden": 1152,
            "layers": 3,
            "input_dropout": 0.5,
            "hidden_dropout": 0.25,
            "output_dropout": 0.4,
            "embedding_dropout": 0.1,
            "weight_dropout": 0.3,
            "alpha": 2,
            "beta": 1,
            "batch": 5600,
            "length": 70,
            "compile": "no",
            "learning_rate": 3e-3,
            "weight_decay": 0.02,
            "schedule": "linear",
            "minutes": 9,
        },
    )
