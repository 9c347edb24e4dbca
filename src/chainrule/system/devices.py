"""Devices: choosing one to compute on, and measuring its speed and memory."""

from __future__ import annotations

import mmap
import platform
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from chainrule.errors import MissingExtraError, SettingsError

IS_ARM = platform.machine().lower() in ("aarch64", "arm64")
"""True if the CPU is an ARM one, for which some functions of torch are slower."""

_MEASURE_EVERY = 0.05  # seconds
_PEAKS = {"H200": 989e12, "H100": 989e12, "A100": 312e12}
"""Dense bfloat16 operations per second according to the maker, by a word of the device's name."""


def has_torch() -> bool:
    """Return True if torch is installed; it is not imported."""
    return find_spec("torch") is not None


def has_triton() -> bool:
    """Return True if Triton, which compiles the kernels for a GPU, is installed; it is not imported."""
    return find_spec("triton") is not None


def load_torch_whole() -> None:
    """Import torch and what it would import at its first optimiser, which takes seconds.

    Of networks that share a time, the first would otherwise pay for all.
    """
    import_module("torch._dynamo")


def choose_device(name: str) -> str:
    """Check that the device `name` works and return it; `auto` is an accelerator if there is one, else the CPU."""
    if name == "cpu" or (name == "auto" and _is_for_cpus()):
        return "cpu"
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


def _is_for_cpus() -> bool:
    """Return True if the build of torch that is installed is for CPUs alone; it takes seconds to import."""
    from importlib.metadata import PackageNotFoundError, version

    if "torch" in sys.modules:
        return False  # it can be asked at once
    try:
        return version("torch").endswith("+cpu")
    except PackageNotFoundError:
        return False


def current_device(device: Any) -> AbstractContextManager[Any]:
    """Return a context in which `device` is torch's current GPU; a no-op for other devices.

    CUDA graphs and Triton kernels use the current GPU, by default the first, wherever their tensors are.
    """
    import torch

    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def has_fast_bfloat16() -> bool:
    """Return True if this CPU multiplies a small matrix in bfloat16 at least as fast as in float32.

    A CPU without instructions for bfloat16 is far slower with it.
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
    """Return the peak memory of this process so far, in bytes; 0 on a system that does not count it."""
    try:
        import resource
    except ModuleNotFoundError:  # as on Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


def private_memory() -> int:
    """Return the memory that this process shares with no file, in bytes; 0 on a system that does not tell."""
    try:
        _, resident, shared, *_ = map(int, Path("/proc/self/statm").read_bytes().split())
    except OSError:  # a system without /proc
        return 0
    return (resident - shared) * mmap.PAGESIZE


@dataclass
class Peak:
    """The peak memory of a block, which is known when the block has ended; None if the system does not tell."""

    megabytes: float | None = None


@contextmanager
def peak_memory_inside(device: str) -> Iterator[Peak]:
    """Measure the peak memory inside the block: of the GPU if `device` is one, else of the process."""
    peak, ended = Peak(), threading.Event()
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.megabytes = torch.cuda.max_memory_allocated(device) / 1e6
        return

    def watch() -> None:
        with suppress(OSError):  # a system without /proc
            while True:
                pages = int(Path("/proc/self/statm").read_bytes().split()[1])
                peak.megabytes = max(pages * mmap.PAGESIZE / 1e6, peak.megabytes or 0.0)
                if ended.wait(_MEASURE_EVERY):
                    return

    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        yield peak
    finally:
        ended.set()
        watching.join()


def peak_flops(device: Any) -> float | None:
    """Return the peak floating-point operations per second of a torch device; None if they are not known."""
    if device.type != "cuda":
        return None
    import torch

    words = torch.cuda.get_device_name(device).replace("-", " ").split()
    return next((value for name, value in _PEAKS.items() if name in words), None)
