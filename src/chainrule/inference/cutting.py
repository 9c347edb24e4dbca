"""Cutting a cache: tokens that were read ahead of time are given up, and the next ones are written over them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

from torch import Tensor

from chainrule.networks.transformer.cache import Cache

Result = TypeVar("Result")


def cutting(state: Any, ids_BT: Tensor, after: Cache, features_BTD: Tensor) -> Callable[[int], Any]:
    """The function from n to the state of a model after n of the ids, which were read from `state` on.

    `after` is the cache after all of them. The function is called once at most: what is read on from the state it
    returns is written over the tokens that were given up.
    """

    def cut(n: int) -> Any:
        kept = after.shortened(ids_BT.shape[1] - n)
        return replace(
            state, memory=kept, features_BD=features_BTD[:, n - 1], window=state.window.append(ids_BT[:, :n], None)
        )

    return cut


def once(cut: Callable[[int], Result], again: Callable[[int], Result]) -> Callable[[int], Result]:
    """The function that cuts when it is first called, and reads the tokens again whenever it is called later."""
    is_cut = False

    def state_after(n: int) -> Result:
        nonlocal is_cut
        if is_cut or n == 0:
            return again(n)
        is_cut = True
        return cut(n)

    return state_after
