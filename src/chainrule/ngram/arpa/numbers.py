"""The numbers of an ARPA file, log10 in the file and ln in memory.

The format has no minus infinity. The logarithm of zero is written as -99, as SRILM does; a log-probability or
log-backoff of -99 or less is read as minus infinity, whatever the word.
"""

from __future__ import annotations

import math
import re

import numpy as np

LN10 = math.log(10.0)
ZERO = -99.0
LARGEST = 1e30
"""The largest log10 accepted as a number; its ln is still finite as float32."""
DIGITS = 9
"""Significant digits written. Their relative error is at most 5e-9, and it takes 3e-8 to get from a float32 to a
number nearer to its neighbour, so reading gives back the very float32 that was written."""

_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def read_number(text: bytes) -> float | None:
    """Return the ln, rounded to float32, of a log10 in text; None if the text is not a finite number."""
    if not _NUMBER.fullmatch(text):
        return None
    log10 = float(text)
    if log10 > LARGEST:
        return None
    return float(np.float32(log10 * LN10)) if log10 > ZERO else -math.inf


def write_number(ln: float) -> bytes:
    """Return the text of the log10 of a number given as ln, in as many digits as a float32 needs."""
    log10 = max(ln / LN10, ZERO) if ln == -math.inf else ln / LN10
    return b"%.9g" % (log10 + 0.0)  # + 0.0 turns a negative zero into 0
