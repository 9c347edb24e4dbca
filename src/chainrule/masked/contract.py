"""`MaskedModel`: a model that predicts hidden tokens from those on both sides.

    p(x_m | x with x_m hidden)      for each hidden position m, a distribution over the vocabulary

The product of these probabilities over the tokens of a sentence is no probability of the sentence: each of them
looks at the others. So a masked model is no language model. The sum of their logarithms is the
pseudo-log-likelihood, by which sentences can be ranked (Salazar and others 2020).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

import numpy as np

from chainrule.arrays import Array, checked, to_numpy
from chainrule.contract.lm import Context
from chainrule.contract.model import Model
from chainrule.folder import TEXT
from chainrule.tokens.base import Tokenizer

MASK = "[MASK]"
"""The text that stands for a hidden token."""


class MaskedModel(Model):
    """A distribution for every hidden token, given the others."""

    purpose, verb = "fill gaps", "fill"
    tokenizer: Tokenizer
    context: Context

    @property
    @abstractmethod
    def longest(self) -> int:
        """The most tokens of a row, </s> included."""

    @abstractmethod
    def fill(self, ids_BT: Array) -> Array:
        """Return ln p of every token at each hidden position, [N, V], row by row and from left to right.

        Rows are tokens, with the id `mask` where one is hidden, and PAD after their end; a line ends in </s>. <s>
        is never predicted: its column is -inf.
        """

    @abstractmethod
    def on(self, device: str, dtype: str = "float32") -> MaskedModel:
        """Return this model on a device, computing in a precision, as `Model.on` says."""

    # What follows is the same for every model; none overrides it.

    def predict(self, ids_BT: Array) -> np.ndarray:
        """Return what `fill` returns in double precision; NaN is an error."""
        return checked(to_numpy(self.fill(ids_BT)))

    @property
    def mask(self) -> int:
        """The id of a hidden token, the first one above the vocabulary."""
        return self.tokenizer.vocab_size

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """Its one tokenizer, under the name that the model folder gives it."""
        return {TEXT: self.tokenizer}

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.tokenizer.vocab_size:,} {self.tokenizer.name} tokens>"
