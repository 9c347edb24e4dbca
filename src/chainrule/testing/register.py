"""The register of laws, and what they share: prefixes to test a model on, and how close numbers should be."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, Generic, TypeVar

import numpy as np

from chainrule.arrays import to_numpy
from chainrule.contract import chain
from chainrule.contract.lm import LanguageModel

Tested = TypeVar("Tested")
Law = Callable[[LanguageModel], str | None]
"""A function that raises AssertionError if a model breaks the law; it may return `NOT_OFFERED`."""
NOT_OFFERED = "not offered"
"""What a law returns that had nothing to compare: the model does not declare the fast path."""


class Laws(dict[str, Callable[[Tested], str | None]], Generic[Tested]):
    """Laws by name."""

    def enter(self, law: Callable[[Tested], str | None]) -> Callable[[Tested], str | None]:
        """Enter a law under the name of its function."""
        self[law.__name__] = law
        return law

    def check(self, model: Tested, names: Iterable[str]) -> list[str]:
        """Check laws; the error names the first that the model breaks. Return those that compared nothing."""
        not_offered = []
        for name in names:
            try:
                if self[name](model) == NOT_OFFERED:
                    not_offered.append(name)
            except AssertionError as error:
                raise AssertionError(f"{model!r} breaks the law {name}: {error}") from error
        return not_offered


LAWS: Laws[LanguageModel] = Laws()
law = LAWS.enter


def assert_close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Raise AssertionError unless the numbers are equal but for rounding."""
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance)


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
