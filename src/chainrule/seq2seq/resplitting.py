"""Pairs whose words are split anew in each epoch, by BPE dropout on both sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from chainrule.errors import SettingsError
from chainrule.networks.training_settings import TrainingSettings
from chainrule.tokens.base import Tokenizer, line_bounds
from chainrule.tokens.subwords.dropout import SplitDropout
from chainrule.training.engines.base import Engine
from chainrule.training.examples import PairExamples
from chainrule.training.objectives import Feed, Sequences
from chainrule.training.redrawn import Redrawn


@dataclass(frozen=True)
class ResplitPairs(PairExamples):
    """Pairs that are split anew in each epoch; a sample of them is split as usual."""

    tokenizers: tuple[Tokenizer, Tokenizer] = field(kw_only=True)
    """Those of targets and of sources."""
    share: float = field(kw_only=True)
    """The share of merges that are left out."""
    seed: int = field(kw_only=True)

    @classmethod
    def from_pairs(
        cls, pairs: PairExamples, tokenizers: tuple[Tokenizer, Tokenizer], share: float, seed: int
    ) -> ResplitPairs:
        """Return the same pairs, to be split anew; an error unless both tokenizers are BPE."""
        for one in tokenizers:
            if one.name != "bpe":
                raise SettingsError(f"split_dropout leaves out merges, which {one.name} tokens have not: take bpe")
        usual = pairs.targets, pairs.sources, pairs.next_token, pairs.longest
        return cls(*usual, tokenizers=tokenizers, share=share, seed=seed)

    @cached_property
    def words(self) -> list[SplitDropout]:
        """The words of both sides; found when they are needed, since that takes a second or so."""
        sides = zip(self.tokenizers, (self.targets, self.sources), strict=True)
        return [SplitDropout(tokenizer, _lines(tokenizer, side)) for tokenizer, side in sides]

    def taken(self, which: np.ndarray | slice) -> PairExamples:  # type: ignore[override]
        return self.usual().taken(which)

    def usual(self) -> PairExamples:
        """Return the pairs as the tokenizers split them."""
        return PairExamples(self.targets, self.sources, self.next_token, self.longest)

    def of_epoch(self, number: int) -> PairExamples:
        """Return the pairs as they are split in an epoch."""
        sides = []
        for which, words in enumerate(self.words):
            drawn = np.random.SeedSequence((self.seed % 2**64, number, which)).generate_state(1, np.uint64)
            ids = words.ids(self.share, int(drawn[0]), self.longest)
            sides.append(Sequences(ids, *line_bounds(ids, words.eos)))
        return replace(self.usual(), targets=sides[0], sources=sides[1])

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        usual = super().feed(engine, settings, seed)
        return Redrawn(usual, lambda number: self.of_epoch(number).feed(engine, settings, seed)).feed()


def _lines(tokenizer: Tokenizer, given: Sequences) -> Iterator[bytes]:
    """Yield the text of each sequence, which ends in </s>."""
    pieces = tokenizer.pieces()
    assert pieces is not None
    for start, end in zip(given.starts.tolist(), given.ends.tolist(), strict=True):
        yield b"".join(pieces[i] for i in given.ids[start : end - 1].tolist())
