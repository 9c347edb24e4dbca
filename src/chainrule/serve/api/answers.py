"""What all routes share: the model that a request names, its work in bulk, and answers in JSON, streams and errors.

Errors have the shape of OpenAI's, so that its clients raise their own exceptions for them.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator, Sequence
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from chainrule.errors import ChainruleError
from chainrule.serve.api.lessons import UnknownLessonError
from chainrule.serve.api.pieces import compact_json, is_small, long_json
from chainrule.serve.batching.requests import PAUSE, BusyError, ClosingError
from chainrule.serve.models import Models, Served, UnknownModelError
from chainrule.serve.runs import UnknownRunError

Result = TypeVar("Result")

RETRY_SECONDS = 1
_LOG = logging.getLogger("chainrule.serve")

_STATUS: tuple[tuple[type[ChainruleError], int, str, str | None], ...] = (
    (UnknownModelError, 404, "invalid_request_error", "model_not_found"),
    (UnknownRunError, 404, "invalid_request_error", "run_not_found"),
    (UnknownLessonError, 404, "invalid_request_error", "lesson_not_found"),
    (BusyError, 429, "rate_limit_error", "rate_limit_exceeded"),
    (ClosingError, 503, "server_error", "shutting_down"),
    (ChainruleError, 400, "invalid_request_error", None),
)
_FORMS = ("body", "str", "int", "float", "bool")
_MOST_FORMS = 4
_TYPES = {401: "authentication_error", 403: "permission_error"}
_CODES = {401: "invalid_api_key", 413: "request_too_large"}


# -- the model and its work -------------------------------------------------------------------------------


def find_model(request: Request, name: str | None) -> Served:
    """Return the model of that name; None is for the first one."""
    models: Models = request.app.state.models
    return models.find(name)


async def in_bulk(served: Served, key: Hashable, items: Sequence[Any], work: Callable[[Any], Any]) -> list[Any]:
    """Return what `work` gives for each item, on the thread of the model; texts are generated in between.

    Items of other requests that wait under the same key are done in one go.
    """

    def run(items: list[Any]) -> Iterator[Any]:
        for item in items:
            yield work(item)
            yield PAUSE

    return await served.scheduler.bulk(key, items, run)


async def unless_gone(request: Request, work: Awaitable[Result]) -> Result:
    """Return the result of some work, which is given up if the client goes away."""
    working, is_gone = asyncio.current_task(), False
    assert working is not None

    async def watch() -> None:
        nonlocal is_gone
        while (await request.receive())["type"] != "http.disconnect":
            pass
        is_gone = True
        working.cancel()

    watching = asyncio.create_task(watch())
    try:
        return await work
    except asyncio.CancelledError:
        if not is_gone:
            raise
        working.uncancel()
        # nobody reads this answer, but a cancelled task would be logged as a failure of the server
        raise HTTPException(499, "the client has closed the connection") from None
    finally:
        watching.cancel()


# -- answers ----------------------------------------------------------------------------------------------


def event_stream(chunks: AsyncIterator[dict[str, Any]], *, named: bool = False) -> StreamingResponse:
    """Answer by server-sent events, one for each chunk; an error ends them. `named`: with their types."""

    async def lines() -> AsyncIterator[str | bytes]:
        try:
            async for chunk in chunks:
                name = f"event: {chunk['type']}\n" if named else ""
                if is_small(chunk):
                    yield f"{name}data: {compact_json(chunk)}\n\n"
                    continue
                yield f"{name}data: "
                for part in await long_json(chunk):
                    yield part
                yield "\n\n"
        except Exception as error:
            body = error_answer(error)[1]
            yield f"data: {compact_json({'type': 'error', **body['error']} if named else body)}\n\n"
        if not named:
            yield "data: [DONE]\n\n"

    return StreamingResponse(lines(), media_type="text/event-stream", headers={"Cache-Control": "no-store"})


# -- errors -----------------------------------------------------------------------------------------------


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """Return the body of an answer that is an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def error_answer(error: Exception) -> tuple[int, dict[str, Any]]:
    """Return the status and the body for an error; the message of an internal error is not sent to clients."""
    for kind, status, name, code in _STATUS:
        if isinstance(error, kind):
            return status, error_body(str(error), name, "model" if code == "model_not_found" else None, code)
    return 500, error_body("the server failed to answer", "server_error")


def answer_to(error: Exception) -> JSONResponse:
    """Answer a request that failed, or that has a field that is not as it should be: name the first such field."""
    if isinstance(error, RequestValidationError | ValidationError):
        where, message = _first_fault([*error.errors()])
        text = f"{where}: {message}" if where else message
        return JSONResponse(error_body(text, "invalid_request_error", where or None), 400)
    if isinstance(error, HTTPException):
        kind = _TYPES.get(error.status_code, "invalid_request_error" if error.status_code < 500 else "server_error")
        body = error_body(str(error.detail), kind, code=_CODES.get(error.status_code))
        return JSONResponse(body, error.status_code, error.headers)
    status, body = error_answer(error)
    if status == 500:
        _LOG.error("a request failed: %s", type(error).__name__, exc_info=error)
    return JSONResponse(body, status, {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else None)


def _first_fault(errors: list[dict[str, Any]]) -> tuple[str, str]:
    """Return the first field with a fault, and what should be there: where several forms are possible, each."""

    def field(error: dict[str, Any]) -> tuple[str, ...]:
        # between the names of fields stand the forms that were tried, such as list[constrained-str]
        return tuple(
            str(part)
            for part in error["loc"]
            if re.fullmatch(r"\d+|[a-z]+(_[a-z]+)*", str(part)) and part not in _FORMS
        )

    first = field(errors[0])
    where = ".".join(first)
    name = first[:1]
    messages = [error["msg"].removeprefix("Value error, ") for error in errors if field(error)[:1] == name]
    return where, "; or: ".join(dict.fromkeys(messages[:_MOST_FORMS] if where else messages[:1]))


def add_error_handlers(app: FastAPI) -> None:
    """Have every error answered in that shape."""

    @app.exception_handler(RequestValidationError)
    @app.exception_handler(ChainruleError)
    @app.exception_handler(HTTPException)
    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return answer_to(error)
