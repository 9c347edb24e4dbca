"""Where to compute."""

from __future__ import annotations

import textwrap
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from chainrule.errors import MissingExtraError, SettingsError


def has_torch() -> bool:
    """Whether torch is installed; it is not imported."""
    return find_spec("torch") is not None


def choose_device(name: str) -> str:
    """The device of that name, known to work; `auto` is an accelerator if there is one, else the CPU."""
    if name == "cpu":
        return name
    try:
        import torch
    except ModuleNotFoundError:
        if name == "auto":
            return "cpu"
        raise MissingExtraError("torch", "neural", f"the device {name!r}") from None
    if name == "auto":
        found = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        return "cpu" if found is None else found.type
    try:
        torch.zeros(1, device=name).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # a torch without CUDA asserts
        reason = textwrap.shorten(str(error), 80, placeholder=" ...")
        raise SettingsError(f"the device {name!r} cannot be used here ({reason}): use cpu or auto") from None
    return name


def current_device(device: Any) -> AbstractContextManager[Any]:
    """Where graphs are recorded and kernels of our own run meanwhile: torch's first GPU, unless it is told."""
    import torch

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies in bfloat16 at least as fast: one without instructions for it is far slower."""
    import torch

    def seconds(dtype: torch.dtype) -> float:
        matrix = torch.ones(256, 256, dtype=dtype)
        matrix @ matrix
        began = time.perf_counter()
        matrix @ matrix
        return time.perf_counter() - began

    expect_slow_bfloat16("cpu")
    return seconds(torch.bfloat16) <= seconds(torch.float32)


def expect_slow_bfloat16(device: str) -> None:
    """On a CPU without instructions for bfloat16 torch is slow, and says so with a page of C++: let it not."""
    if device == "cpu":
        warnings.filterwarnings("ignore", message=r"mkldnn_\w+ failed", category=UserWarning)
