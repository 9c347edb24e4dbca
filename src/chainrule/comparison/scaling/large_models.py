"""Published large language models as data: size, training text, operations, and Chinchilla's rule beside them.

The figures are rounded as the models' authors, or a lecture's table of them, give them.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from chainrule.comparison.scaling.law import FLOPS

TOKENS_PER_PARAMETER = 20.0
"""Chinchilla's rule (Hoffmann et al. 2022): for a given compute, the best network reads this number of
tokens for each parameter."""


@dataclass(frozen=True)
class LargeModel:
    """A model, with what is known of its size and its training text; None is not published."""

    name: str
    creators: str
    year: int
    tokens: float | None
    parameters: float
    is_published: bool = True
    """False if the size is a report of others, not of the creators."""

    @property
    def tokens_per_parameter(self) -> float | None:
        """D / N."""
        return None if self.tokens is None else self.tokens / self.parameters

    @property
    def flops(self) -> float | None:
        """The operations of its training, about 6 N D."""
        return None if self.tokens is None else FLOPS * self.parameters * self.tokens

    @property
    def best_parameters(self) -> float | None:
        """The size that the rule gives for the same operations: C = 6 N 20 N."""
        return None if self.flops is None else math.sqrt(self.flops / FLOPS / TOKENS_PER_PARAMETER)

    @property
    def enough_tokens(self) -> float:
        """The tokens that the rule asks for a network of this size: 20 N."""
        return TOKENS_PER_PARAMETER * self.parameters

    def to_json(self) -> dict[str, Any]:
        """Return the figures as plain values."""
        derived = ("tokens_per_parameter", "flops", "best_parameters", "enough_tokens")
        return asdict(self) | {name: getattr(self, name) for name in derived}


LARGE_MODELS = (
    LargeModel("GPT-2", "OpenAI", 2019, 10e9, 1.5e9),
    LargeModel("GPT-3", "OpenAI", 2020, 300e9, 175e9),
    LargeModel("PaLM", "Google", 2022, 780e9, 540e9),
    LargeModel("Chinchilla", "DeepMind", 2022, 1.4e12, 70e9),
    LargeModel("LaMDA", "Google", 2022, 1.56e12, 137e9),
    LargeModel("LLaMA", "Meta", 2023, 1.4e12, 65e9),
    LargeModel("LLaMA-2", "Meta", 2023, 2e12, 70e9),
    LargeModel("GPT-4", "OpenAI", 2023, None, 1.76e12, is_published=False),
    LargeModel("Gemini Ultra", "Google", 2023, None, 1.5e12, is_published=False),
    LargeModel("LLaMA-3", "Meta", 2024, 15e12, 405e9),
)
