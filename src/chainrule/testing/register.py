"""The register of laws, and what they share: prefixes to test a model on, and how close numbers should be."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from chainrule.arrays import to_numpy
from chainrule.contract import chain
from chainrule.contract.lm import LanguageModel

Law = Callable[[LanguageModel], str | None]
"""A function that raises AssertionError if a model breaks the law; it may return `NOT_OFFERED`."""
LAWS: dict[str, Law] = {}
NOT_OFFERED = "not offered"
"""What a law returns that had nothing to compare: the model does not declare the fast path."""


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Raise AssertionError unless the numbers are equal but for rounding."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


def law(function: Law) -> Law:
    """Enter a law under the name of its function."""
    LAWS[function.__name__] = function
    return function


def prefixes(lm: LanguageModel) -> list[list[int]]:
    """Prefixes of several lengths: likely ones, unlikely ones, impossible ones, with <unk> and </s> inside."""
    tokenizer = lm.tokenizer
    words = [i for i in range(tokenizer.vocab_size) if i not in (tokenizer.bos, tokenizer.eos)]
    a, b, c = words[0], words[-1], words[len(words) // 2]
    likely: list[int] = []
    for _ in range(3):
        log_probs = next_log_probs(lm, likely).copy()
        log_probs[tokenizer.eos] = -math.inf
        likely.append(int(log_probs.argmax()))
    return [
        [],
        likely[:1],
        likely[:2],
        likely,
        [b, c],
        [a, b, c, a, b, c, a],
        [b, tokenizer.eos],
        [tokenizer.eos, a],
    ]


def next_log_probs(lm: LanguageModel, prefix: list[int]) -> np.ndarray:
    """ln p of every token after a prefix, read token by token."""
    found: np.ndarray = to_numpy(lm.next_log_probs(chain.after(lm, prefix)))[0]
    return found
