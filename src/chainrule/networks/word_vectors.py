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
    path, size = Path(path), 0
    for line, word, numbers in _words(path):
        size = len(numbers)
        if word in exact or word in lower:
            vector = _parsed(numbers, path, line)
            if word in exact:
                found.setdefault(exact[word], vector)
            for i in lower.get(word, ()):
                fallback.setdefault(i, vector)
    found = fallback | found
    ids_N = np.asarray(sorted(found), dtype=np.int64)
    matrix_ND = np.stack([found[i] for i in ids_N]) if found else np.empty((0, size), dtype=np.float32)
    return Vectors(str(path), ids_N, matrix_ND, len(tokens))


def _words(path: Path) -> Iterator[tuple[int, bytes, list[bytes]]]:
    """Yield each line of a file: its number, its word, and the numbers behind it as text."""
    promised, size, words = None, 0, 0
    for number, line in enumerate(_lines(path), start=1):
        fields = line.rstrip(b" ").split(b" ")
        if number == 1:
            size = len(fields) - 1
            if len(fields) == 2 and fields[0].isdigit() and fields[1].isdigit():  # the header of word2vec
                promised, size = int(fields[0]), int(fields[1])
                continue
        words += 1
        extra = len(fields) - 1 - size
        # a few words of large files contain spaces; a number too many is an error
        if size < 1 or extra < 0 or (extra > 0 and _is_number(fields[extra])):
            expected = f"a word and {size} numbers, as above" if size else "a word and its numbers"
            raise VectorsError(f"{path}: line {number}: expected {expected}, found {len(fields)} columns")
        yield number, b" ".join(fields[: extra + 1]), fields[extra + 1 :]
    if promised is not None and words != promised:
        raise VectorsError(f"{path}: its first line promises {promised:,} words, there are {words:,}: is it whole?")
    if not words:
        raise VectorsError(f"{path}: there is no vector in it; each line should have a word and its numbers")


def _lines(path: Path) -> Iterator[bytes]:
    try:
        for block in clean_blocks(raw_pieces(path, str(path)), str(path), Cleaning()):
            yield from lines_of(block)
    except EncodingError as error:
        raise VectorsError(
            f"{path}: line {error.line}, byte {error.byte}: expected UTF-8; is this a binary file of word2vec? "
            "Save it as text first"
        ) from None


def _parsed(numbers: list[bytes], path: Path, line: int) -> np.ndarray:
    """Return the vector of a line, from its numbers as text."""
    try:
        with np.errstate(over="ignore"):  # what is too large is infinite, and refused below
            vector = np.asarray([float(number) for number in numbers], dtype=np.float32)
    except ValueError as error:
        raise VectorsError(f"{path}: line {line}: expected numbers behind the word: {error}") from None
    if not np.isfinite(vector).all():
        raise VectorsError(f"{path}: line {line}: expected finite numbers behind the word, found NaN or infinity")
    return vector


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True
