"""Errors in the shape of OpenAI's, so that its clients raise their own exceptions for them."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from chainrule.errors import ChainruleError
from chainrule.serve.batching.requests import BusyError, ClosingError
from chainrule.serve.models import UnknownModelError
from chainrule.serve.runs import UnknownRunError

RETRY_SECONDS = 1
_LOG = logging.getLogger("chainrule.serve")

_STATUS: tuple[tuple[type[ChainruleError], int, str, str | None], ...] = (
    (UnknownModelError, 404, "invalid_request_error", "model_not_found"),
    (UnknownRunError, 404, "invalid_request_error", "run_not_found"),
    (BusyError, 429, "rate_limit_error", "rate_limit_exceeded"),
    (ClosingError, 503, "server_error", "shutting_down"),
    (ChainruleError, 400, "invalid_request_error", None),
)
_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


def error_body(message: str, kind: str, param: str | None = None, code: str | None = None) -> dict[str, Any]:
    """The body of an answer that is an error."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def described(error: Exception) -> tuple[int, dict[str, Any]]:
    """The status and the body for an error; of one that is not the client's, nothing is told."""
    for kind, status, name, code in _STATUS:
        if isinstance(error, kind):
            return status, error_body(str(error), name, "model" if code == "model_not_found" else None, code)
    return 500, error_body("the server failed to answer", "server_error")


def answer_to(error: Exception) -> JSONResponse:
    """The answer to a request that failed."""
    if isinstance(error, HTTPException):
        kind = _TYPES.get(error.status_code, "invalid_request_error" if error.status_code < 500 else "server_error")
        return JSONResponse(error_body(str(error.detail), kind), error.status_code, error.headers)
    status, body = described(error)
    if status == 500:
        _LOG.error("a request failed: %s", type(error).__name__, exc_info=error)
    return JSONResponse(body, status, {"Retry-After": str(RETRY_SECONDS)} if status in (429, 503) else None)


def invalid_request(errors: Sequence[Any]) -> JSONResponse:
    """The answer to a request whose fields are not as they should be: the first thing that is wrong."""
    first = errors[0]
    where = ".".join(str(part) for part in first["loc"] if part != "body")
    message = first["msg"].removeprefix("Value error, ")
    text = f"{where}: {message}" if where else message
    return JSONResponse(error_body(text, "invalid_request_error", where or None), 400)


def add_error_handlers(app: FastAPI) -> None:
    """Have every error answered in that shape."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        return invalid_request(error.errors())

    @app.exception_handler(ChainruleError)
    @app.exception_handler(HTTPException)
    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> JSONResponse:
        return answer_to(error)
