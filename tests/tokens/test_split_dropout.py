"""BPE dropout: the kernel against the formula, and what it keeps of a text."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from chainrule.errors import TokenizerError
from chainrule.system import parallel
from chainrule.tokens.base import lines_of
from chainrule.tokens.char import CharTokenizer
from chainrule.tokens.subwords import dropout
from chainrule.tokens.subwords.dropout import SplitDropout
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer
from chainrule.tokens.vocabulary import Limit

TEXT = (
    "the cat sat on the mat and the rat sat on the cat\nunrelated relations relate the related\n\n"
    "  two  spaces, don't! Straße 漢字 naïve\n" + "b" * 700 + " aaaa\n"
).encode() * 3
BPE = SubwordTokenizer.train(iter([TEXT]), "bpe", Limit(top=320))


_LAST_64_BITS = (1 << 64) - 1
ID_OF = BPE.reference.get_vocab()
MERGES = {
    (ID_OF[left], ID_OF[right]): (rank, ID_OF[left + right]) for rank, (left, right) in enumerate(BPE.merges())
}


def split_slowly(symbols: list[int], share: float, draws: Iterator[float]) -> list[int]:
    """The formula: the tokens of a word that begins as these symbols."""
    while True:
        pairs = [pair for pair in enumerate(pairwise(symbols)) if pair[1] in MERGES]
        kept = [(MERGES[pair], place) for place, pair in pairs if next(draws) >= share]
        if not kept:
            return symbols
        (_, merged), place = min(kept)  # the pair that was learned first, and of equal ones the first
        symbols = [*symbols[:place], merged, *symbols[place + 2 :]]


def draws_of(seed: int, place: int) -> Iterator[float]:
    """Yield the random numbers of the word at this place of a text (SplitMix64, Steele and others 2014)."""

    def mixed(z: int) -> int:
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 & _LAST_64_BITS
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB & _LAST_64_BITS
        return z ^ (z >> 31)

    state = mixed(((seed & _LAST_64_BITS) + (place + 1) * 0xD1B54A32D192ED03) & _LAST_64_BITS)
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _LAST_64_BITS
        yield (mixed(state) >> 11) * 2.0**-53


def ids_slowly(lines: SplitDropout, share: float, seed: int) -> list[int]:
    """What `SplitDropout.ids` returns, word by word."""
    found: list[int] = []
    for first, last in pairwise([0, *lines.line_ends.tolist()]):
        for place in range(first, last):
            word = lines.words[place]
            symbols = lines.symbols[lines.starts[word] : lines.starts[word + 1]].tolist()
            found += split_slowly(symbols, share, draws_of(seed, place))
        found.append(lines.eos)
    return found


@pytest.fixture(scope="module")
def lines() -> SplitDropout:
    return SplitDropout(BPE, lines_of(TEXT))


@pytest.mark.parametrize("share", [0.0, 0.1, 0.6, 1.0])
@pytest.mark.parametrize("seed", [0, 2**64 - 1])
def test_the_kernel_gives_what_the_formula_gives(lines: SplitDropout, share: float, seed: int) -> None:
    assert np.array_equal(lines.ids(share, seed), ids_slowly(lines, share, seed))


def test_without_dropout_it_is_the_tokenizer(lines: SplitDropout) -> None:
    """Also where a piece is longer than the tokenizer takes at once, and where a line is empty."""
    assert np.array_equal(lines.ids(0.0, 5), BPE.encode_lines(TEXT))


def test_the_text_stays_whatever_is_left_out(lines: SplitDropout) -> None:
    sizes = []
    for share in (0.0, 0.1, 0.5, 1.0):
        ids = lines.ids(share, 1)
        assert BPE.decode(ids.tolist()).encode() == TEXT
        sizes.append(len(ids))
    assert sizes == sorted(set(sizes))
    assert sizes[-1] == len(TEXT)  # a token for each byte, and for each line end


def test_a_word_is_split_in_many_ways_that_the_seed_decides(lines: SplitDropout) -> None:
    splits = [tuple(lines.ids(0.1, seed).tolist()) for seed in range(20)]
    assert len(set(splits)) == 20
    assert splits[3] == tuple(lines.ids(0.1, 3).tolist())


def test_threads_change_nothing(lines: SplitDropout, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = lines.ids(0.2, 9)
    monkeypatch.setattr(dropout, "_WORDS_A_THREAD", 5)
    monkeypatch.setattr(dropout, "cores", lambda: 4)
    monkeypatch.setattr(parallel, "cores", lambda: 4)
    assert np.array_equal(lines.ids(0.2, 9), alone)


def test_a_line_that_becomes_too_long_is_split_as_usual(lines: SplitDropout) -> None:
    def by_line(ids: np.ndarray) -> list[list[int]]:
        return [one.tolist() for one in np.split(ids, np.flatnonzero(ids == BPE.eos) + 1)]

    usual, dropped = by_line(lines.ids(0.0, 0)), by_line(lines.ids(0.5, 0))
    most = sorted(len(line) for line in dropped)[len(dropped) // 2]
    found = by_line(lines.ids(0.5, 0, most))
    assert found == [one if len(one) <= most else other for one, other in zip(dropped, usual, strict=True)]
    assert usual != found != dropped


def test_only_merges_can_be_left_out() -> None:
    with pytest.raises(TokenizerError, match="take bpe"):
        SplitDropout(CharTokenizer.train(iter([b"abc\n"]), Limit()), [b"abc"])
