"""Texts that come with the package, which every command takes: builtin:shakespeare and builtin:python.

>>> sorted(BUILTIN)
['builtin:python', 'builtin:shakespeare']
>>> builtin_documents("builtin:shakespeare")[0].decode().splitlines()[0]
'First Citizen:'
"""

from __future__ import annotations

import lzma
import re
from functools import cache
from importlib.resources import files


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


BUILTIN = {"builtin:shakespeare": _shakespeare, "builtin:python": _python}
"""The texts by their names."""
