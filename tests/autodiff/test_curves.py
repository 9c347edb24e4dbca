"""From the same start and the same batches, both engines learn the same: every loss, step by step, in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from chainrule.training.engines.tape_engine import TapeEngine
from chainrule.training.engines.torch_engine import TorchEngine
from chainrule.training.loop import train_network

from .twins import KINDS, data, settings_of, twins

OPTIMISERS = ("sgd", "momentum", "rmsprop", "adam", "muon", "adamw")
STEPS = 100
FEWER = 50
"""Enough for two engines to drift apart; to see that a network learns takes more."""


def curves(kind: str, context: Any, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    """The losses of all steps, of torch and of the tape."""
    values = {
        "steps": STEPS,
        "validate_every": 1,  # the history then has every step
        "batch": 9,
        "length": 3,
        "precision": "float32",  # no bfloat16: the network itself is float64
        "layers": 1,
        **more,
    }
    in_torch, on_tape = twins(kind, **values)
    settings, texts = settings_of(kind, **values), data(valid=None, context=context)
    torch.set_num_threads(1)
    expected = train_network(TorchEngine(in_torch, settings, "cpu"), settings, texts).state.history
    found = train_network(TapeEngine(on_tape, settings, np.random.default_rng(0)), settings, texts).state.history
    return np.array([step["loss"] for step in expected]), np.array([step["loss"] for step in found])


@pytest.mark.parametrize(  # an optimiser takes a gradient, whatever network it is of
    ("kind", "optimiser"), [(kind, "adamw") for kind in KINDS] + [("elman", name) for name in OPTIMISERS[:-1]]
)
def test_loss_curves_agree(kind: str, optimiser: str) -> None:
    expected, found = curves(kind, "stream", optimiser=optimiser)
    assert len(found) == STEPS
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
    # it does learn; in this text all depends on the last letter, of which a bag knows little
    assert found[-10:].mean() < (0.95 if kind == "bagofwords" else 0.9) * found[:10].mean()


@pytest.mark.parametrize(
    "more",
    [
        {"weight_decay": 0.05, "optimiser": "adam", "clip": 0.1, "schedule": "cosine", "tied": True},
        {"device_batch": 3, "learned_start": True, "clip": 0},
        {"vary_length": True, "optimiser": "sgd", "weight_decay": 0.05, "learning_rate": 0.2},
    ],
    ids=lambda more: " ".join(f"{key}={value}" for key, value in more.items()),
)
def test_engines_agree_with_other_settings(more: dict[str, Any]) -> None:
    expected, found = curves("elman", "stream", steps=FEWER, **more)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("design", ["lecture's", "gpt2", "llama", "alibi"])
def test_transformers_agree(design: str) -> None:
    """With decay, which reaches a tied table and no norm or bias, by micro-batches."""
    more = {"weight_decay": 0.05, "device_batch": 3, "schedule": "cosine", "clip": 0.5, "steps": FEWER}
    expected, found = curves(design, "stream", **more)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


def test_engines_agree_on_lines() -> None:
    expected, found = curves("lstm", "line", steps=FEWER)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)
