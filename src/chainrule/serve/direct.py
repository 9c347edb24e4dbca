"""A short way to routes that take a body of JSON and nothing else of a request.

FastAPI describes every route (/openapi.json) and could call it as well, but that takes longer than a small model
needs to answer. So a request for such a route is read, checked by the same class and answered by the same function
here.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, get_type_hints

from fastapi import FastAPI, Request
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from chainrule.serve.api.errors import answer_to, invalid_request

Answer = Callable[[Any, Request], Awaitable[Response]]


class Direct:
    """Answers what it can by itself, and leaves the rest to the application."""

    def __init__(self, app: FastAPI) -> None:
        self._app: ASGIApp = app
        self._state = app
        self._routes: dict[str, tuple[APIRoute, type[BaseModel], Answer]] = {}

    def learn(self, routes: list[Any]) -> None:
        """Take up the routes of POST whose function has a body and the request as its arguments."""
        for route in routes:
            if not isinstance(route, APIRoute) or route.methods != {"POST"} or "{" in route.path:
                continue
            body = next((kind for kind in _arguments(route) if issubclass(kind, BaseModel)), None)
            if body is not None:
                self._routes[route.path] = route, body, route.endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        route, body_class, endpoint = found
        scope["route"], scope["app"] = route, self._state
        request = Request(scope, receive)
        try:
            response = await endpoint(body_class.model_validate_json(await request.body()), request)
        except ValidationError as error:
            response = invalid_request(error.errors(include_url=False))
        except Exception as error:
            response = answer_to(error)
        await response(scope, receive, send)


def _arguments(route: APIRoute) -> list[type]:
    """The classes of a route's arguments."""
    hints = get_type_hints(route.endpoint)
    return [kind for name, kind in hints.items() if name != "return" and isinstance(kind, type)]
