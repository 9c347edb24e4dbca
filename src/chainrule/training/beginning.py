"""The last layer of a new network: what it predicts before the first step."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

_TOKENS = 1_000_000  # the most tokens of the text that are counted


def begin_at_base(tensors: Mapping[str, np.ndarray]) -> None:
    """Let the logits be 0, by the weights of the last layer; a table that is tied to the head stays as it is."""
    for name in ("head.weight", "projection.weight"):
        if name in tensors:
            tensors[name][...] = 0


def begin_at_unigram(tensors: Mapping[str, np.ndarray], ids: np.ndarray) -> None:
    """Let each token be as likely as it is frequent, by the bias of the last layer, where it has one.

    >>> tensors = {"head.bias": np.zeros(3)}
    >>> begin_at_unigram(tensors, np.array([1, 1, 1, 2]))
    >>> np.exp(tensors["head.bias"]).round(2).tolist()
    [0.14, 0.57, 0.29]
    """
    if "head.bias" in tensors:
        bias_V = tensors["head.bias"]
        # one more of each: a token that does not occur is unlikely, but not impossible
        counts_V = 1 + np.bincount(np.asarray(ids[:_TOKENS]), minlength=len(bias_V))
        bias_V[...] = np.log(counts_V / counts_V.sum())
