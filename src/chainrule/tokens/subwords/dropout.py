"""BPE dropout: words split anew at random, so that a network sees many splits of each (Provilkov and others 2020).

BPE begins with the bytes of a word and, again and again, merges the pair of neighbours that was learned first. Here
each pair that could be merged is left out of that choice with a probability p, drawn anew before every merge; the
word is finished when all that is left was left out:

    p = 0     "unrelated" -> unrelated                  as the tokenizer splits it
    p = 0.1   un related, unrelat ed, u n related, ...  mostly common tokens, now and then rarer and shorter ones
    p = 1     u n r e l a t e d

The random numbers of a word depend on the seed and on the place of the word in the text alone: not on threads, nor
on what was split before. dropout_kernel.py splits; its tests have the formula in plain Python.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from chainrule.errors import TokenizerError
from chainrule.system.parallel import at_once, cores, stretches
from chainrule.tokens.base import Ids, Tokenizer
from chainrule.tokens.subwords.library import byte_level
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer

_WORDS_A_THREAD = 1 << 16
_LAST_64_BITS = (1 << 64) - 1


class SplitDropout:
    """The lines of a text, to be split at random as often as one likes."""

    def __init__(self, tokenizer: Tokenizer, lines: Iterable[bytes]) -> None:
        """`lines` are those of the text, without their ends; words that occur often are stored once."""
        from chainrule.tokens.subwords.dropout_kernel import hashed

        if not isinstance(tokenizer, SubwordTokenizer) or tokenizer.algorithm != "bpe":
            raise TokenizerError(f"merges can be left out of bpe tokens, not of {tokenizer.name} tokens: take bpe")
        self.eos, self.id_dtype = tokenizer.eos, tokenizer.id_dtype
        numbers: dict[str, int] = {}
        words: list[int] = []
        ends = []
        split = byte_level().pre_tokenize_str
        for line in lines:
            for section in tokenizer.sections(line):
                words += [numbers.setdefault(word, len(numbers)) for word, _ in split(section)]
            ends.append(len(words))
        id_of = tokenizer.reference.get_vocab()
        merges = [(id_of[left], id_of[right], id_of[left + right]) for left, right in tokenizer.merges()]
        self._table = hashed(np.asarray(merges, np.int64).reshape(-1, 3))
        spelled = [[id_of[character] for character in word] for word in numbers]
        self.words, self.line_ends = np.asarray(words, np.int64), np.asarray(ends, np.int64)
        """The number of each word of the text, and where each line ends among them."""
        self.symbols = np.asarray([symbol for word in spelled for symbol in word], np.int64)
        """The ids of the bytes of each word, one after the other."""
        self.starts = np.cumsum([0, *map(len, spelled)])

    def ids(self, share: float, seed: int, most: int | None = None) -> Ids:
        """Return the ids of the lines, each ended by </s>, where each merge is left out with probability `share`.

        A line that would have more than `most` ids is split as the tokenizer splits it.
        """
        from chainrule.tokens.subwords.dropout_kernel import split_lines

        limit = np.iinfo(np.int64).max if most is None else most

        def part(bounds: tuple[int, int]) -> NDArray[np.int64]:
            found: NDArray[np.int64] = split_lines(
                self.words, self.line_ends, self.starts, self.symbols, self._table,
                *(float(share), np.uint64(seed & _LAST_64_BITS), self.eos, limit, *bounds),
            )  # fmt: skip
            return found

        threads = min(cores(), len(self.words) // _WORDS_A_THREAD)
        parts = at_once(part, stretches(len(self.line_ends), threads))
        return np.concatenate(parts).astype(np.uint32)
