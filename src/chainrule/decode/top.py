"""The k largest values of each row, on the device of the array; among equals the lowest index comes first."""

from __future__ import annotations

from typing import Any

import numpy as np

from chainrule.arrays import Array, array_namespace, cumulative_sum

_FIRST = 512  # values that are sorted at first; eight times as many if their probabilities do not suffice


def top_k(values_BN: Array, k: int) -> tuple[Array, Array]:
    """The k largest values of each row, largest first, and their indices; fewer if a row has fewer."""
    if isinstance(values_BN, np.ndarray):
        places_BK = np.stack([top_of_row(row, k) for row in values_BN])
    else:
        places_BK = _top_places(values_BN, min(k, values_BN.shape[-1]))
    return array_namespace(values_BN).take_along_axis(values_BN, places_BK, axis=-1), places_BK


def _top_places(values_BN: Any, k: int) -> Any:
    """The places of the k largest values of each row of a torch tensor, without sorting whole rows."""
    if values_BN.device.type != "cpu" and values_BN.element_size() <= 4:
        return top_places_by_bits(values_BN, k)
    values_BM, places_BM = values_BN.topk(min(k + 1, values_BN.shape[-1]), dim=-1)
    # which of the values that equal the k-th largest `topk` takes is not said: that matters if it leaves any
    if values_BM.shape[-1] > k and bool((values_BM[:, k] == values_BM[:, k - 1]).any()):
        return values_BN.argsort(dim=-1, descending=True, stable=True)[:, :k]
    places_BK = places_BM[:, :k].sort(dim=-1).values
    order_BK = values_BN.gather(-1, places_BK).argsort(dim=-1, descending=True, stable=True)
    return places_BK.gather(-1, order_BK)


def top_places_by_bits(values_BN: Any, k: int) -> Any:
    """The same on a device, which the host does not wait for: each value and its place are one integer.

    The bits of a number have its order if those of negative numbers are flipped; among equals the lowest place
    makes the largest integer.
    """
    import torch

    bits_BN = (values_BN.float() + 0.0).view(torch.int32).long()  # -0 becomes 0
    ordered_BN = torch.where(bits_BN < 0, bits_BN ^ 0x7FFFFFFF, bits_BN)
    last = values_BN.shape[-1] - 1
    from_end_N = torch.arange(last, -1, -1, device=values_BN.device)
    return last - (((ordered_BN << 32) + from_end_N).topk(k, dim=-1).values & 0xFFFFFFFF)


def top_of_row(row: np.ndarray, k: int) -> np.ndarray:
    """The indices of the k largest values, in linear time: only values that reach the k-th largest are sorted."""
    if k >= len(row):
        return np.argsort(-row, kind="stable")
    least = np.partition(row, len(row) - k)[len(row) - k]
    candidates = np.flatnonzero(row >= least)
    return candidates[np.argsort(-row[candidates], kind="stable")[:k]]


def reaching_top(values_BN: Array, k: int) -> Array:
    """A mask of the k largest values of each row, the lowest indices among equals, without sorting."""
    if k >= values_BN.shape[-1]:
        return values_BN == values_BN
    xp = array_namespace(values_BN)
    if isinstance(values_BN, np.ndarray):
        least_B1 = np.partition(values_BN, values_BN.shape[-1] - k, axis=-1)[:, -k, None]
    else:
        least_B1 = values_BN.topk(k, dim=-1).values[:, -1:]
    above_BN, equal_BN = values_BN > least_B1, values_BN == least_B1
    room_B1 = k - xp.sum(xp.astype(above_BN, xp.int32), axis=-1, keepdims=True)
    return above_BN | (equal_BN & (cumulative_sum(xp.astype(equal_BN, xp.int32)) <= room_B1))


def reaching_share(values_BN: Array, prob_BN: Array, share: float) -> Array:
    """A mask of the fewest largest values of each row whose probabilities sum to `share`."""
    if not isinstance(values_BN, np.ndarray):
        return reaching_share_by_sorting(values_BN, prob_BN, share)
    mask_BN = np.zeros(values_BN.shape, dtype=bool)
    for row, prob, mask in zip(values_BN, prob_BN, mask_BN, strict=True):
        k, order = _FIRST, np.zeros(0, np.int64)
        while len(order) < len(row) and not prob[order].sum() > share:
            order = top_of_row(row, k)
            k *= 8
        mask[order[_inside(prob[order], share)]] = True
    return mask_BN


def reaching_share_by_sorting(values_BN: Array, prob_BN: Array, share: float) -> Array:
    """The same as `reaching_share`, for any library of arrays; all values are sorted."""
    xp = array_namespace(values_BN)
    order_BN = xp.argsort(-values_BN, axis=-1, stable=True)
    inside_BN = _inside(xp.take_along_axis(prob_BN, order_BN, axis=-1), share)
    return xp.take_along_axis(inside_BN, xp.argsort(order_BN, axis=-1), axis=-1)


def _inside(sorted_BN: Array, share: float) -> Array:
    # one is in if those before it do not make up the share yet (0.5 + 0.3 makes up 0.8, however it is rounded)
    before_BN = cumulative_sum(sorted_BN) - sorted_BN
    return before_BN < share * (1 - 1e-9)
