"""Masking: the parts of a log line that are new in every line become zeros, so that a model learns the rest.

Times, dates, numbers, hexadecimal strings and addresses are masked. The masked text is as long as the text, byte by
byte, so that a place in one is a place in the other.

>>> mask_variables(b"Nov 11 09:14:02 host sshd[4711]: session 0x7ffe91 from 10.0.0.7 port 50122")
b'000 00 00:00:00 host sshd[0000]: session 00000000 from 00.0.0.0 port 00000'
"""

from __future__ import annotations

import re

_MONTHS = rb"Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec"
_DAYS = rb"Mon|Tue|Wed|Thu|Fri|Sat|Sun"
_DATE_WORD = re.compile(  # the name of a day or a month before or after a number
    rb"\b(?:%b|%b)\b(?=[ ,/-]+(?:%b|\d))|(?<=\d[ /-])(?:%b)\b" % (_DAYS, _MONTHS, _MONTHS, _MONTHS)
)
_PADDED_DAY = re.compile(rb"(?<=000 ) (?=\d )")  # of Nov  3, which is as long as Nov 11
_HEXADECIMAL = re.compile(
    rb"\b0[xX][0-9a-fA-F]+\b"  # 0x7ffe91
    rb"|\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b"  # a UUID
    rb"|\b(?:[0-9a-fA-F]{1,4}:){3,}[0-9a-fA-F:]*[0-9a-fA-F]\b"  # a MAC or an IPv6 address
    rb"|\b(?=[a-fA-F]*[0-9])[0-9a-fA-F]{6,}\b"  # a digest
)
_LIKE_HEXADECIMAL = re.compile(rb"\b[0-9a-fA-F][0-9a-fA-FxX:-]{2,}+(?![0-9A-Za-z_])")  # for speed: all of those
_SIGNS = bytes.maketrans(b"0123456789abcdefABCDEFxX", b"0" * 24)
_DIGITS = bytes.maketrans(b"0123456789", b"0" * 10)


def mask_variables(text: bytes) -> bytes:
    """Return the text with zeros for every digit, date and hexadecimal string; its length stays the same."""
    text = _PADDED_DAY.sub(b"0", _DATE_WORD.sub(b"000", text))
    return _LIKE_HEXADECIMAL.sub(_zeros, text.translate(_DIGITS))  # digits first: what is masked stays the same


def _zeros(like: re.Match[bytes]) -> bytes:
    return _HEXADECIMAL.sub(lambda found: found[0].translate(_SIGNS), like[0])
