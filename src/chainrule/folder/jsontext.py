"""JSON text that every reader accepts, infinity included."""

from __future__ import annotations

import json
import re
from typing import Any

_STRINGS_AND_CONSTANTS = re.compile(r'"(?:[^"\\]|\\.)*"|-?Infinity|NaN')
_STANDARD = {"Infinity": "1e999", "-Infinity": "-1e999", "NaN": "null"}


def to_json(value: Any, indent: int | None = None) -> str:
    """Return the value as strict JSON: infinity is written 1e999, which reads back as infinity, and NaN is null."""
    text = json.dumps(value, ensure_ascii=False, indent=indent)
    return _STRINGS_AND_CONSTANTS.sub(lambda found: _STANDARD.get(found[0], found[0]), text)
