"""What the site needs beyond Sphinx and MyST, an extension in seven small files.

navigation.py     the order of pages, and the page at the root of the site
lessons.py        lessons as their readers see them
sources.py        pages of source files, for links that leave the documents
maths.py          equations as MathML, which browsers draw without a script
drawings.py       Mermaid's flowcharts as tables
docstrings.py     docstrings, which are plain text, as reStructuredText
accessibility.py  pages that a keyboard and a screen reader can use
"""

from __future__ import annotations

from sphinx.application import Sphinx

from chainrule_site import accessibility, docstrings, drawings, lessons, maths, navigation, sources


def setup(app: Sphinx) -> dict[str, bool]:
    """Register all parts."""
    for part in (lessons, navigation, sources, maths, drawings, docstrings, accessibility):
        part.setup(app)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
