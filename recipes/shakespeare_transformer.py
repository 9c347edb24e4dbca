"""Tiny Shakespeare, characters: the size of nanoGPT's model for it, in the design that trains fastest."""

from __future__ import annotations

import chainrule as cr
from recipes import Recipe


def recipe() -> Recipe:
    """Return the recipe."""
    return Recipe(
        kind="transformer",
        train="tinyshakespeare/input.txt",
        tokenizer=cr.TokenizerChoice("char"),
        reaches="1.439 to 1.451 nats a character of the last tenth of Tiny Shakespeare, with 10.6 M parameters",
        settings={
            "layers": 6,
            "width": 384,
            "heads": 6,
            "window": 256,
            "slide": 0.25,
            "tied": True,
            "dropout": 0.2,
            "optimiser": "muon",
            "batch": 64 * 256,
            "steps": 900,
            "validate_every": 50,
        },
    )
