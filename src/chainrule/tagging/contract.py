"""`Tagger`: a model that gives every word of a sentence a distribution over tags.

    p(tag_t | word_1 .. word_T)              for each t, and Σ over tags is 1

It reads the whole sentence before it tags a word, so it is no language model: it has no next token, and no prefix.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from chainrule.arrays import checked
from chainrule.contract.model import Model
from chainrule.folder import TEXT
from chainrule.tokens.base import Tokenizer

TAGS = "tags"
"""The name of the tokenizer of tags in a model folder: its words are the tags."""
FREQUENT = "most_frequent"
"""The name of the array of a model folder with the most frequent tag of each word."""


@dataclass(frozen=True)
class TaggedWords:
    """A sentence as a tagger sees it."""

    words: tuple[str, ...]
    tags: tuple[str, ...]
    """The most probable tag of each word."""
    log_probs: np.ndarray
    """ln p of these tags, [T]."""

    def __str__(self) -> str:
        return " ".join(f"{word}/{tag}" for word, tag in zip(self.words, self.tags, strict=True))


class Tagger(Model):
    """A probability for every tag of every word of a sentence."""

    purpose, verb = "tag words", "tag"
    tokenizer: Tokenizer
    """The words of its table; any other word is unknown, and tagged by its context."""
    tag_tokenizer: Tokenizer
    """The tags, as the words of a tokenizer."""

    @abstractmethod
    def log_probs(self, sentences: Sequence[Sequence[str]]) -> list[np.ndarray]:
        """Return ln p of each tag for each word of each sentence, as [T, K]; the K tags are those of `tags`."""

    @abstractmethod
    def frequent_tags(self, words: Sequence[str]) -> list[str]:
        """Return the most frequent tag of each word in training; for an unknown word, the most frequent of all."""

    # What follows is the same for every tagger; none overrides it.

    @property
    def tags(self) -> list[str]:
        """The tags, in the order of their numbers."""
        return self.tag_tokenizer.words

    @property
    def tokenizers(self) -> Mapping[str, Tokenizer]:
        """The table of words, and the tags."""
        return {TEXT: self.tokenizer, TAGS: self.tag_tokenizer}

    def tag(self, sentences: Sequence[Sequence[str]]) -> list[TaggedWords]:
        """Return the most probable tag of each word of each sentence."""
        tags, found = self.tags, []
        for words, log_probs_TK in zip(sentences, self.log_probs(sentences), strict=True):
            best_T = checked(log_probs_TK).argmax(axis=1)
            best = log_probs_TK[np.arange(len(best_T)), best_T]
            found.append(TaggedWords(tuple(words), tuple(tags[i] for i in best_T), best))
        return found

    def is_known(self, words: Sequence[str]) -> np.ndarray:
        """Return, for each word, True if it is in the model's table."""
        return np.asarray([word in self._known for word in words], dtype=bool)

    @cached_property
    def _known(self) -> frozenset[str]:
        return frozenset(self.tokenizer.words)
