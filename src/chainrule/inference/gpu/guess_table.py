"""A hash table of contexts and their most likely next tokens, small enough for a captured step to look up.

A bucket has 8 entries, each of which is a fingerprint of a context and a token. The fingerprint of another context
may be the same, and a full bucket drops entries: a guess is then wrong or missing, which costs time, nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from chainrule.contract.capabilities import BestTokens

LONGEST = 4
"""The most tokens of a context: those of a 5-gram model. The kernels have a register for each."""
SLOTS = 8
"""The entries of a bucket."""
PRINT_BITS = 30
_FACTOR = 0x5851F42D4C957F2D
FACTORS = tuple((_FACTOR**k + 2**63) % 2**64 - 2**63 for k in range(LONGEST))
"""The factors of the tokens of a context, the last token first; modulo 2^64, as signed integers."""
SEED, MIXER = 0x2545F4914F6CDD1D, 0x369DEA0F31A53F85


def context_hash(contexts_CN: np.ndarray) -> np.ndarray:
    """Return a 64-bit hash of each context: h = Σ (token + 1) · factor, plus a term for its length, then mixed."""
    length = contexts_CN.shape[1]
    total = np.full(len(contexts_CN), SEED, dtype=np.int64) * np.int64(length)
    for k in range(length):
        total += (contexts_CN[:, length - 1 - k].astype(np.int64) + 1) * np.int64(FACTORS[k])
    mixed: np.ndarray = (total ^ (total >> 32)) * np.int64(MIXER)
    hashed: np.ndarray = mixed ^ (mixed >> 29)
    return hashed


class GuessTable:
    """The table on a device."""

    def __init__(self, known: Sequence[BestTokens], device: torch.device) -> None:
        longest_first = [one for one in reversed(known) if one.contexts_CN.shape[1] <= LONGEST]
        hashes = np.concatenate([np.zeros(0, np.int64), *(context_hash(one.contexts_CN) for one in longest_first)])
        tokens = np.concatenate([np.zeros(0, np.int64), *(one.tokens_C.astype(np.int64) for one in longest_first)])
        buckets = 1 << max(len(hashes) * 2 // SLOTS, 1).bit_length()
        self.mask = buckets - 1
        bucket = (hashes >> 32) & self.mask
        order = np.argsort(bucket, kind="stable")
        bucket, hashes, tokens = bucket[order], hashes[order], tokens[order]
        slot = np.arange(len(bucket)) - np.searchsorted(bucket, bucket)
        fits = slot < SLOTS
        fingerprints = (hashes & ((1 << PRINT_BITS) - 1)) + 1  # none is 0, which is an empty entry
        entries = np.zeros(buckets * SLOTS, dtype=np.int64)
        entries[(bucket * SLOTS + slot)[fits]] = ((fingerprints << 32) | tokens)[fits]
        self.entries = torch.from_numpy(entries).to(device)
