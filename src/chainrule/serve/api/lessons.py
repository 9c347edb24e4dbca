"""/v1/lessons: the course, where the server was started with `--learn`.

Lessons are read and answers graded by a thread of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import lru_cache
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from chainrule.course.lesson import Grade, Lesson, lesson_paths
from chainrule.course.page import page_parts
from chainrule.course.typed import typed_value
from chainrule.errors import ChainruleError, CourseError
from chainrule.serve.api.pieces import as_json
from chainrule.serve.api.schemas import LONGEST_STUDENT, CardRequest, CheckRequest
from chainrule.serve.batching.requests import BusyError

Result = TypeVar("Result")
router = APIRouter()

MOST_KEPT = 64
"""How many lessons are kept, each with the data of one student."""
MOST_SHOWN = 256
"""How many numbers or pictures of cards are kept, for places of sliders."""
MOST_WAITING = 64
"""Requests that may wait: a lesson is read again for each student, which takes up to a second or two."""


class UnknownLessonError(ChainruleError):
    """There is no such lesson."""


class Lessons:
    """The lessons; none if the server was not asked for them. A student's code is never run here."""

    def __init__(self, is_on: bool = False) -> None:
        self.is_on = is_on
        # one thread: a lesson takes what its code prints from the whole process
        self._thread = ThreadPoolExecutor(1, "chainrule-lessons")
        self._waiting = 0
        self._kept = lru_cache(MOST_KEPT)(lambda number, student: Lesson(lesson_paths()[number], student))
        self._pages = lru_cache(MOST_KEPT)(lambda number, student: self._page(self.find(number, student)))
        self._shown = lru_cache(MOST_SHOWN)(lambda number, card, *v: self.find(number).show_card(card, dict(v)))

    async def listed(self) -> list[dict[str, Any]]:
        """Return what each lesson is called, and its exercises."""
        numbers = lesson_paths() if self.is_on else ()
        return await self._work(lambda: [_described(self.find(number)) for number in numbers])

    async def page(self, number: int, student: str) -> dict[str, Any]:
        """Return a lesson for a reader."""
        return await self._work(lambda: self._pages(number, student))

    async def card(self, number: int, card: int, values: dict[str, float]) -> dict[str, Any]:
        """Return what a card shows for these places of its sliders: numbers by their labels, or a picture."""
        found = await self._work(lambda: self._shown(number, card, *sorted(values.items())))
        return {"svg": found} if isinstance(found, str) else {"numbers": found}

    async def check(self, number: int, student: str, exercise: str, text: str) -> Grade:
        """Grade what a student typed as the answer to an exercise."""
        return await self._work(lambda: _grade(self.find(number, student), exercise, text))

    def find(self, number: int, student: str = "") -> Lesson:
        """Return a lesson with the data of a student."""
        if not self.is_on:
            raise UnknownLessonError("the lessons are off: chainrule serve --learn shows them")
        if number not in lesson_paths():
            known = ", ".join(map(str, lesson_paths()))
            raise UnknownLessonError(f"there is no lesson {number}: there are {known}")
        return self._kept(number, student)

    def _page(self, one: Lesson) -> dict[str, Any]:
        return {**_described(one), "student": one.student, "parts": [*page_parts(one)]}

    async def _work(self, work: Callable[[], Result]) -> Result:
        if self._waiting >= MOST_WAITING:
            raise BusyError("too many lessons are being read: try again in a moment")
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, work)
        finally:
            self._waiting -= 1


def _described(one: Lesson) -> dict[str, Any]:
    exercises = [{"id": each.id, "title": each.title, "points": each.points} for each in one.exercises]
    return {"number": one.number, "title": one.title, "time": one.time, "exercises": exercises}


def _grade(one: Lesson, exercise: str, text: str) -> Grade:
    if exercise in one.graders and not one.graders[exercise].is_typed:
        raise CourseError(
            f"exercise {exercise} asks for code, which the server does not run: write it into answers.py "
            f"(chainrule lesson {one.number} --start DIR)"
        )
    return one.check(exercise, typed_value(text))


# -- routes -----------------------------------------------------------------------------------------------


@router.get("/v1/lessons")
async def list_lessons(request: Request) -> Response:
    """List the lessons of the course."""
    lessons: Lessons = request.app.state.lessons
    return await as_json({"object": "list", "is_on": lessons.is_on, "data": await lessons.listed()})


@router.get("/v1/lessons/{number}")
async def one_lesson(
    number: int, request: Request, student: Annotated[str, Query(max_length=LONGEST_STUDENT)] = ""
) -> Response:
    """Return a lesson as HTML, in parts; `student` gives other data to each student."""
    lessons: Lessons = request.app.state.lessons
    return await as_json(await lessons.page(number, student))


@router.post("/v1/lessons/card")
async def card(body: CardRequest, request: Request) -> Response:
    """Return what a card of a lesson shows: numbers by their labels, or a picture as the text of an SVG."""
    lessons: Lessons = request.app.state.lessons
    return await as_json(await lessons.card(body.lesson, body.card, body.values))


@router.post("/v1/lessons/check")
async def check(body: CheckRequest, request: Request) -> Response:
    """Grade a value that a student typed: right, wrong with a hint, or not yet."""
    lessons: Lessons = request.app.state.lessons
    return await as_json(asdict(await lessons.check(body.lesson, body.student, body.exercise, body.answer)))
