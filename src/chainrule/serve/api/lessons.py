"""/v1/lessons: the course, where the server was started with `--learn`."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import Response

from chainrule.serve.api.pieces import as_json
from chainrule.serve.api.schemas import LONGEST_STUDENT, CardRequest, CheckRequest
from chainrule.serve.lessons import Lessons

router = APIRouter()


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
