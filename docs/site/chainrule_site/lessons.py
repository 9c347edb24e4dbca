"""Lessons as their readers see them: with outputs and questions, without answers and the code of graders."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from chainrule.course.lesson import Lesson

NOTE = """
```{{note}}
`chainrule lesson {number}` shows this lesson in a terminal and grades your answers; `chainrule serve --learn` shows
it in a browser, beside live models. [The course](/docs/course.md) says how.
```
"""


def for_readers(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the text of a lesson by that for readers, and say below its title how answers are graded."""
    path = Path(app.env.doc2path(docname))
    if path.parent.name == "lessons":
        lesson = Lesson(path)
        title, _, rest = lesson.markdown(drawn=True).partition("\n")
        source[0] = f"{title}\n{NOTE.format(number=lesson.number)}{rest}"


def setup(app: Sphinx) -> None:
    """Connect the event."""
    app.connect("source-read", for_readers)
