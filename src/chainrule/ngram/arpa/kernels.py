"""Numba kernels that parse and format the lines of an ARPA file in bulk, byte by byte.

Neither kernel ever guesses. Reading stops at a line that is no ordinary n-gram, writing at a number whose last
digit is uncertain: Python handles that line, or reports what is wrong with it, and the kernel goes on after it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.arpa.numbers import DIGITS, LARGEST, LN10, ZERO

_TAB, _LF, _CR, _SPACE, _PLUS, _MINUS, _POINT, _0, _9, _E, _e = b"\t\n\r +-.09Ee"
_KEPT = 18  # digits of a mantissa that surely fit 64 bits
_EXACT = 15  # digits that surely fit the 53 bits of a float64
_POWERS = np.array([10.0**k for k in range(23)])  # all powers of ten that are exact as float64
_DOUBT = 1e-15  # bound on the relative error of a float64 computed from inexact factors
_WINDOW = 1 << 14  # bytes searched for separators at a time: few enough for the L1 cache
_NEAR_HALF = 2e-6  # bound on the error of a number scaled to a nine-digit integer, with a margin


@njit(cache=True, nogil=True)
def _power(exponent: int) -> float:
    """Return 10^exponent by a float: with an integer exponent Numba multiplies repeatedly and rounds each time."""
    return _POWERS[exponent] if 0 <= exponent < len(_POWERS) else 10.0 ** np.float64(exponent)


@njit(cache=True, nogil=True)
def _to_ln(log10: Any) -> Any:
    return np.float32(-np.inf) if log10 <= ZERO else np.float32(log10 * LN10)


@njit(cache=True, nogil=True)
def _digits(block: Any, i: int) -> Any:
    """Parse the digits from byte i on, perhaps with a decimal point, as mantissa · 10^exponent.

    Returns (mantissa, exponent, significant digits, whether there are any digits, position after them).
    """
    mantissa, exponent, kept, point, some = np.uint64(0), 0, 0, False, False
    while True:
        byte = block[i]
        if byte == _POINT and not point:
            point = True
        elif _0 <= byte <= _9:
            some = True
            if kept < _KEPT:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - _0)
                kept += 1 if mantissa else 0  # leading zeros are not significant
                exponent -= 1 if point else 0
            else:
                kept += 1  # dropped, but counted, so that the number is treated as inexact
                exponent += 0 if point else 1
        else:
            return mantissa, exponent, kept, some, i
        i += 1


@njit(cache=True, nogil=True)
def _exponent(block: Any, i: int) -> Any:
    """Parse the exponent after an e. Returns (exponent, whether it has one to four digits, position after it)."""
    sign = -1 if block[i] == _MINUS else 1
    if block[i] == _MINUS or block[i] == _PLUS:
        i += 1
    value, first = 0, i
    while _0 <= block[i] <= _9 and i - first < 5:
        value = 10 * value + (block[i] - _0)
        i += 1
    return sign * value, 0 < i - first < 5, i


@njit(cache=True, nogil=True)
def _read_number(block: Any, i: int) -> Any:
    """Parse the log10 at byte i. Returns (its value as ln, whether that is certain, position after it)."""
    sign = -1.0 if block[i] == _MINUS else 1.0
    if block[i] == _MINUS or block[i] == _PLUS:
        i += 1
    mantissa, exponent, kept, sure, i = _digits(block, i)
    if sure and (block[i] == _e or block[i] == _E):
        more, sure, i = _exponent(block, i + 1)
        exponent += more
    if not sure:
        return np.float32(0), False, i
    if mantissa == 0:
        return np.float32(sign * 0.0), True, i
    value = sign * np.float64(mantissa)
    if kept <= _EXACT and abs(exponent) <= 22:  # both factors are exact: the one rounding is correct
        value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
        return _to_ln(value), value <= LARGEST, i
    value *= _power(exponent)
    low, high = _to_ln(value * (1 - _DOUBT)), _to_ln(value * (1 + _DOUBT))
    return low, low == high and value <= LARGEST, i


@njit(cache=True, nogil=True)
def _separators(block: Any, first: int, last: int, places: Any) -> Any:
    """Write the positions of spaces, tabs and line ends to `places`. Returns one past the last line end.

    Branch-free: word lengths are unpredictable, and a mispredicted branch costs more than scanning a word.
    """
    count = 0
    for i in range(first, last):
        places[count] = i
        byte = block[i]
        count += int(byte == _SPACE) | int(byte == _TAB) | int(byte == _LF)
    while last > first and block[last - 1] != _LF:
        last -= 1
    return last


@njit(cache=True, nogil=True)
def read_lines(block: Any, i: int, n: int, begins: Any, ends: Any, log_prob: Any, log_backoff: Any) -> Any:
    """Parse lines of n-grams of n words from byte i on, as many as the arrays hold; the block ends in a line end.

    Writes where each word begins and ends, ln p and ln backoff. Stops at the first line that is no ordinary
    n-gram. Returns (how many n-grams were read, the position of that line).
    One long loop, since passing arrays between functions would take longer than the work they do.
    """
    places = np.empty(_WINDOW, np.int64)
    row, k, limit = 0, 0, i  # k is the index of the separator after the current field
    while row < len(log_prob) and i < len(block):
        if i == limit:
            limit, k = _separators(block, i, min(i + _WINDOW, len(block)), places), 0
            if i == limit:  # a line longer than the window
                break
        begin = i
        for field in range(n + 3):  # log10 p, n words, perhaps a backoff, perhaps trailing blanks
            while places[k] == begin and block[begin] != _LF:
                begin += 1
                k += 1
            end = places[k]
            last = block[end] == _LF
            if last and block[end - 1] == _CR:
                end -= 1
            if 0 < field <= n:
                begins[row * n + field - 1] = begin
                ends[row * n + field - 1] = end
                if begin >= end:
                    return row, i
            elif begin < end:
                value, sure, after = _read_number(block, begin)
                if not sure or after != end or field == n + 2:
                    return row, i
                if field == 0:
                    log_prob[row] = value
                    log_backoff[row] = 0
                else:
                    log_backoff[row] = value
            elif field == 0:
                return row, i
            if last:
                break
            begin = places[k] + 1
            k += 1
        if field < n or not last or log_prob[row] > 0:
            break
        i = places[k] + 1
        k += 1
        row += 1
    return row, i


# -- writing ----------------------------------------------------------------------------------------------


@njit(cache=True, nogil=True)
def _put_digits(out: Any, at: int, mantissa: int, digits: int, before_point: int) -> Any:
    """Write the digits of a mantissa, with a point after the first `before_point` unless none follow.

    Returns the position after them.
    """
    end = at + digits + (digits > before_point)
    place = end - 1
    for k in range(digits, 0, -1):
        if k == before_point and digits > before_point:
            out[place] = _POINT
            place -= 1
        out[place] = _0 + mantissa % 10
        mantissa //= 10
        place -= 1
    return end


@njit(cache=True, nogil=True)
def _put_number(out: Any, at: int, value: float) -> Any:
    """Write a number as "%.9g" does, minus infinity as -99. Returns (position after it, whether it is certain)."""
    if value == 0:
        out[at] = _0
        return at + 1, True
    if value < 0:
        out[at] = _MINUS
        at += 1
    if value == -np.inf:
        return _put_digits(out, at, 99, 2, 2), True
    value = abs(value)
    exponent = np.int64(np.floor(np.log10(value)))
    scaled = value * _power(DIGITS - 1 - exponent)
    mantissa = np.int64(np.floor(scaled + 0.5))
    sure = abs(scaled - np.floor(scaled) - 0.5) > _NEAR_HALF and mantissa >= 10 ** (DIGITS - 1)
    if mantissa >= 10**DIGITS:
        sure = sure and mantissa == 10**DIGITS
        mantissa //= 10
        exponent += 1
    digits = DIGITS
    while mantissa % 10 == 0 and digits > 1:
        mantissa //= 10
        digits -= 1
    return _put_decimal(out, at, mantissa, digits, exponent), sure


@njit(cache=True, nogil=True)
def _put_decimal(out: Any, at: int, mantissa: int, digits: int, exponent: int) -> Any:
    """Write d.ddd · 10^exponent: in decimal notation where "%g" uses it, else with an e. Returns the position."""
    if 0 <= exponent < DIGITS:
        while digits <= exponent:
            mantissa *= 10
            digits += 1
        return _put_digits(out, at, mantissa, digits, exponent + 1)
    if -5 < exponent < 0:
        out[at], out[at + 1] = _0, _POINT
        for k in range(-exponent - 1):
            out[at + 2 + k] = _0
        return _put_digits(out, at + 1 - exponent, mantissa, digits, digits)
    at = _put_digits(out, at, mantissa, digits, 1)
    out[at], out[at + 1] = _e, _MINUS if exponent < 0 else _PLUS
    return _put_digits(out, at + 2, abs(exponent), 2, 2)  # a float32 has no exponent of three digits


@njit(cache=True, nogil=True)
def write_lines(
    row: int, ids: Any, log_prob: Any, log_backoff: Any, with_backoff: bool, starts: Any, pool: Any, out: Any
) -> Any:
    """Write the lines of the n-grams from `row` on to `out`; word i is spelt pool[starts[i] : starts[i + 1]].

    Stops before a line whose digits are uncertain. Returns (the row of that line, how many bytes were written).
    """
    at = 0
    while row < len(ids):
        line = at
        at, sure = _put_number(out, at, np.float64(log_prob[row]) / LN10)
        for k in range(ids.shape[1]):
            out[at] = _SPACE if k else _TAB
            at += 1
            for byte in pool[starts[ids[row, k]] : starts[ids[row, k] + 1]]:
                out[at] = byte
                at += 1
        if with_backoff:
            out[at] = _TAB
            at, also = _put_number(out, at + 1, np.float64(log_backoff[row]) / LN10)
            sure = sure and also
        if not sure:
            return row, line
        out[at] = _LF
        at += 1
        row += 1
    return row, at
