"""A lesson as a notebook: its text, its code to run, and a cell for each answer, which is graded there."""

from __future__ import annotations

from typing import Any

from chainrule.course.cards import Card
from chainrule.course.lesson import Lesson
from chainrule.course.markdown import Code, Exercise, Part


def notebook(lesson: Lesson) -> dict[str, Any]:
    """Return the notebook, in version 4.5 of Jupyter's format."""
    first = ["import numpy as np", "import chainrule as cr", "", f"lesson = {lesson.call}", "lesson.write_texts()"]
    cells = [("code", "\n".join(first))]
    for part in lesson.parts:
        if lesson.data and part is lesson.exercises[0]:
            cells.append(("code", "\n".join(lesson.given)))
        cells += _cells(lesson, part)
    return {
        "cells": [_cell(kind, source, f"cell-{place}") for place, (kind, source) in enumerate(cells)],
        "metadata": {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(lesson: Lesson, part: Part) -> list[tuple[str, str]]:
    if isinstance(part, Exercise):
        grader = lesson.graders[part.id]
        answer = f'{grader.blank}\n\nlesson.check("{part.id}", {grader.name})'
        return [("markdown", f"### {part.heading}\n\n{lesson.filled(part.question)}"), ("code", answer)]
    if isinstance(part, Card):
        return [("markdown", part.introduction), ("code", part.source.rstrip())]
    if not isinstance(part, Code):
        return [("markdown", lesson.filled(part.text))]
    if part.role == "exercises":
        return []
    if part.language == "sh":  # a line of a notebook that begins with ! is a command
        return [("code", "\n".join(f"!{line}" for line in part.source.replace("\\\n", " ").splitlines()))]
    return [("code", part.source.rstrip())]


def _cell(kind: str, source: str, name: str) -> dict[str, Any]:
    cell: dict[str, Any] = {
        "cell_type": kind,
        "id": name,
        "metadata": {},
        "source": source.splitlines(keepends=True),
    }
    return cell | ({"execution_count": None, "outputs": []} if kind == "code" else {})
