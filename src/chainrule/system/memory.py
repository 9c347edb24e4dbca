"""The peak memory of a piece of work."""

from __future__ import annotations

import resource
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

_MEASURE_EVERY = 0.05  # seconds


@dataclass
class Peak:
    """The peak memory, which is known when the block has ended."""

    megabytes: float | None = None
    stop: threading.Event = field(default_factory=threading.Event)


@contextmanager
def peak_memory(device: str) -> Iterator[Peak]:
    """Measure the peak memory inside the block: of the GPU if `device` is one, else of the process."""
    peak = Peak()
    if device.startswith("cuda"):
        import torch

        torch.cuda.reset_peak_memory_stats(device)
        yield peak
        peak.megabytes = torch.cuda.max_memory_allocated(device) / 1e6
        return
    watching = threading.Thread(target=_watch, args=(peak,), daemon=True)
    watching.start()
    try:
        yield peak
    finally:
        peak.stop.set()
        watching.join()


def _watch(peak: Peak) -> None:
    while (now := _resident_megabytes()) is not None:
        peak.megabytes = max(now, peak.megabytes or 0.0)
        if peak.stop.wait(_MEASURE_EVERY):
            break


def _resident_megabytes() -> float | None:
    """Return the memory of this process; None on systems without /proc."""
    try:
        pages = int(Path("/proc/self/statm").read_bytes().split()[1])
        return pages * resource.getpagesize() / 1e6
    except OSError:
        return None
