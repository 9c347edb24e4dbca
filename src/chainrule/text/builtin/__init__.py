"""Texts that come with the package, which every command takes, such as builtin:shakespeare.

>>> sorted(BUILTIN)
['builtin:agreement', 'builtin:gaps', 'builtin:order', 'builtin:python', 'builtin:shakespeare', 'builtin:shots']
>>> builtin_documents("builtin:shakespeare")[0].decode().splitlines()[0]
'First Citizen:'
"""

from __future__ import annotations

import lzma
import re
from collections.abc import Callable
from functools import cache, partial
from importlib.resources import files

from chainrule.text.builtin.probes import PROBES, builtin_lines


@cache
def builtin_documents(name: str) -> tuple[bytes, ...]:
    """Return the documents of one of the texts; joined, they are the text."""
    return BUILTIN[name]()


def _shakespeare() -> tuple[bytes, ...]:
    """Tiny Shakespeare: 40,000 lines of the plays; a document is a speech."""
    text = lzma.decompress(files("chainrule.text.builtin").joinpath("shakespeare.txt.xz").read_bytes())
    return tuple(re.findall(rb".+?(?:\n\n+|\Z)", text, re.DOTALL))


def _python() -> tuple[bytes, ...]:
    """Return the language reference that comes with Python; a document is a topic."""
    from pydoc_data import topics

    return tuple(topics.topics[name].strip().encode() + b"\n\n" for name in sorted(topics.topics))


def _made(name: str) -> tuple[bytes, ...]:
    """Return a made text of probes.py; a document is a sentence."""
    return tuple(f"{line}\n".encode() for line in builtin_lines(name))


BUILTIN: dict[str, Callable[[], tuple[bytes, ...]]] = {
    "builtin:shakespeare": _shakespeare,
    "builtin:python": _python,
    **{f"builtin:{name}": partial(_made, f"builtin:{name}") for name in PROBES},
}
"""The texts by their names."""
