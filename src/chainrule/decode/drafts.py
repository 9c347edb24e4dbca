"""Drafts: guesses at how a text goes on, which a larger model then checks several at a time.

A draft comes from another language model over the same vocabulary, or from the text itself: where its last few
tokens stood before, the tokens that followed them are copied (prompt lookup). Whatever is guessed, speculative
decoding (speculative.py) writes what the model by itself would: a bad guess costs time and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np

from chainrule.contract.capabilities import LONGEST_MATCH, SHORTEST_MATCH
from chainrule.contract.lm import LanguageModel, draft
from chainrule.decode.strategies import Strategy
from chainrule.errors import DecodingError
from chainrule.tokens.base import Tokenizer

CONTEXT = "context"
"""The name of the draft that copies from the text itself."""
DRAFT_TOKENS = 5
"""How many tokens are drafted at once if nothing is said."""
MOST_DRAFT_TOKENS = 64

DraftSource: TypeAlias = LanguageModel | str
"""A language model, or the word context."""
GivenDraft: TypeAlias = "Draft | DraftSource | Sequence[DraftSource]"
"""A draft as callers give it: a model, the word context, several of them, or a `Draft`."""


@dataclass(frozen=True)
class Draft:
    """What guesses the next tokens, and how many."""

    sources: tuple[DraftSource, ...]
    """Models over the vocabulary of the one that writes, or "context"; the first one that has a guess makes it."""
    tokens: int = DRAFT_TOKENS
    """How many tokens are guessed at once."""
    sampled: bool = False
    """True if a model draws its guess at random, by the strategy of the text, rather than takes likely tokens.

    A drawn guess is accepted with probability min(1, p/q). More of them are accepted where the model that writes
    draws at random too; but the text of a seed is then another one than without drafts.
    """

    def __post_init__(self) -> None:
        if not self.sources:
            raise DecodingError("a draft needs a model, or the word context")
        for source in self.sources:
            if not isinstance(source, LanguageModel) and source != CONTEXT:
                raise DecodingError(f"a draft is a language model or the word {CONTEXT}, not {source!r}")
        if not 1 <= self.tokens <= MOST_DRAFT_TOKENS:
            raise DecodingError(
                f"the number of drafted tokens should be from 1 to {MOST_DRAFT_TOKENS}, not {self.tokens}"
            )
        if self.sampled and (len(self.sources) > 1 or self.sources[0] == CONTEXT):
            raise DecodingError("drafts that are drawn at random come from one model")

    def check(self, lm: LanguageModel, strategy: object) -> None:
        """Refuse models of another vocabulary than that of the model that writes."""
        if strategy is not None and not isinstance(strategy, Strategy):
            name = type(strategy).__name__.lower()
            raise DecodingError(f"drafts go with sampling and greedy decoding, not with a {name} search")
        mine = lm.tokenizer
        for source in self.sources:
            if isinstance(source, LanguageModel) and not _are_equal(source.tokenizer, mine):
                other = source.tokenizer
                raise DecodingError(
                    f"a draft needs the vocabulary of the model: the model has {mine.vocab_size:,} {mine.name} "
                    f"tokens, the draft {other.vocab_size:,} {other.name} tokens of its own; train it with the "
                    "same tokenizer (--tokenizer DIR)"
                )


@lru_cache(maxsize=16)
def _are_equal(one: Tokenizer, other: Tokenizer) -> bool:
    """Return True if two tokenizers are the same; remembered, because large vocabularies take time to compare."""
    return one is other or one.to_json() == other.to_json()


@dataclass
class DraftTally:
    """Counts of accepted and drafted tokens while texts are generated; pass one in, and read it at any time."""

    tokens: int = 0
    """How many tokens were written in steps of the model; those that complete a prompt are none of them."""
    steps: int = 0
    drafted: int = 0

    def count(self, tokens: int, steps: int, drafted: int) -> None:
        """Add what was written."""
        self.tokens, self.steps, self.drafted = self.tokens + tokens, self.steps + steps, self.drafted + drafted

    @property
    def accepted(self) -> int:
        """How many drafted tokens were right: each step writes these and one token of the model's own."""
        return self.tokens - self.steps


def as_draft(given: GivenDraft | None, lm: LanguageModel, strategy: object) -> Draft | None:
    """The given draft as a value; an error unless the model can take it together with the strategy."""
    if given is None:
        return None
    if isinstance(given, LanguageModel | str):
        given = Draft((given,))
    elif not isinstance(given, Draft):
        if not isinstance(given, Sequence):
            raise DecodingError(f"a draft is a language model or the word {CONTEXT}, not {given!r}")
        given = Draft(tuple(given))
    given.check(lm, strategy)
    return given


class ByModel:
    """The tokens that another model takes to be likely."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self._memory: Any = None

    def guess(self, new: Sequence[int], count: int) -> list[int]:
        self._memory, tokens = draft(self.lm, self._memory, np.asarray(new, dtype=np.int64), count)
        guessed: list[int] = tokens.tolist()
        return guessed


class ByCopying:
    """The tokens that came after the last few where these stood before."""

    def __init__(self) -> None:
        self._ids: list[int] = []
        self._ends: dict[tuple[int, ...], int] = {}
        """Where each short stretch of tokens ended when it was last seen, except at the end of the text."""

    def guess(self, new: Sequence[int], count: int) -> list[int]:
        ids = self._ids
        for token in new:
            for n in range(SHORTEST_MATCH, min(LONGEST_MATCH, len(ids)) + 1):
                self._ends[tuple(ids[-n:])] = len(ids)
            ids.append(int(token))
        for n in range(min(LONGEST_MATCH, len(ids)), SHORTEST_MATCH - 1, -1):
            end = self._ends.get(tuple(ids[-n:]))
            if end is not None:
                # a copy may run into what it has copied itself: that is how a text goes on that repeats itself
                period = len(ids) - end
                return [ids[end + i % period] for i in range(count)]
        return []


class Guesser:
    """Guesses the next tokens of one text, which grows: the guess of the first source that has one."""

    def __init__(self, chosen: Draft) -> None:
        self._guessers = [ByModel(s) if isinstance(s, LanguageModel) else ByCopying() for s in chosen.sources]
        self._unseen: list[list[int]] = [[] for _ in self._guessers]
        """The tokens that each of them has not seen, because it was not asked."""

    def guess(self, new: Sequence[int], count: int) -> list[int]:
        """At most `count` tokens that may come after the new ones; none if there is no guess."""
        for unseen in self._unseen:
            unseen += new
        for number, guesser in enumerate(self._guessers):
            waiting, self._unseen[number] = self._unseen[number], []
            if guessed := guesser.guess(waiting, count):
                return guessed
        return []
