"""`chainrule.tag`: texts in, words with their tags out."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from chainrule.errors import ModelError
from chainrule.tagging.contract import TaggedWords, Tagger
from chainrule.tokens.words.splitting import Splitting, split_words


def tag(model: Any, texts: Iterable[str], *, split: Splitting = "unicode") -> list[TaggedWords]:
    """Return each text as words with their tags.

    A text is split into words as by the tokenizer word:unicode (see `words_of`), or, with split="whitespace", at
    white space alone.

    >>> import chainrule as cr
    >>> sentences = [[("the", "DET"), ("cat", "NOUN")], [("a", "DET"), ("dog", "NOUN")]] * 4
    >>> tagger = cr.train("tagger", sentences, width=8, layers=1, steps=1)
    >>> [sentence.words for sentence in tag(tagger, ["the dog"])]
    [('the', 'dog')]
    """
    tagger = Tagger.expect(model)
    if isinstance(texts, str):
        raise ModelError("expected a list of texts, found one text: give [text]")
    return tagger.tag([words_of(text, split) for text in texts])


def words_of(text: str, split: Splitting = "unicode") -> list[str]:
    """Return the words of a text; with split="unicode", contractions of English are two words, as in its treebanks.

    >>> words_of("The cat's here, isn't it?")
    ['The', 'cat', "'s", 'here', ',', 'is', "n't", 'it', '?']
    """
    text = " ".join(text.split("\n"))
    if split == "whitespace":
        return [word.decode() for word in split_words(text.encode(), split)]
    words: list[str] = []
    for place, piece in enumerate(_CONTRACTIONS.split(text)):
        # every other piece is a match of the pattern
        words += [piece] if place % 2 else [word.decode() for word in split_words(piece.encode(), split)]
    return words


_CONTRACTIONS = re.compile(r"(?<=\w)(n['’]t|['’](?:s|m|d|re|ve|ll))(?!\w)", re.IGNORECASE)
