"""Drafting in torch: the slow, obvious reference for the kernels of `chainrule.inference.gpu.draft_kernels`."""

from __future__ import annotations

import torch
from torch import Tensor

from chainrule.contract.capabilities import LONGEST_MATCH, SHORTEST_MATCH
from chainrule.inference.gpu.graph_drafting import GraphDrafter
from chainrule.inference.gpu.guess_table import FACTORS, LONGEST, MIXER, PRINT_BITS, SEED, SLOTS, GuessTable

_LENGTH, _COLUMN, _ACTIVE, _LIMIT, _STEPS, _DRAFTED = range(6)


def guess(drafter: GraphDrafter) -> None:
    """Write guesses after the text, the tokens to read, and the random numbers to choose by."""
    buffers, (_, table, K) = drafter.buffers, drafter.guesses
    text_W, length_1 = buffers.text_W, buffers.status_6[_LENGTH, None]
    further_T, back_N = torch.arange(K + 1, device=text_W.device), torch.arange(LONGEST, device=text_W.device)
    has_copy_1, guesses_K = _copied(drafter, length_1)
    for k in range(K):
        # the text grows by each guess, on which the next one depends
        end_1 = length_1 + k
        guess_1 = text_W[end_1]
        if table is not None:
            guess_1 = after(table, text_W[(end_1 - back_N).clamp(min=0)], end_1 + 1)
        text_W[end_1 + 1] = torch.where(has_copy_1, guesses_K[k], guess_1)
    buffers.places_T.copy_(length_1 + further_T)
    buffers.ids_T.copy_(text_W[buffers.places_T])
    drafter.rows.active_B.fill_(True)
    drafter.rows.uniforms_BT[:, 0] = buffers.uniforms_N[buffers.status_6[_COLUMN] + further_T]
    is_guess_1 = has_copy_1 | (table is not None)
    buffers.status_6[_DRAFTED] += (buffers.status_6[_ACTIVE] * K * is_guess_1)[0]


def _copied(drafter: GraphDrafter, length_1: Tensor) -> tuple[Tensor, Tensor]:
    """Return [True] if the last tokens stood before, and the tokens after the longest, latest such place."""
    text_W, K = drafter.buffers.text_W, drafter.guesses.tokens
    places_W = torch.arange(len(text_W), device=text_W.device)
    alive_W = (places_W >= 1) & (places_W <= length_1) & drafter.guesses.copies
    matched_W = torch.zeros_like(places_W)
    for k in range(LONGEST_MATCH):
        own_1 = text_W[(length_1 - k).clamp(min=0)]
        alive_W &= (places_W > k) & (length_1 >= k) & (text_W[(places_W - 1 - k).clamp(min=0)] == own_1)
        matched_W += alive_W
    best = torch.where(matched_W >= SHORTEST_MATCH, matched_W * len(text_W) + places_W, -1).max()
    begin_1 = (best.clamp(min=0) % len(text_W))[None]
    # a copy may run into its own tokens
    period_1 = (length_1 + 1 - begin_1).clamp(min=1)
    return (best >= 0)[None], text_W[(begin_1 + places_W[:K] % period_1).clamp(max=len(text_W) - 1)]


def after(table: GuessTable, last_N: Tensor, count_1: Tensor) -> Tensor:
    """Return the most likely token after the longest known context, as [1]; the last token if none is known.

    `last_N` has the last tokens of the text, the very last first; the first `count_1` of them count.
    """
    lengths_N = torch.arange(1, LONGEST + 1, device=last_N.device)
    total_N = ((last_N + 1) * torch.tensor(FACTORS, device=last_N.device)).cumsum(0) + SEED * lengths_N
    mixed_N = (total_N ^ (total_N >> 32)) * MIXER
    hashes_N = mixed_N ^ (mixed_N >> 29)
    slots_S = torch.arange(SLOTS, device=last_N.device)
    entries_NS = table.entries[(((hashes_N >> 32) & table.mask) * SLOTS)[:, None] + slots_S]
    fingerprints_N = (hashes_N & ((1 << PRINT_BITS) - 1)) + 1
    is_known_NS = (entries_NS >> 32 == fingerprints_N[:, None]) & (lengths_N <= count_1)[:, None]
    ranked_NS = torch.where(is_known_NS, (lengths_N << 32)[:, None] | (entries_NS & 0xFFFFFFFF), -1)
    top_1 = ranked_NS.max()[None]
    return torch.where(top_1 >= 0, top_1 & 0xFFFFFFFF, last_N[:1])


def keep(drafter: GraphDrafter) -> None:
    """Keep the guesses up to the first that was not chosen, and the token that was chosen there."""
    buffers, rows, K = drafter.buffers, drafter.rows, drafter.guesses.tokens
    status_6, tokens_T = buffers.status_6, rows.tokens_BT[:, 0]
    is_right_K = (tokens_T[:K] == buffers.ids_T[1:]) & rows.active_B[:K]
    kept_1 = is_right_K.long().cumprod(0).sum()[None]
    was_active_1 = status_6[_ACTIVE, None].clone()
    new_1 = (kept_1 + 1) * was_active_1
    columns_T = status_6[_COLUMN] + torch.arange(K + 1, device=tokens_T.device)
    # the next step overwrites the tokens after those that are kept
    buffers.text_W[buffers.places_T + 1] = tokens_T.clamp(min=0)
    buffers.tokens_N[columns_T] = tokens_T
    buffers.scores_N[columns_T] = rows.scores_BT[:, 0]
    features_1D = rows.features_BD.index_select(0, kept_1)
    buffers.last_D.copy_(torch.where(was_active_1 > 0, features_1D[0], buffers.last_D))
    status_6[_LENGTH] += new_1[0]
    status_6[_COLUMN] += new_1[0]
    status_6[_ACTIVE] *= (rows.active_B[kept_1] & (status_6[_COLUMN] < status_6[_LIMIT]))[0]
    status_6[_STEPS] += was_active_1[0]
