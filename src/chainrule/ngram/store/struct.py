"""The arrays of an n-gram model as named tuples, the form in which Numba's kernels take them."""

from __future__ import annotations

from typing import Any, NamedTuple

from numpy.typing import NDArray

from chainrule.arrays import Array


class TrieArrays(NamedTuple):
    """The structure of the trie (`Trie` explains each array), and its hash index."""

    code: NDArray[Any]
    """The code of each word; V, which means "no word", is its own code."""
    size: int
    """V, the number of words."""
    table: NDArray[Any]
    words: Array
    base: Array
    offset: Array
    rest: Array
    word_bits: int
    slots: NDArray[Any]
    """The slots of the hash index; empty if there is none."""
    bos: int
    """The code of <s>, over which no context reaches."""


class ValueArrays(NamedTuple):
    """A number for each node (`Values` explains each array)."""

    plain: Array
    codes: Array
    books: Array
    bits: int
