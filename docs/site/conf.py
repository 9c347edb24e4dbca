"""The documentation site: what Sphinx reads, how pages are ordered, how they look. `make site` builds it.

The source folder is the root of the repository, so a relative link means the same here and on a code host.
Navigation stands here and not in the pages, because a code host shows a `toctree` as a block of code.
"""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(ROOT / "src")]

from chainrule_site.sources import linkcode_resolve  # noqa: E402, F401

from chainrule._version import __version__  # noqa: E402

project = "chainrule"
release = __version__
root_doc = "docs/README"
include_patterns = [
    "docs/**.md",
    "src/chainrule/course/lessons/*.md",
    "benchmarks/results/*.md",
    "examples/*/README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "build", "dist", "tests", "recipes", "docs/site", "**/build", "**/*.egg-info"]

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.linkcode", "chainrule_site"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 6  # the anchors that code hosts give to headings
nitpicky = False  # signatures name types that have no page

autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 88

html_theme = "furo"
html_title = "chainrule"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_math_renderer = "mathml"  # the browser's own: no script
html_copy_source = False
html_show_sourcelink = False
html_show_search_summary = False  # a page opened as a file may not fetch other pages
html_show_copyright = False
html_use_index = True
pygments_style = "a11y-light"
pygments_dark_style = "a11y-dark"

navigation = {
    "docs/README": {
        "Tutorials": [
            "docs/install",
            "docs/tutorials/engineer",
            "docs/tutorials/researcher",
            "docs/tutorials/student",
            "docs/course",
        ],
        "How-to": [
            "docs/recipes",
            "docs/text",
            "docs/tasks",
            "docs/tasks-by-pairs",
            "docs/report",
            "docs/serving",
            "docs/interop",
            "docs/parallel",
            "examples/logs/README",
            "examples/classifying/README",
            "examples/sequences/README",
            "examples/plugin/README",
        ],
        "Reference": ["docs/cli/README", "docs/reference/README"],
        "Explanations": [
            "docs/architecture",
            "docs/lectures",
            "docs/lectures-files",
            "docs/essay",
            "docs/ngrams",
            "docs/neural",
            "docs/mixtures",
            "docs/masked",
            "docs/translation",
            "docs/tagging",
            "docs/classification",
            "docs/backprop",
            "docs/diagnostics",
            "docs/probes",
            "docs/defaults",
            "docs/comparisons",
            "docs/scaling-laws",
            "docs/speculative",
        ],
        "Project": [
            "docs/decisions/README",
            "docs/reliability",
            "benchmarks/results/README",
            "CONTRIBUTING",
            "SECURITY",
            "CHANGELOG",
        ],
    },
    "docs/course": {"": ["src/chainrule/course/lessons/*"]},
    "docs/cli/README": {"": ["docs/cli/*"]},
    "docs/reference/README": {"": ["docs/reference/*"]},
    "docs/decisions/README": {"": ["docs/decisions/*"]},
    "benchmarks/results/README": {"": ["benchmarks/results/*"]},
}
