"""Changes of the contents of files: of bytes, of lines and fields, of JSON values, of numbers in arrays."""

from __future__ import annotations

import json
import math
from random import Random
from typing import Any

import numpy as np

ODD: list[Any] = [
    *(0, -1, 1, 2, 3, 7, 255, 1000, 2**31, 2**63, 2**64, 10**9, 10**12, 10**30),
    *(0.0, -1.5, 1e-300, 1e300, math.inf, math.nan, True, False, None, "", "x", "0", [], {}, [1], {"a": 1}),
    *("line", "stream", "../x", "a" * 10_000, "\u0000", "\ud7ff"),
]
ODD_FIELDS = [
    *(
        b"",
        b"0",
        b"-1",
        b"99",
        b"nan",
        b"inf",
        b"-inf",
        b"1e999",
        b"-0.0",
        b"1e-400",
        b"99999999999999999999",
        b"\\",
    ),
    *(
        b"\0",
        b"\xff",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xef\xbb\xbf",
        b"\r",
        b"\t",
        b'"',
        b"'",
        b"<s>",
        b"</s>",
        b"<unk>",
    ),
    *(
        b"a" * 5000,
        b"[" * 3000,
        b"{" * 50,
        b"\\end\\",
        b"\\data\\",
        b"\\1-grams:",
        b"ngram 9=9",
        b"# x = y",
        b"1-2",
        b"1.1",
    ),
]
_NUMBERS = {
    **{f"F{bits}": f"<f{bits // 8}" for bits in (16, 32, 64)},
    **{f"{sign}{bits}": f"<{sign.lower()}{bits // 8}" for sign in "IU" for bits in (8, 16, 32, 64)},
}
"""The types of numbers in safetensors files."""


def changed(random: Random, name: str, content: bytes) -> bytes:
    """Return the content of a file with something changed, by what its name says is in it."""
    how = random.random()
    if name.endswith(".json") and how < 0.6:
        value = json.loads(content)
        change_json(random, value)
        return json.dumps(value, ensure_ascii=random.random() < 0.5).encode(errors="surrogatepass")
    if name.endswith(".safetensors") and how < 0.5:
        return change_number(random, content)
    if name.endswith((".gguf", ".bin", ".safetensors")) and how < 0.9:
        return change_bytes(random, content[:4000]) + content[4000:]  # in what describes the arrays
    if name.endswith((".parquet", ".gz", ".zst", ".bin", ".gguf", ".npz")) or how < 0.4:
        return change_bytes(random, content)
    return change_lines(random, content)


def change_bytes(random: Random, content: bytes) -> bytes:
    """Change, remove, add or repeat a few bytes, or cut off the rest."""
    if not content:
        return random.randbytes(3)
    changed, place = bytearray(content), random.randrange(len(content))
    how = random.randrange(6)
    if how == 0:
        changed[place] ^= 1 << random.randrange(8)
    elif how == 1:
        changed[place] = random.randrange(256)
    elif how == 2:
        del changed[place : place + random.randrange(1, 9)]
    elif how == 3:
        changed[place:place] = random.randbytes(random.randrange(1, 9))
    elif how == 4:
        del changed[place:]
    else:
        other = random.randrange(len(content))
        changed[place : place + 4] = content[other : other + 4]
    return bytes(changed)


def change_lines(random: Random, content: bytes) -> bytes:
    """Change one line, or one of its fields."""
    lines = content.split(b"\n")
    place, how = random.randrange(len(lines)), random.randrange(7)
    if how == 0:
        del lines[place]
    elif how == 1:
        lines.insert(place, random.choice(lines))
    elif how == 2:
        lines[place], other = random.choice(lines), lines[place]
        lines[random.randrange(len(lines))] = other
    elif how == 3:
        lines.insert(place, random.choice(ODD_FIELDS))
    else:
        mark = random.choice([b"\t", b" ", b",", b'"', b"/", b"="])
        fields = lines[place].split(mark)
        at = random.randrange(len(fields))
        if how == 4:
            del fields[at]
        else:
            fields[at : at + (how == 5)] = [random.choice(ODD_FIELDS)]
        lines[place] = mark.join(fields)
    return b"\n".join(lines)


def change_number(random: Random, content: bytes) -> bytes:
    """Replace one number of one array of a safetensors file."""
    start = 8 + int.from_bytes(content[:8], "little")
    header = json.loads(content[8:start])
    arrays = [one for name, one in header.items() if name != "__metadata__" and min(one["shape"], default=1)]
    chosen = random.choice(arrays)
    kind = np.dtype(_NUMBERS[chosen["dtype"]])
    first, last = chosen["data_offsets"]
    place = start + first + kind.itemsize * random.randrange((last - first) // kind.itemsize)
    odd: list[Any] = [0, 1, 2, 100] if kind.kind in "iu" else [0.0, -0.5, 2.0, 1e30, math.inf, math.nan]
    number = kind.type(random.choice(odd)).tobytes()
    return content[:place] + number + content[place + kind.itemsize :]


def change_json(random: Random, value: Any) -> None:
    """Change, remove or add something at a random place of a JSON value."""
    places: list[tuple[Any, Any]] = []
    _collect(value, places)
    container, key = random.choice(places)
    how = random.randrange(5)
    if how == 0:
        del container[key]
    elif how == 1 and isinstance(container[key], (int, float)) and not isinstance(container[key], bool):
        container[key] = container[key] * random.choice([-1, 0, 2, 1000, 10**6]) + random.choice([0, 1, -1])
    elif how == 2 and isinstance(container, dict):
        container[random.choice(["order", "layers", "x", ""])] = random.choice(ODD)
    else:
        container[key] = random.choice(ODD)


def _collect(value: Any, places: list[tuple[Any, Any]]) -> None:
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in list(items)[:400]:
        places.append((value, key))
        if isinstance(part, (dict, list)) and part:
            _collect(part, places)
