"""The lines of an ARPA file read and written in bulk: the loops over bytes, compiled by Numba.

Neither kernel ever guesses. Reading stops at a line that is not plainly an n-gram, writing at a number whose last
digit is in doubt: Python does that line, or says what is wrong with it, and the kernel goes on behind it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from chainrule.ngram.arpa.numbers import DIGITS, LARGEST, LN10, ZERO

_TAB, _LF, _CR, _SPACE, _PLUS, _MINUS, _POINT, _0, _9, _E, _e = b"\t\n\r +-.09Ee"
_KEPT = 18  # digits of a mantissa that surely fit 64 bits
_EXACT = 15  # digits that surely fit the 53 bits of a float64
_POWERS = np.array([10.0**k for k in range(23)])  # all that are exact as float64
_DOUBT = 1e-15  # how far a float64 made of inexact parts can be off, relatively
_WINDOW = 1 << 14  # bytes whose separators are looked for at once: they stay in the nearest cache
_NEAR_HALF = 2e-6  # how far nine digits scaled to an integer can be off, with room to spare


@njit(cache=True, nogil=True)
def _power(exponent: int) -> float:
    """10^exponent; as a float, since Numba raises to integers by multiplying, which rounds again and again."""
    return _POWERS[exponent] if 0 <= exponent < len(_POWERS) else 10.0 ** np.float64(exponent)


@njit(cache=True, nogil=True)
def _to_ln(log10: Any) -> Any:
    return np.float32(-np.inf) if log10 <= ZERO else np.float32(log10 * LN10)


@njit(cache=True, nogil=True)
def _digits(block: Any, i: int) -> Any:
    """mantissa · 10^exponent from byte i on. Returns (mantissa, exponent, digits in it, whether any, position)."""
    mantissa, exponent, kept, point, some = np.uint64(0), 0, 0, False, False
    while True:
        byte = block[i]
        if byte == _POINT and not point:
            point = True
        elif _0 <= byte <= _9:
            some = True
            if kept < _KEPT:
                mantissa = mantissa * np.uint64(10) + np.uint64(byte - _0)
                kept += 1 if mantissa else 0  # zeros in front are no digits of it
                exponent -= 1 if point else 0
            else:
                kept += 1  # beyond what is kept: counted, so that the number passes for inexact
                exponent += 0 if point else 1
        else:
            return mantissa, exponent, kept, some, i
        i += 1


@njit(cache=True, nogil=True)
def _exponent(block: Any, i: int) -> Any:
    """What follows an e. Returns (exponent, whether it is one and of a sane size, position)."""
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
    """The log10 at byte i as ln. Returns (it, whether that is certain, position behind it)."""
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
    if kept <= _EXACT and abs(exponent) <= 22:  # two exact numbers: the one rounding is the right one
        value = value / _POWERS[-exponent] if exponent < 0 else value * _POWERS[exponent]
        return _to_ln(value), value <= LARGEST, i
    value *= _power(exponent)
    low, high = _to_ln(value * (1 - _DOUBT)), _to_ln(value * (1 + _DOUBT))
    return low, low == high and value <= LARGEST, i


@njit(cache=True, nogil=True)
def _separators(block: Any, first: int, last: int, places: Any) -> Any:
    """Put down where the spaces, tabs and line ends are. Returns one past the last line end.

    Without a branch: how long a word is cannot be foretold, and a wrong guess costs more than a word's bytes.
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
    """N-grams of n words from byte i on, as many as the arrays hold; the block ends in a line end.

    Stops at the first line that is not plainly an n-gram. Returns (how many, the position of that line).
    One long loop, since handing arrays from function to function takes longer than what they would do.
    """
    places = np.empty(_WINDOW, np.int64)
    row, k, limit = 0, 0, i  # k is the number of the separator behind the present field
    while row < len(log_prob) and i < len(block):
        if i == limit:
            limit, k = _separators(block, i, min(i + _WINDOW, len(block)), places), 0
            if i == limit:  # a line longer than the window
                break
        begin = i
        for field in range(n + 3):  # the number, n words, perhaps a backoff, and blanks at the end
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
    """The digits of a mantissa, a point behind the first `before_point` of them unless that is the end."""
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
    """What "%.9g" makes of a number; -99 of minus infinity. Returns (position, whether that is certain)."""
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
    """d.ddd · 10^exponent: written out where "%g" does so, else with an e."""
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
    """The lines of n-grams from `row` on; stops before one whose digits are in doubt. Returns (row, bytes)."""
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
