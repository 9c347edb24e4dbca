"""The application: the routes, the page, the guard before them, and the threads of the models while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request
from fastapi.responses import PlainTextResponse, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from chainrule._version import __version__
from chainrule.serve.api import chat, completions, inside, lessons, reading, runs, tasks, tokens
from chainrule.serve.api.answers import add_error_handlers, answer_to, find_model, unless_gone
from chainrule.serve.api.pieces import as_json, off_loop
from chainrule.serve.guard import Guard, Rules
from chainrule.serve.metrics import Meters
from chainrule.serve.models import Models, Served
from chainrule.serve.runs import Runs

_PAGE = Path(__file__).parent / "page"
mimetypes.add_type("text/javascript", ".js")  # some systems say otherwise, or nothing


def make_app(
    models: Models,
    rules: Rules | None = None,
    *,
    reload: bool = False,
    runs_below: Path | None = None,
    learn: bool = False,
) -> Guard:
    """Return the application that serves loaded models; with `reload`, it loads folders again that are replaced.

    `runs_below` is a folder whose trainings and comparisons are shown; `learn` shows the lessons of the course.
    """

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        models.start()
        watching = asyncio.create_task(models.watch()) if reload else None
        yield
        if watching is not None:
            watching.cancel()
        models.close()

    app = FastAPI(
        title="chainrule",
        version=__version__,
        summary="Language models of every family behind one interface.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.models, app.state.meters = models, Meters(models)
    app.state.runs, app.state.lessons = Runs(runs_below), lessons.Lessons(learn)
    add_error_handlers(app)
    direct = Direct(app)
    for part in (completions, chat, tokens, reading, tasks, inside, runs, lessons):
        app.include_router(part.router)
        direct.learn(part.router.routes)
    _add_routes(app)
    _describe(app, models)
    return Guard(direct, rules or Rules(), app.state.meters)


def _add_routes(app: FastAPI) -> None:
    page = _PageFiles(directory=_PAGE)
    app.mount("/page", page)

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def index(request: Request) -> Response:
        return await page.get_response("index.html", request.scope)

    @app.get("/health")
    async def health() -> Response:
        """Say that the server answers."""
        return await as_json({"status": "ok"})

    @app.get("/metrics", response_class=PlainTextResponse)
    async def metrics(request: Request) -> Response:
        """Return counters of requests and tokens, for Prometheus."""
        text = request.app.state.meters.text()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models")
    async def list_models(request: Request) -> Response:
        """List the models that are served."""
        return await as_json(
            {"object": "list", "data": [_described(one) for one in request.app.state.models.all()]}
        )

    @app.get("/v1/models/{name}")
    async def one_model(name: str, request: Request) -> Response:
        """Describe one of the models that are served."""
        return await as_json(_described(find_model(request, name)))


class _PageFiles(StaticFiles):
    """The files of the page; a browser keeps them, but asks each time if they have changed."""

    def file_response(self, *arguments: Any, **options: Any) -> Response:
        response = super().file_response(*arguments, **options)
        response.headers["Cache-Control"] = "no-cache"
        return response


_ERRORS = {
    "400": "What is asked for cannot be done.",
    "404": "There is no such model, run or lesson.",
    "default": "Any other error.",
}


def _describe(app: FastAPI, models: Models) -> None:
    """Have /openapi.json list the models, in every request that names one, and the errors that there are."""
    schema = app.openapi()
    properties: dict[str, Any] = {name: {"type": "string"} for name in ("message", "type")}
    properties |= {name: {"type": ["string", "null"]} for name in ("param", "code")}
    error = {"type": "object", "properties": {"error": {"type": "object", "properties": properties}}}
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    schema["components"]["schemas"] |= {"Error": error}
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which are not sent
        schema["components"]["schemas"].pop(name, None)
    for path in schema["paths"].values():
        for operation in path.values():
            answers = operation["responses"]
            answers.pop("422", None)
            answers |= {status: {"description": text, "content": content} for status, text in _ERRORS.items()}
            if "requestBody" not in operation and "parameters" not in operation:
                del answers["400"], answers["404"]
    for name in ("completions", "chat/completions", "responses"):
        schema["paths"][f"/v1/{name}"]["post"]["responses"]["200"]["content"]["text/event-stream"] = {}
    names = [{"type": "string", "enum": [served.name for served in models.all()]}, {"type": "null"}]
    for component in schema["components"]["schemas"].values():
        if "model" in component.get("properties", {}):
            component["properties"]["model"]["anyOf"] = names
    app.openapi_schema = schema


def _described(served: Served) -> dict[str, object]:
    model = served.model
    return {
        "id": served.name,
        "object": "model",
        "created": served.created,
        "owned_by": "chainrule",
        "kind": model.kind,
        "verb": model.verb,
        "purpose": model.purpose,
        "parameters": model.metrics.get("parameters"),
        "context": getattr(model, "context", None),
        "normalised": getattr(model, "normalised", None),
        "vocab_size": {name: tokenizer.vocab_size for name, tokenizer in model.tokenizers.items()},
    }


class Direct:
    """A short way to routes that take a body of JSON alone; the application answers all other requests.

    FastAPI describes every route (/openapi.json) and could call it as well, but that takes longer than a small
    model needs to answer. So a request for such a route is read, checked by the same class and answered by the
    same function here.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._routes: dict[str, tuple[APIRoute, Any]] = {}

    def learn(self, routes: list[Any]) -> None:
        """Take the routes whose function has a body and the request as its arguments."""
        for route in routes:
            if isinstance(route, APIRoute) and route.body_field is not None:
                self._routes[route.path] = route, route.body_field.field_info.annotation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        found = self._routes.get(scope["path"]) if scope["type"] == "http" else None
        if found is None or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        route, body_class = found
        scope["route"], scope["app"] = route, self._app
        request = Request(scope, receive)
        try:
            content = await request.body()
            body = await off_loop(len(content), lambda: body_class.model_validate_json(content))
            response: Response = await unless_gone(request, route.endpoint(body, request))
        except ClientDisconnect:
            raise
        except Exception as error:
            response = answer_to(error)
        await response(scope, receive, send)
