"""The numbers of an ARPA file: log10 there, ln here.

The format cannot say minus infinity. Its zero is -99, as SRILM writes it: whatever is -99 or less, a probability or
a backoff, of <s> or of any other word, is read as minus infinity; minus infinity is written as -99.
"""

from __future__ import annotations

import math
import re

import numpy as np

LN10 = math.log(10.0)
ZERO = -99.0
LARGEST = 1e30
"""The largest log10 that is a number to us; its ln is still finite as float32."""
DIGITS = 9
"""Significant digits written: they are off by 5e-9 of the number at most, and it takes 3e-8 to get from a float32
to what is nearer to its neighbour. So what is read is the very float32 that was written."""

_NUMBER = re.compile(rb"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?")


def read_number(text: bytes) -> float | None:
    """A log10 as ln, rounded to float32; None if the text is no finite number."""
    if not _NUMBER.fullmatch(text):
        return None
    log10 = float(text)
    if log10 > LARGEST:
        return None
    return float(np.float32(log10 * LN10)) if log10 > ZERO else -math.inf


def write_number(ln: float) -> bytes:
    """A ln as log10, in as many digits as it takes."""
    log10 = max(ln / LN10, ZERO) if ln == -math.inf else ln / LN10
    return b"%.9g" % (log10 + 0.0)  # + 0.0: there is no use for a negative zero
