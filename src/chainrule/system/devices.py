"""Devices: which one to compute on, and whether its bfloat16 is fast."""

from __future__ import annotations

import platform
import sys
import textwrap
import time
import warnings
from contextlib import AbstractContextManager, nullcontext
from importlib.util import find_spec
from typing import Any

from chainrule.errors import MissingExtraError, SettingsError

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
"""Whether the CPU is an ARM one, for which torch has slower functions."""

_PEAKS = {
    "H200": 989e12,
    "H100": 989e12,
    "A100": 312e12,
}
"""Dense bfloat16 operations per second, by a part of the device's name; as the makers give them."""


def has_torch() -> bool:
    """Return True if torch is installed; it is not imported."""
    return find_spec("torch") is not None


def has_triton() -> bool:
    """Return True if Triton, which compiles the kernels for a GPU, is installed; it is not imported."""
    return find_spec("triton") is not None


def choose_device(name: str) -> str:
    """The device `name`, once it has proved to work; `auto` is an accelerator if there is one, else the CPU."""
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
    except (RuntimeError, AssertionError, NotImplementedError) as error:  # torch built without CUDA asserts
        reason = textwrap.shorten(str(error), 80, placeholder=" ...")
        raise SettingsError(f"the device {name!r} cannot be used here ({reason}): use cpu or auto") from None
    return name


def current_device(device: Any) -> AbstractContextManager[Any]:
    """Return a context in which `device` is torch's current GPU; a no-op for other devices.

    CUDA graphs and Triton kernels use the current GPU, by default the first, wherever their tensors are.
    """
    import torch

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def has_fast_bfloat16() -> bool:
    """Whether this CPU multiplies matrices in bfloat16 at least as fast as in float32, measured on a small one.

    A CPU without instructions for bfloat16 is far slower in it.
    """
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
    """Silence torch's page-long C++ warning on a CPU without instructions for bfloat16."""
    if device == "cpu":
        warnings.filterwarnings("ignore", message=r"mkldnn_\w+ failed", category=UserWarning)


def peak_memory() -> int:
    """Return the most memory that this process has taken so far, in bytes; 0 on a system that does not count it."""
    try:
        import resource
    except ModuleNotFoundError:  # as on Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def peak_flops(device: Any) -> float | None:
    """Floating-point operations per second of a torch device at best; None where that is not known."""
    if device.type != "cuda":
        return None
    import torch

    words = torch.cuda.get_device_name(device).replace("-", " ").split()
    return next((value for name, value in _PEAKS.items() if name in words), None)
