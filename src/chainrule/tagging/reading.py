"""Words as the arrays that a tagger's network takes: ids, spellings, subwords.

The arrays of a word depend on the word alone, so they are computed once for each distinct word of a text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from chainrule.arrays import PAD
from chainrule.contract.lm import Context, start_token
from chainrule.errors import SettingsError
from chainrule.networks.tagging.config import BEGINNING, END, LONGEST_SPELLING, WordInputs
from chainrule.tokens.base import Tokenizer

_NOTHING = np.zeros((0, 0), dtype=np.int64)
_NO_SPACE = re.compile(r"[.,;:!?%)\]}'’”»…]|n['’]t$")
"""Matches words that follow the word before them without a space."""


@dataclass(frozen=True)
class SubwordReader:
    """Reads sentences for a pretrained encoder: subwords, between the tokens that begin and end a line."""

    tokenizer: Tokenizer
    start: int
    """The token before the first subword."""

    @classmethod
    def of(cls, tokenizer: Tokenizer, context: Context | None) -> SubwordReader:
        """Return the reader for an encoder that was trained with this tokenizer and context."""
        return cls(tokenizer, start_token(tokenizer, context or "line"))

    def read(self, words: Sequence[bytes]) -> _Ragged:
        """Return the subwords of each word inside a text: after a space, unless it is a comma or the like."""
        lines = [word if _NO_SPACE.match(word.decode(errors="replace")) else b" " + word for word in words]
        ids = self.tokenizer.encode_lines(b"".join(line + b"\n" for line in lines)).astype(np.int64)
        ends = np.flatnonzero(ids == self.tokenizer.eos)
        starts = np.concatenate([np.zeros(1, np.int64), ends[:-1] + 1])[: len(ends)]
        return _Ragged(ids, starts, ends - starts, self.start, self.tokenizer.eos)


@dataclass(frozen=True)
class WordReader:
    """Reads words for a network: their ids and, if it takes them, their spellings and subwords."""

    words: Tokenizer
    spells: bool
    subwords: SubwordReader | None = None

    def __post_init__(self) -> None:
        if self.words.splitting != "whitespace":
            raise SettingsError(
                f"a tagger's words are given: its tokenizer should be word, not {self.words.name} (min_count and "
                "vocab_size say which words its table has)"
            )

    def read(self, words: Sequence[bytes]) -> DistinctWords:
        """Return the arrays of distinct words; no word contains white space."""
        ids = self.words.encode_lines(b"\n".join(words) + b"\n")
        ids_N = np.asarray(ids, dtype=np.int64)[::2]  # each line is a word and </s>
        spellings_NC = _spellings(words) if self.spells else None
        return DistinctWords(ids_N, spellings_NC, None if self.subwords is None else self.subwords.read(words))


@dataclass(frozen=True)
class _Ragged:
    """The subwords of each word, one after the other."""

    ids: np.ndarray
    starts: np.ndarray
    counts: np.ndarray
    start: int
    """The token before a sentence."""
    end: int
    """The token after it."""


@dataclass(frozen=True)
class DistinctWords:
    """The distinct words of a text, by their numbers."""

    ids_N: np.ndarray
    spellings_NC: np.ndarray | None
    subwords: _Ragged | None

    def inputs(self, words_BT: np.ndarray) -> WordInputs:
        """Return the inputs of a network for sentences of word numbers, filled up with PAD."""
        is_word_BT = words_BT != PAD
        ids_BT = np.where(is_word_BT, self.ids_N[words_BT], PAD)
        distinct_BT, spellings_UC = _NOTHING, _NOTHING
        if self.spellings_NC is not None:
            numbers_U, places = np.unique(words_BT[is_word_BT], return_inverse=True)
            distinct_BT = np.zeros(words_BT.shape, np.int64)
            distinct_BT[is_word_BT] = places.ravel()
            spellings_UC = self.spellings_NC[numbers_U].astype(np.int64)
            spellings_UC = spellings_UC[:, (spellings_UC != PAD).any(axis=0)]
        subwords_BS, word_of_BS = _NOTHING, _NOTHING
        if self.subwords is not None:
            subwords_BS, word_of_BS = self._subwords(self.subwords, words_BT, is_word_BT)
        return WordInputs(ids_BT, distinct_BT, spellings_UC, subwords_BS, word_of_BS)

    @staticmethod
    def _subwords(of: _Ragged, words_BT: np.ndarray, is_word_BT: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the subwords of each sentence, [B, S], and for each the position of its word.

        The tokens before and after a sentence, and PAD, belong to no word.
        """
        rows_N, columns_N = np.nonzero(is_word_BT)  # word by word
        words_N = words_BT[is_word_BT]
        counts_N = of.counts[words_N]
        rows_M, columns_M = np.repeat(rows_N, counts_N), np.repeat(columns_N, counts_N)
        # where each subword stands among those of its word, and in its row
        inside_M = np.arange(len(rows_M)) - np.repeat(np.cumsum(counts_N) - counts_N, counts_N)
        totals_B = np.bincount(rows_M, minlength=len(words_BT))
        places_M = 1 + np.arange(len(rows_M)) - (np.cumsum(totals_B) - totals_B)[rows_M]
        shape = len(words_BT), 2 + int(totals_B.max(initial=0))
        subwords_BS, word_of_BS = np.full(shape, PAD), np.full(shape, words_BT.shape[1])
        subwords_BS[:, 0] = of.start
        subwords_BS[np.arange(len(words_BT)), 1 + totals_B] = of.end
        subwords_BS[rows_M, places_M] = of.ids[np.repeat(of.starts[words_N], counts_N) + inside_M]
        word_of_BS[rows_M, places_M] = columns_M
        return subwords_BS, word_of_BS


def _spellings(words: Sequence[bytes]) -> np.ndarray:
    """Return the bytes of each word between two marks, [N, C], filled up with PAD; of long words, the two ends."""
    most = LONGEST_SPELLING - 2
    cut = [word if len(word) <= most else word[: most // 2] + word[-(most // 2) :] for word in words]
    spellings_NC = np.full((len(words), 2 + max(map(len, cut), default=0)), PAD, dtype=np.int16)
    spellings_NC[:, 0] = BEGINNING
    for row_C, word in zip(spellings_NC, cut, strict=True):
        row_C[1 : 1 + len(word)] = np.frombuffer(word, dtype=np.uint8)
        row_C[1 + len(word)] = END
    return spellings_NC


def numbered(sentences: Sequence[Sequence[str]]) -> tuple[list[bytes], list[np.ndarray]]:
    """Return the distinct words of sentences, and each sentence as their numbers."""
    numbers: dict[str, int] = {}
    rows = [np.asarray([numbers.setdefault(w, len(numbers)) for w in words], np.int64) for words in sentences]
    return [word.encode() for word in numbers], rows
