"""Models for a reader who has none yet: trained when they are needed, in a second or two."""

from __future__ import annotations

from pathlib import Path

from chainrule.runs.prepare import TokenizerChoice
from chainrule.runs.train import train
from chainrule.text.corpus import Corpus

TOY = ["i love cats", "i love dogs", "cats chase mice"]
"""The small corpus of the first lessons."""


def write_example_models(folder: Path) -> dict[str, Path]:
    """Train the models and save them in a folder; return where each is, by its name.

    `shakespeare` writes, and its byte-pair tokens have merges to watch; `toy` is the table of counts of lesson 3.
    """
    text = Corpus.open("builtin:shakespeare")
    made = {
        "shakespeare": train(
            "ngram", text, order=4, tokenizer=TokenizerChoice("bpe", vocab_size=2000), context="stream"
        ),
        "toy": train("ngram", TOY, order=3, smoothing="mle", counts=True, tokenizer="word"),
    }
    for name, model in made.items():
        model.save(folder / name)
    return {name: folder / name for name in made}
