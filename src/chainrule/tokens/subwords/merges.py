"""How byte-level BPE learns its vocabulary, merge by merge: slow, obvious, and with the same merges as the library.

Begin with single bytes, or for a demonstration with characters. Again and again, count every pair of neighbours
inside the words, and make the most frequent pair one new token.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from typing import TypeVar

from chainrule.errors import TokenizerError
from chainrule.tokens.subwords.library import byte_level, character_bytes, section_lists
from chainrule.tokens.subwords.tokenizer import SubwordTokenizer, readable

_T = TypeVar("_T")


@dataclass(frozen=True)
class Merge:
    """One merge: two tokens that become a new one."""

    left: bytes
    right: bytes
    count: int
    """How often the two were neighbours."""
    vocab_size: int
    """The size of the vocabulary after this merge."""

    @property
    def token(self) -> bytes:
        """The new token: `left` followed by `right`."""
        return self.left + self.right

    def __str__(self) -> str:
        return (
            f"{readable(self.left)!r} + {readable(self.right)!r} -> {readable(self.token)!r} ({self.count:,} times)"
        )


def count_pieces(blocks: Iterable[bytes]) -> Counter[str]:
    """Return how often each word occurs, with its leading space, spelled in byte characters."""
    splitter = byte_level()
    words: Counter[str] = Counter()
    for section in chain.from_iterable(section_lists(blocks)):
        words.update(word for word, _ in splitter.pre_tokenize_str(section))
    return words


@dataclass(frozen=True)
class Step:
    """One step of learning: every pair of neighbours is counted, and one of them becomes a token."""

    tokens: list[str]
    """The vocabulary after the step, in the order of the ids; the new token is the last."""
    pairs: Counter[tuple[int, int]]
    """How often each pair of ids was there before the step."""
    best: tuple[int, int]
    """The pair that is merged."""
    words: dict[str, list[int]]
    """The tokens of each word after the step."""

    def ranked(self) -> list[tuple[str, str, int]]:
        """Return all pairs with their counts, in the order in which they would be merged."""
        order = sorted(self.pairs, key=lambda pair: (-self.pairs[pair], pair))
        return [(self.tokens[left], self.tokens[right], self.pairs[left, right]) for left, right in order]


def merge_steps(words: Counter[str], alphabet: Iterable[str] | None = None, min_count: int = 2) -> Iterator[Step]:
    """Yield the steps of BPE over words and their counts, until no pair occurs `min_count` times.

    The first tokens are the characters of the words, or of an alphabet that has all of them.

    >>> for step in merge_steps(Counter({"love": 2, "cats": 1})):
    ...     print(step.ranked()[:2], step.tokens[-1], [step.tokens[i] for i in step.words["love"]])
    [('l', 'o', 2), ('o', 'v', 2)] lo ['lo', 'v', 'e']
    [('v', 'e', 2), ('lo', 'v', 2)] ve ['lo', 've']
    [('lo', 've', 2), ('a', 't', 1)] love ['love']
    """
    tokens = sorted(set("".join(words)) if alphabet is None else alphabet)
    number = {character: i for i, character in enumerate(tokens)}
    spelled = {word: [number[character] for character in word] for word in words}
    while True:
        pairs: Counter[tuple[int, int]] = Counter()
        for word, count in words.items():
            for pair in pairwise(spelled[word]):
                pairs[pair] += count
        # the most frequent pair; among equals the one with the oldest tokens
        best = min(pairs, key=lambda pair: (-pairs[pair], pair), default=None)
        if best is None or pairs[best] < min_count:
            return
        spelled = {word: _merge(ids, best, len(tokens)) for word, ids in spelled.items()}
        tokens = [*tokens, tokens[best[0]] + tokens[best[1]]]
        yield Step(tokens, pairs, best, spelled)


def learn_merges(words: Counter[str], vocab_size: int, min_count: int = 2) -> Iterator[Merge]:
    """Yield the merges, first to last, until the vocabulary is full or no pair occurs `min_count` times.

    >>> [str(merge) for merge in learn_merges(Counter({"hug": 5, "pug": 3}), vocab_size=258)]
    ["'u' + 'g' -> 'ug' (8 times)", "'h' + 'ug' -> 'hug' (5 times)"]
    """
    byte_of = character_bytes()
    for step in islice(merge_steps(words, byte_of, min_count), max(0, vocab_size - len(byte_of))):
        left, right = (bytes(byte_of[character] for character in step.tokens[i]) for i in step.best)
        yield Merge(left, right, step.pairs[step.best], len(step.tokens))


@dataclass(frozen=True)
class Replayed:
    """One merge in a text that is encoded."""

    left: bytes
    right: bytes
    rank: int
    """Its place among the merges that were learned; 0 is the first."""
    changed: dict[int, list[bytes]]
    """The words in which it took place, by their number, with their tokens after it."""


def spelled_words(text: str) -> list[list[bytes]]:
    """Return the words of a text in single bytes: what BPE begins with. A line end is a word of its own."""
    byte_of = character_bytes()
    words: list[list[bytes]] = []
    for number, line in enumerate(text.split("\n")):
        if number:
            words.append([b"\n"])
        pieces = byte_level().pre_tokenize_str(line)
        words += [[bytes([byte_of[character]]) for character in word] for word, _ in pieces]
    return words


def replay_merges(tokenizer: SubwordTokenizer, text: str) -> Iterator[Replayed]:
    """Yield the merges by which BPE encodes a text: each time, the pair that was learned first, everywhere."""
    if tokenizer.algorithm != "bpe":
        raise TokenizerError(f"{tokenizer.algorithm} does not merge: only BPE does")
    byte_of = character_bytes()
    ranks: dict[tuple[bytes, bytes], int] = {}
    for rank, (left, right) in enumerate(tokenizer.merges()):
        ranks[bytes(byte_of[c] for c in left), bytes(byte_of[c] for c in right)] = rank
    words = spelled_words(text)
    while True:
        pairs = {pair for word in words for pair in pairwise(word) if pair in ranks}
        if not pairs:
            return
        best = min(pairs, key=ranks.__getitem__)
        changed = {}
        for number, word in enumerate(words):
            merged = _merge(word, best, best[0] + best[1])
            if len(merged) < len(word):
                words[number] = changed[number] = merged
        yield Replayed(*best, ranks[best], changed)


def _merge(word: list[_T], pair: tuple[_T, _T], new: _T) -> list[_T]:
    merged: list[_T] = []
    i = 0
    while i < len(word):
        if tuple(word[i : i + 2]) == pair:
            merged.append(new)
            i += 2
        else:
            merged.append(word[i])
            i += 1
    return merged
