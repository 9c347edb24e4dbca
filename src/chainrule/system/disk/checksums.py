"""JSON texts that every reader accepts, and texts with a checksum of themselves."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any

CHECKSUM = "checksum"
"""The key of the checksum in a text."""
UNSIGNED = "0" * 64
"""The value of `checksum` in a text before it is signed."""
_SIGNED = re.compile(rf'("{CHECKSUM}": ?")([0-9a-f]{{64}})"'.encode())

_STRINGS_AND_CONSTANTS = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_STANDARD = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}


def to_json(value: Any, indent: int | None = None) -> str:
    """Return the value as strict JSON: infinity is written 1e999, which reads back as infinity, and NaN is null.

    >>> to_json({"loss": float("inf")})
    '{"loss": 1e999}'
    """
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _STRINGS_AND_CONSTANTS.sub(lambda found: _STANDARD.get(found[0], found[0]), text)


def signed(text: str) -> bytes:
    """Return the bytes of a text with its first `checksum` set to the SHA-256 of the text."""
    content = text.encode()
    return _with(content, _digest(content))


def is_signed(content: bytes) -> bool:
    """Return True if a text has a checksum of itself, and has not changed since that was computed."""
    found = _SIGNED.search(content)
    return found is not None and found[2].decode() == _digest(content)


def _digest(content: bytes) -> str:
    """Return the SHA-256 of a text with zeros in place of its checksum."""
    return hashlib.sha256(_with(content, UNSIGNED)).hexdigest()


def _with(content: bytes, checksum: str) -> bytes:
    return _SIGNED.sub(rb"\g<1>" + checksum.encode() + b'"', content, count=1)
