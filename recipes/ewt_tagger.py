"""UD English EWT, parts of speech: an LSTM in both directions with the spelling of words, in five minutes."""

from __future__ import annotations

from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="tagger",
        train="ud-english-ewt/en_ewt-ud-train.conllu",
        valid="ud-english-ewt/en_ewt-ud-dev.conllu",
        test="ud-english-ewt/en_ewt-ud-test.conllu",
        reaches="94.7 % of UD English EWT's test tags in 4 minutes on two cores; most frequent tags: 86.2 %",
        context="line",
        settings={
            "cell": "lstm",
            "characters": "cnn",
            "layers": 1,
            "width": 192,
            "embedding": 96,
            "spelling": 64,
            "dropout": 0.33,
            "word_dropout": 0.25,
            "batch": 512,
            "optimiser": "adamw",
            "learning_rate": 0.0035,
            "schedule": "linear",
            "average": "ema",
            "minutes": 4.0,
        },
    )
