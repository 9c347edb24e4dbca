"""Models for tests: passing every call on, computing from all that was read, networks of random weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from chainrule.arrays import Array
from chainrule.contract.chain import PrefixModel
from chainrule.contract.lm import LanguageModel, State


class Delegate(LanguageModel):
    """A model without fast paths, which passes the five methods on to another model."""

    kind, settings = "delegate", None

    def __init__(self, inner: Any) -> None:
        self.inner, self.tokenizer, self.context = inner, inner.tokenizer, getattr(inner, "context", "line")

    def start(self, batch_size: int) -> State:
        return self.inner.start(batch_size)

    def extend(self, state: State, ids_BT: Array) -> State:
        return self.inner.extend(state, ids_BT)

    def next_log_probs(self, state: State) -> Array:
        return self.inner.next_log_probs(state)

    def score(self, ids_BT: Array, state: State | None = None) -> Array:
        return self.inner.score(ids_BT, state)

    def tensors(self) -> Mapping[str, np.ndarray]:
        return {}

    def on(self, device: str, dtype: str = "float32") -> LanguageModel:
        return self


class OverPrefixes(PrefixModel):
    """A model of the tests that computes from all ids that a row has read."""

    kind, context = "prefixes", "line"

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer


@torch.no_grad()
def with_random_weights(model: Any) -> Any:
    """Return a model whose network's weights are so large that its probabilities differ."""
    generator = torch.Generator().manual_seed(1)
    for weight in model.network.parameters():
        weight.copy_(torch.randn(weight.shape, generator=generator) * 0.3)
    return model
