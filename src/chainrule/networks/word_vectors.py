"""Pretrained word vectors, read from a file to initialise an embedding table.

Two text formats are read, plain or compressed (.gz, .zst):

    GloVe      a line for each word: the word and its numbers, separated by spaces
    word2vec   the same after a first line with the number of words and the size of a vector
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from chainrule.errors import EncodingError, SettingsError, VectorsError
from chainrule.text.files import Cleaning, clean_blocks, raw_pieces
from chainrule.tokens.base import Tokenizer, lines_of


@dataclass(frozen=True)
class Vectors:
    """The vectors that a file has for the tokens of a vocabulary; row i of `matrix_ND` is that of `ids_N[i]`."""

    name: str
    """The name of the file."""
    ids_N: np.ndarray
    matrix_ND: np.ndarray
    types: int
    """The number of tokens that could have a vector: all of the vocabulary but the special ones."""

    @property
    def coverage(self) -> float:
        """The share of the vocabulary that has a vector."""
        return len(self.ids_N) / self.types if self.types else 0.0

    def check_width(self, width: int, setting: str) -> None:
        """Refuse an embedding table whose width is not that of the vectors; `setting` names its width's setting."""
        size = self.matrix_ND.shape[1]
        if size != width:
            raise SettingsError(
                f"{self.name}: its vectors have {size} numbers, the embeddings of the network {width}: "
                f"set {setting}={size}"
            )

    def __str__(self) -> str:
        size = self.matrix_ND.shape[1]
        if not len(self.ids_N):
            return (
                f"{self.name}: vectors of size {size}, and none for any of {self.types:,} tokens: of other words?"
            )
        found = f"{len(self.ids_N):,} of {self.types:,} tokens ({self.coverage:.1%})"
        return f"{self.name}: vectors of size {size} for {found}"


def load_vectors(path: str | Path, tokenizer: Tokenizer) -> Vectors:
    """Load a file's vectors for the tokens of a vocabulary, each looked up as spelled or else in lower case.

    However large the file, only the vectors of the vocabulary are kept. Where a word is listed twice, its first
    vector counts.
    """
    special = {tokenizer.bos, tokenizer.eos, tokenizer.unk}
    tokens = {i: tokenizer.token(i) for i in range(tokenizer.vocab_size) if i not in special}
    exact = {token.encode(): i for i, token in tokens.items()}
    lower: dict[bytes, list[int]] = {}
    for i, token in tokens.items():
        if token != token.lower():
            lower.setdefault(token.lower().encode(), []).append(i)
    found: dict[int, np.ndarray] = {}
    fallback: dict[int, np.ndarray] = {}
    lines = _Lines(Path(path))
    for word, numbers in lines:
        if word in exact or word in lower:
            vector = lines.parse(numbers)
            if word in exact:
                found.setdefault(exact[word], vector)
            for i in lower.get(word, ()):
                fallback.setdefault(i, vector)
    found = fallback | found
    ids_N = np.asarray(sorted(found), dtype=np.int64)
    matrix_ND = np.stack([found[i] for i in ids_N]) if found else np.empty((0, lines.size), dtype=np.float32)
    return Vectors(str(path), ids_N, matrix_ND, len(tokens))


class _Lines:
    """The lines of a file, each as a word and its numbers, still unparsed; errors name the line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._number = 0

    def __iter__(self) -> Iterator[tuple[bytes, list[bytes]]]:
        promised: int | None = None
        words = 0
        for line in self._raw():
            self._number += 1
            fields = line.rstrip(b" ").split(b" ")
            if self._number == 1:
                promised, self.size = _first_line(fields)
                if promised is not None:
                    continue
            words += 1
            yield self._word_and_numbers(fields)
        if promised is not None and words != promised:
            raise VectorsError(
                f"{self.path}: its first line promises {promised:,} words, there are {words:,}: is it whole?"
            )
        if not words:
            raise VectorsError(
                f"{self.path}: there is no vector in it; each line should have a word and its numbers"
            )

    def parse(self, numbers: list[bytes]) -> np.ndarray:
        """Return the vector of the line that was read last, from its numbers as text."""
        try:
            vector = np.asarray([float(number) for number in numbers], dtype=np.float32)
        except ValueError as error:
            raise self._fault(f"expected numbers behind the word: {error}") from None
        if not np.isfinite(vector).all():
            raise self._fault("expected finite numbers behind the word, found NaN or infinity")
        return vector

    def _raw(self) -> Iterator[bytes]:
        name = str(self.path)
        try:
            for block in clean_blocks(raw_pieces(self.path, name), name, Cleaning()):
                yield from lines_of(block)
        except EncodingError as error:
            raise VectorsError(
                f"{name}: line {error.line}, byte {error.byte}: expected UTF-8; is this a binary file of word2vec? "
                "Save it as text first"
            ) from None

    def _word_and_numbers(self, fields: list[bytes]) -> tuple[bytes, list[bytes]]:
        extra = len(fields) - 1 - self.size
        # a few words of large files contain spaces; a number too many is an error
        if self.size < 1 or extra < 0 or (extra > 0 and _is_number(fields[extra])):
            expected = f"a word and {self.size} numbers, as above" if self.size else "a word and its numbers"
            raise self._fault(f"expected {expected}, found {len(fields)} columns")
        return b" ".join(fields[: extra + 1]), fields[extra + 1 :]

    def _fault(self, what: str) -> VectorsError:
        return VectorsError(f"{self.path}: line {self._number}: {what}")


def _first_line(fields: list[bytes]) -> tuple[int | None, int]:
    """Return the number of words in the header of word2vec, None without a header, and the size of a vector."""
    if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():
        return int(fields[0]), int(fields[1])
    return None, len(fields) - 1


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
