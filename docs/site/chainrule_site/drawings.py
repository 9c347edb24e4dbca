"""Mermaid's flowcharts as tables: code hosts draw them, but a page without scripts cannot."""

from __future__ import annotations

import re
from itertools import pairwise

from docutils import nodes
from sphinx.application import Sphinx

BOX = re.compile(r'(\w+)(?:\["([^"]*)"\])?')


def arrows(text: str) -> tuple[dict[str, str], list[tuple[str, str]]]:
    """Return the label of each box, in order, and the arrows between boxes.

    >>> arrows('flowchart TD\\n a["A: first"] --> b')
    ({'a': 'A: first', 'b': 'b'}, [('a', 'b')])
    """
    labels: dict[str, str] = {}
    found = []
    for line in text.splitlines()[1:]:
        names = []
        for box in filter(None, map(str.strip, line.split("-->"))):
            name, label = BOX.fullmatch(box).groups()
            labels[name] = label or labels.get(name, name)
            names.append(name)
        found += pairwise(names)
    return labels, found


def table(text: str) -> nodes.table:
    """Return a table with a row for each box: its label, and the boxes that its arrows lead to."""
    labels, found = arrows(text)
    group = nodes.tgroup("", *(nodes.colspec(colwidth=width) for width in (3, 2)), cols=2)

    def row(*cells: str) -> nodes.row:
        return nodes.row("", *(nodes.entry("", nodes.paragraph("", cell)) for cell in cells))

    group += nodes.thead("", row("box", "arrows to"))
    body = nodes.tbody()
    for name, label in labels.items():
        body += row(label, ", ".join(end for start, end in found if start == name) or "–")
    group += body
    return nodes.table("", group)


def replace(app: Sphinx, doctree: nodes.document) -> None:
    """Replace the flowcharts of a page."""
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language") == "mermaid":
            block.replace_self(table(block.astext()))


def setup(app: Sphinx) -> None:
    """Connect the event."""
    app.connect("doctree-read", replace)
