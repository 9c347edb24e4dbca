"""A small masked model of a toy language, in which every animal has a sound of its own."""

from __future__ import annotations

import random

import pytest
from tests.cli.conftest import fails, plain_terminal, run  # noqa: F401 (fixtures)

import chainrule as cr
from chainrule.masked.encoder_model import EncoderModel

SOUNDS = {"cat": "meows", "dog": "barks", "bird": "sings", "fish": "swims"}
SMALL = {"width": 48, "layers": 2, "heads": 2, "window": 16, "batch": 512, "dropout": 0.0, "average": "none"}


def toy_lines(count: int, seed: int = 1) -> list[str]:
    draw = random.Random(seed)
    animals = [draw.choice(list(SOUNDS)) for _ in range(count)]
    return [f"the {animal} {SOUNDS[animal]} {draw.choice(['home', 'outside', 'today'])}" for animal in animals]


@pytest.fixture(scope="session")
def toy() -> EncoderModel:
    model = cr.train("masked", toy_lines(1500), tokenizer="word", steps=60, **SMALL)
    assert isinstance(model, EncoderModel)
    return model
