"""Where the tokens of a text stand in it: the bytes of each, for tokenizers of all kinds.

Models with different tokenizers are compared on the bytes of a text, which they share.
"""

from __future__ import annotations

from collections.abc import Sequence

from chainrule.tokens.base import Tokenizer
from chainrule.tokens.words.splitting import split_words


def text_spans(tokenizer: Tokenizer, text: bytes, ids: Sequence[int]) -> list[tuple[int, int]]:
    """The bytes (first, one past the last) of each token of a text, whose line ends are `eos`.

    A last line without an end has no `eos`; if there is one nevertheless, it stands at the end and has no bytes.
    """
    spans: list[tuple[int, int]] = []
    place, first = 0, 0
    for line in text.split(b"\n"):
        last = next((i for i in range(first, len(ids)) if ids[i] == tokenizer.eos), len(ids))
        spans += [(place + a, place + b) for a, b in byte_spans(tokenizer, line, ids[first:last])]
        place += len(line)
        if last < len(ids):
            spans.append((place, min(place + 1, len(text))))
        place, first = place + 1, last + 1
    return spans


def byte_spans(tokenizer: Tokenizer, line: bytes, ids: Sequence[int]) -> list[tuple[int, int]]:
    """The bytes (first, one past the last) of each token of a line; white space between words has none."""
    if tokenizer.splitting is not None:
        words: list[bytes | None] = [*split_words(line, tokenizer.splitting)]
    else:
        spelling = tokenizer.spelling
        words = [None if spelling is None else spelling.pieces[token] or None for token in ids]
    spans: list[tuple[int, int]] = []
    place, open_since = 0, 0  # tokens from `open_since` on have not been placed: <unk> has no spelling
    for word in words:
        found = -1 if word is None else line.find(word, place)
        if found < 0 and word is not None:  # some vocabularies put a space before the first word
            found = line.find(word := word.strip(), place)
        if found < 0 or word is None:
            spans.append((place, place))
            continue
        _share(spans, open_since, place, found, line)
        place = found + len(word)
        spans.append((found, place))
        open_since = len(spans)
    _share(spans, open_since, place, len(line), line)
    return spans


def _share(spans: list[tuple[int, int]], first: int, start: int, end: int, text: bytes) -> None:
    """Give the bytes from start to end to the tokens from `first` on: a character each, the rest to the last."""
    for number in range(first, len(spans)):
        stop = start + 1
        while stop < end and text[stop] & 0xC0 == 0x80:
            stop += 1
        stop = end if number == len(spans) - 1 else min(stop, end)
        spans[number] = start, stop
        start = stop
