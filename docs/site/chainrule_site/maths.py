"""Equations as MathML, converted by docutils: no script, no fonts from elsewhere."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError, latex2mathml
from sphinx.application import Sphinx
from sphinx.util import logging

AFTER_NAMES = re.compile(r"(<mo>&ApplyFunction;</mo>\s*)(?=<mi>|<msub>)")
"""Between the name of a function and an argument without brackets, where browsers leave no space."""
logger = logging.getLogger(__name__)


def mathml(node: nodes.Element, as_block: bool) -> str:
    """Return an equation as MathML; what docutils does not know is a warning, and stays as it was written."""
    try:
        equation = latex2mathml.tex2mathml(node.astext(), as_block=as_block)
    except MathError as error:
        logger.warning("equation: %s", error, location=node)
        return f"<code>{escape(node.astext())}</code>"
    return AFTER_NAMES.sub(r'\1<mspace width="0.17em"/>', equation)


def inline(translator: Any, node: nodes.math) -> None:
    """Write an equation in a line."""
    translator.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def display(translator: Any, node: nodes.math_block) -> None:
    """Write an equation of its own; a wide one scrolls."""
    translator.body.append(f'<div class="equation" tabindex="0">{mathml(node, as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> None:
    """Register the renderer `mathml`."""
    app.add_html_math_renderer("mathml", (inline, None), (display, None))
