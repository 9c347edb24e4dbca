"""The application: the routes, the guard before them, and the threads of the models while it runs."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import Response

from chainrule._version import __version__
from chainrule.serve.api import chat, completions, inside, reading, runs, tasks, tokens
from chainrule.serve.api.completions import as_json
from chainrule.serve.api.errors import add_error_handlers
from chainrule.serve.direct import Direct
from chainrule.serve.files import page_router
from chainrule.serve.guard import Guard, Rules
from chainrule.serve.metrics import Meters
from chainrule.serve.models import Models, Served
from chainrule.serve.runs import Runs


def make_app(
    models: Models, rules: Rules | None = None, *, reload: bool = False, runs_below: Path | None = None
) -> Guard:
    """The application that serves loaded models; with `reload`, folders that are replaced are taken up.

    `runs_below` is a folder whose trainings and comparisons are shown.
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
    app.state.models, app.state.meters, app.state.runs = models, Meters(models), Runs(runs_below)
    add_error_handlers(app)
    direct = Direct(app)
    for part in (completions, chat, tokens, reading, tasks, inside, runs):
        app.include_router(part.router)
        direct.learn(part.router.routes)
    app.include_router(page_router())
    _add_routes(app)
    _name_models(app, models)
    return Guard(direct, rules or Rules(), app.state.meters)


def _add_routes(app: FastAPI) -> None:
    @app.get("/health")
    async def health() -> Response:
        """Whether the server answers."""
        return as_json({"status": "ok"})

    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        """What the server has done, for Prometheus."""
        text = request.app.state.meters.text()
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    @app.get("/v1/models")
    async def list_models(request: Request) -> Response:
        """The models that are served."""
        return as_json({"object": "list", "data": [_described(one) for one in request.app.state.models.all()]})

    @app.get("/v1/models/{name}")
    async def one_model(name: str, request: Request) -> Response:
        """One of the models that are served."""
        return as_json(_described(request.app.state.models.find(name)))


def _name_models(app: FastAPI, models: Models) -> None:
    """Have /openapi.json say which models there are, in every request that names one."""
    schema = app.openapi()
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
