"""Initial weights, and how they are left out where stored weights replace them at once.

Drawing them takes seconds for a large network. On the device "meta", which has shapes and no numbers, draws and
other operations make torch import its compiler, which takes seconds for any network.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode, handle_torch_function, has_torch_function_unary


def orthogonal_(matrix: Tensor) -> Tensor:
    """Fill a matrix as `nn.init.orthogonal_` does, so that a mode of torch sees the whole call."""
    if has_torch_function_unary(matrix):
        filled: Tensor = handle_torch_function(orthogonal_, (matrix,), matrix)
        return filled
    return nn.init.orthogonal_(matrix)


def is_without_numbers() -> bool:
    """Return True if new tensors are made on "meta": then only the shapes of a network's tables are looked at."""
    return torch.empty(0).is_meta


class WithoutInitialWeights(TorchFunctionMode):
    """Within this block of code parameters stay empty where they would be drawn, and on "meta" every tensor.

    Other tensors are drawn: what a network computes from them is not stored.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function in _DRAWS:
            tensor = args[0] if args else kwargs["tensor"]
            # a part of a parameter is a view: the gates of a cell are filled one by one
            if tensor.is_meta or isinstance(tensor, nn.Parameter) or isinstance(tensor._base, nn.Parameter):
                return tensor
        return function(*args, **kwargs)


_DRAWS = {
    orthogonal_,
    Tensor.normal_,
    Tensor.uniform_,
    # these hide from a mode that they call the methods above
    nn.init.normal_,
    nn.init.uniform_,
    nn.init.kaiming_uniform_,
}
