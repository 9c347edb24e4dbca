"""The precisions that a network computes in, and the library that multiplies its matrices on a CPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from chainrule.system.devices import IS_ARM

# torch can be asked which devices these are, but torch.compile cannot trace the call
_WITH_AUTOCAST = {"cpu", "cuda", "mps", "xpu"}


def working_type(like: Tensor) -> torch.dtype:
    """Return the dtype of matrix products: that of autocast where it is on, else the tensor's own."""
    device = like.device.type
    if device in _WITH_AUTOCAST and torch.is_autocast_enabled(device):
        return torch.get_autocast_dtype(device)
    return like.dtype


def wide_type(like: Tensor) -> torch.dtype:
    """Return the dtype of sums and exponentials: that of the tensor, but at least float32."""
    return torch.promote_types(like.dtype, torch.float32)


# -- matrix products on ARM -------------------------------------------------------------------------------

_lock = threading.Lock()
_blocks: list[bool] = []  # for each block that is open in any thread, whether oneDNN was on when it began


@contextmanager
def plain_products() -> Iterator[None]:
    """Leave oneDNN out of matrix products in the block, on ARM.

    There each of its products takes half a millisecond more than the same product of BLAS, which is most of the
    time of a small network, and its LSTM takes twice as long as the products that it is made of.
    """
    if not IS_ARM or torch.compiler.is_compiling():
        yield
        return
    with _lock:
        # the switch is one for all threads: the last block that ends puts it back
        _blocks.append(torch._C._get_mkldnn_enabled() if not _blocks else _blocks[0])
        torch._C._set_mkldnn_enabled(False)  # as torch.backends.mkldnn.flags does, which warns of other flags
    try:
        yield
    finally:
        with _lock:
            was_on = _blocks.pop()
            if not _blocks:
                torch._C._set_mkldnn_enabled(was_on)


class PlainProducts(nn.Module):
    """A module that is computed in a block of `plain_products`."""

    if IS_ARM:  # elsewhere torch calls it, and compiles it, as any other module

        def __call__(self, *arguments: Any, **others: Any) -> Any:
            with plain_products():
                return super().__call__(*arguments, **others)
