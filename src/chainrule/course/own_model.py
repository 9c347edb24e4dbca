"""A language model from one function: the probabilities of the next word after some words."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np

from chainrule.contract.chain import PrefixModel
from chainrule.text.corpus import Corpus
from chainrule.tokens.registry import train_tokenizer


class OwnModel(PrefixModel):
    """A model of your own: write `probabilities`, and it can be scored, sampled, measured and compared.

    >>> class Uniform(OwnModel):
    ...     def probabilities(self, words):
    ...         return {word: 1 / len(self.vocabulary) for word in self.vocabulary}
    >>> lm = Uniform(["i love cats", "i love dogs"])
    >>> lm.vocabulary
    ['<unk>', '</s>', 'i', 'love', 'cats', 'dogs']
    >>> round(lm.perplexity("dogs love cats"), 6)
    6.0
    """

    kind, context = "own", "line"

    def __init__(self, texts: Iterable[str]) -> None:
        """Take the vocabulary from the texts: their words, <unk> for any other, and </s> for the end of a line."""
        self.texts = list(texts)
        self.tokenizer = train_tokenizer("word", Corpus.from_texts(self.texts))
        self._known: dict[tuple[int, ...], np.ndarray] = {}

    @abstractmethod
    def probabilities(self, words: list[str]) -> Mapping[str, float]:
        """Return p(next word | words); the first of the words is <s>. A word that is left out has p = 0."""

    @cached_property
    def vocabulary(self) -> list[str]:
        """The words that can come next: all but <s>."""
        ids = (i for i in range(self.tokenizer.vocab_size) if i != self.tokenizer.bos)
        return [self.tokenizer.token(i) for i in ids]

    def log_probs_after(self, ids: tuple[int, ...]) -> np.ndarray:
        """Return ln p of every token after <s> and the ids, by the probabilities of words."""
        if ids not in self._known:
            words = ["<s>", *(self.tokenizer.token(i) for i in ids)]
            given = self.probabilities(words)
            if other := sorted(set(given) - set(self.vocabulary)):
                raise ValueError(f"probabilities({words}) has {other[0]!r}, which is not in the vocabulary")
            p_V = [given.get(self.tokenizer.token(i), 0.0) for i in range(self.tokenizer.vocab_size)]
            with np.errstate(divide="ignore"):
                self._known[ids] = np.log(p_V)
        return self._known[ids]
