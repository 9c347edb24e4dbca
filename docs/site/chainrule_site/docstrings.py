"""Docstrings, which are plain text with `code` between backticks, as reStructuredText."""

from __future__ import annotations

import builtins
import re
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

CODE = re.compile(r"(`[^`]+`)")
MARKS = re.compile(r"([*|\\]|(?<=\w)_(?!\w))")


def as_rst(lines: list[str]) -> list[str]:
    """Return lines in which backticks mean code, stars mean stars, and an indented block stays as it is.

    >>> as_rst(["A `name` of x_ * y:", "", "    a.py  first", "", "End."])
    ['A ``name`` of x\\\\_ \\\\* y:', '', '::', '', '    a.py  first', '', 'End.']
    """
    written: list[str] = []
    literal = example = False
    for before, line in zip(["", *lines], lines, strict=False):
        indented = line.startswith("    ")
        example = bool(line.strip()) and (example or line.lstrip().startswith(">>>"))
        if indented and not literal and not before.strip() and not example:
            literal = True
            written += ["::", ""]
        elif line.strip() and not indented:
            literal = False
        written.append(line if literal or example else prose(line))
    return written


def prose(line: str) -> str:
    """Return one line of prose: code in double backticks, and everything else without markup."""
    parts = CODE.split(line)
    return "".join(f"`{part}`" if CODE.fullmatch(part) else MARKS.sub(r"\\\1", part) for part in parts)


def convert(app: Sphinx, what: str, name: str, found: Any, options: Any, lines: list[str]) -> None:
    """Convert a docstring that autodoc has read."""
    lines[:] = as_rst(lines)


def leave_builtins(app: Sphinx, doctree: nodes.document) -> None:
    """Let `bytes` in a signature be Python's, and not a link to an attribute of that name."""
    for node in list(doctree.findall(addnodes.pending_xref)):
        if node.get("refdomain") == "py" and hasattr(builtins, node["reftarget"]):
            node.replace_self(nodes.Text(node["reftarget"]))


def setup(app: Sphinx) -> None:
    """Connect the events."""
    app.connect("doctree-read", leave_builtins)
    app.connect("autodoc-process-docstring", convert)
