"""`ConditionalModel`: a language model whose states begin from sources.

    ln p(y | x) = Σ_t ln p(y_t | <s>, y_<t, x)

The source x is read once, into a state; from there on the model is a language model like any other. So decoding,
scoring and evaluation need nothing new: they start from another state.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from chainrule.contract.lm import LanguageModel, State
from chainrule.folder import TEXT
from chainrule.tokens.base import Tokenizer

SOURCE = "source"
"""The name of the source's tokenizer in a model folder, where it is another one than the target's."""


class ConditionalModel(LanguageModel):
    """A probability for every next token of a target, given a source and the tokens before it."""

    purpose, verb = "translate", "translate"
    needs_source = True
    source_tokenizer: Tokenizer
    """The tokenizer of sources; that of targets is `tokenizer`. They may be the same."""

    @property
    @abstractmethod
    def longest_source(self) -> int | None:
        """The most tokens that a source may have, </s> included; None: any number."""

    @abstractmethod
    def begin(self, sources: Sequence[np.ndarray]) -> State:
        """Return the state after <s> of the target, in a row for each source, which is ids ended by </s>."""

    def attention_weights(self, source: np.ndarray, target: np.ndarray) -> np.ndarray | None:
        """Return the attention weights of each target token, [L, H, T, S]: layers, heads, target, source.

        Both sides are ids ended by </s>. None for a model without attention. The weights of a target token sum to
        one, or to less where the model puts a token of its own before a source.
        """
        return None

    # What follows is the same for every model; none overrides it.

    def start(self, batch_size: int) -> State:
        """Return the state after <s> of a target whose source is empty."""
        return self.begin([np.asarray([self.source_tokenizer.eos])] * batch_size)

    def encode_source(self, text: str) -> np.ndarray:
        """Return the ids of a source, one line, ended by </s>; a longer source than the model takes is cut."""
        ids = np.asarray([*self.source_tokenizer.encode(" ".join(text.split("\n"))), self.source_tokenizer.eos])
        most = self.longest_source
        return ids if most is None or len(ids) <= most else np.append(ids[: most - 1], ids[-1])

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The tokenizer of targets, and that of sources if it is another one."""
        if self.source_tokenizer is self.tokenizer:
            return {TEXT: self.tokenizer}
        return {TEXT: self.tokenizer, SOURCE: self.source_tokenizer}
