"""The objective of masked models: some tokens are hidden, and predicted from all others (Devlin and others 2019).

15 % of the tokens of a row are predicted. 80 % of these are replaced by [MASK], 10 % by a random token, and 10 %
stay as they are: the network cannot know which of the tokens it reads are right, and has to represent all.

A tenth of the rows have no [MASK]: their predicted tokens are random ones or stay, half of them each. The shares of
the other rows make up for that. Without such rows a large network came to rely on
[MASK] in every row: in text without it, the network often did not know the token that it read
(benchmarks/results/masked.md).

The choice is random, but a function of the seed, the number of the epoch and the token's index in the text: each
epoch hides other tokens, a validation always the same, and a resumed run the same as one that never stopped. The
arithmetic is that of whole numbers, so that NumPy and torch make equal batches.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

import numpy as np
from array_api_compat import device

from chainrule.arrays import PAD, Array, array_namespace
from chainrule.networks.training_settings import TrainingSettings
from chainrule.networks.transformer.settings import MASKED_SHARE as SHARE
from chainrule.tokens.base import line_bounds
from chainrule.training.engines.base import Engine
from chainrule.training.examples import TextExamples
from chainrule.training.layouts import Predicting, Rows
from chainrule.training.objectives import Batch, Feed, NextToken, Objective, Stretches

MASKED, RANDOM = 0.8, 0.1
"""The shares of the predicted tokens that are replaced by [MASK], and by a random token."""

PLAIN = 0.1
"""The share of the rows without [MASK]."""

_WORD = (1 << 32) - 1
_COLUMN_BITS = 20  # a row has fewer columns than 2^20
_LAST = 1 << 62  # behind every token that can be chosen
_BEGINNING = 8  # times the tokens on which steps of other networks are timed
_CHOICE, _FATE, _TOKEN, _ROW = range(4)  # three random numbers for each token, one for each row


def predicted_count(length: Array, share: float) -> Array:
    """Return how many tokens of a row are predicted: its share, rounded, and at least one; none of an empty row.

    >>> [predicted_count(np.asarray(n), 0.15).item() for n in (0, 1, 10, 11, 255)]
    [0, 1, 2, 2, 38]
    """
    xp = array_namespace(length)
    millionths = round(share * 1_000_000)  # in whole numbers: every library rounds alike
    rounded = (length * millionths + 500_000) // 1_000_000
    return xp.where(length > 0, xp.clip(rounded, min=1), 0)


@dataclass(frozen=True)
class Masking(Objective):
    """Predict hidden tokens. Inputs are the rows with the token before them, [B, T + 1]; targets are [B, T].

    Where rows are padded the inputs are (tokens, whether each is one).
    """

    before: NextToken
    """The objective that puts the right token before a row."""
    vocab_size: int
    """The number of tokens; it is the id of [MASK] as well."""
    seed: int
    share: float = SHARE
    name: ClassVar[str] = "masking"

    def count(self, rows: Rows) -> int:
        """Return how many tokens of the rows of a batch are predicted."""
        return int(predicted_count(rows.lengths_B - rows.skips_B, self.share).sum())

    def batch(self, stretches: Stretches) -> Batch:
        ids_BS = self.before.with_start(stretches)
        xp, where = array_namespace(ids_BS), device(ids_BS)
        columns_T = xp.arange(ids_BS.shape[1] - 1, device=where)
        places_BT = stretches.starts_B[:, None] + columns_T
        is_inside_BT = columns_T < stretches.lengths_B[:, None]
        is_free_BT = is_inside_BT & (columns_T >= stretches.skips_B[:, None])
        count_B1 = predicted_count(stretches.lengths_B - stretches.skips_B, self.share)[:, None]

        # the tokens with the smallest random numbers are predicted; the column makes each number another one
        drawn_BT = (self._drawn(places_BT, stretches.epoch, _CHOICE) << _COLUMN_BITS) + columns_T
        drawn_BT = xp.where(is_free_BT, drawn_BT, _LAST)
        last_B1 = xp.take_along_axis(xp.sort(drawn_BT, axis=-1), xp.clip(count_B1 - 1, min=0), axis=-1)
        is_predicted_BT = (drawn_BT <= last_B1) & is_free_BT

        true_BT = ids_BS[:, 1:]
        targets_BT = xp.where(is_predicted_BT, true_BT, PAD)
        is_plain_B1 = self._drawn(stretches.starts_B[:, None], stretches.epoch, _ROW) < _bound(PLAIN)
        fate_BT = self._drawn(places_BT, stretches.epoch, _FATE)
        # below one bound a token is masked, below the next it is random; the rest of a row is divided alike in all
        masked, random = MASKED / (1 - PLAIN), RANDOM / (1 - MASKED)
        masked_B1 = xp.where(is_plain_B1, 0, _bound(masked))
        random_B1 = xp.where(is_plain_B1, _bound(random), _bound(masked + random * (1 - masked)))
        is_masked_BT = is_predicted_BT & (fate_BT < masked_B1)
        is_random_BT = is_predicted_BT & ~is_masked_BT & (fate_BT < random_B1)
        # u V / 2^32, a token for a random number u of 32 bits
        random_BT = (self._drawn(places_BT, stretches.epoch, _TOKEN) * self.vocab_size) >> 32
        read_BT = xp.where(is_masked_BT, self.vocab_size, xp.where(is_random_BT, random_BT, true_BT))
        read_BS = xp.concat([ids_BS[:, :1], read_BT], axis=1)
        if stretches.is_full:
            return Batch(read_BS, targets_BT)
        # the token before a row is always read: no row is nothing but padding
        is_token_BS = xp.concat([xp.ones_like(is_inside_BT[:, :1]), is_inside_BT], axis=1)
        return Batch((xp.where(is_token_BS, read_BS, 0), is_token_BS), targets_BT)

    def _drawn(self, places_BT: Array, epoch: int | None, which: int) -> Array:
        """Return a random number from 0 to 2^32 - 1 for each place in the text."""
        keys = np.random.SeedSequence((self.seed % 2**64, 0 if epoch is None else epoch + 1, which))
        first, second = keys.generate_state(2).tolist()
        return _mixed(_mixed((places_BT & _WORD) ^ first) ^ _mixed((places_BT >> 32) + second & _WORD))


def _bound(share: float) -> int:
    """Return the bound below which this share of all random numbers is."""
    return int(share * (1 << 32))


def _mixed(words: Array) -> Array:
    """Return each 32-bit word scrambled: similar words become different ones."""
    for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B)):
        words = ((words ^ (words >> shift)) * factor) & _WORD
    return words ^ (words >> 16)


@dataclass(frozen=True)
class MaskedExamples(TextExamples):
    """A text; some of its tokens are hidden and predicted."""

    objective: Masking

    @property
    def tokens(self) -> int:
        """The number of tokens predicted in an epoch; it ignores that long lines and texts are read in pieces."""
        lengths = np.diff(line_bounds(self.ids, self.eos), axis=0) if self.context == "line" else len(self.ids)
        return int(predicted_count(np.asarray(lengths), self.objective.share).sum())

    def sampled(self, tokens: int) -> Self:
        return super().sampled(round(tokens / self.tokens * len(self.ids)))

    def beginning(self, tokens: int) -> Self:
        # in a short text every batch has one of its ends, which is padded: steps would be timed on these alone
        return super().beginning(_BEGINNING * tokens)

    def feed(self, engine: Engine, settings: TrainingSettings, seed: int) -> Feed:
        feed = super().feed(engine, settings, seed)
        return Feed(Predicting(feed.layout, self.objective.count), feed.gatherer)
