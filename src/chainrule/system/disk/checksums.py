"""JSON texts that hold their own checksum."""

from __future__ import annotations

import hashlib
import re

CHECKSUM = "checksum"
"""The name of a text's checksum of itself."""
_NOTHING = "0" * 64
_SIGNED = re.compile(rf'("{CHECKSUM}": ?")([0-9a-f]{{64}})"'.encode())


def unsigned() -> str:
    """Return the value of `checksum` in a text that is to be signed."""
    return _NOTHING


def signed(text: str) -> bytes:
    """Return the bytes of a text whose first `checksum` is `unsigned`: now it is the SHA-256 of the text."""
    content = text.encode()
    return _with(content, _digest(content))


def is_signed(content: bytes) -> bool:
    """Return True if a text holds its own checksum, and is as it was when that was computed."""
    found = _SIGNED.search(content)
    return found is not None and found[2].decode() == _digest(content)


def _digest(content: bytes) -> str:
    """SHA-256 of a text with zeros in place of its checksum."""
    return hashlib.sha256(_with(content, _NOTHING)).hexdigest()


def _with(content: bytes, checksum: str) -> bytes:
    return _SIGNED.sub(rb"\g<1>" + checksum.encode() + b'"', content, count=1)
