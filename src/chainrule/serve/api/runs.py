"""/v1/runs: the trainings and comparisons below the folder that `--runs` names."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from chainrule.errors import MissingExtraError
from chainrule.serve.api.completions import as_json
from chainrule.serve.runs import Found, Runs, UnknownRunError, summary_of

router = APIRouter()
Result = TypeVar("Result")

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""Of a report, one file with scripts of its own: it has no origin, and nothing comes from or goes to a network.

Vega makes functions of the expressions in its charts, which is what 'unsafe-eval' allows.
"""


@router.get("/v1/runs")
async def list_runs(request: Request) -> Response:
    """The trainings and comparisons that are there now."""
    runs: Runs = request.app.state.runs

    def listed() -> list[dict[str, Any]]:
        return [_entry(runs, one) for one in runs.all()]

    data = await _in_thread(listed)
    return as_json({"object": "list", "has_folder": runs.folder is not None, "data": data})


@router.get("/v1/runs/{name}")
async def one_run(name: str, request: Request, chart: Literal["light", "dark"] | None = None) -> Response:
    """The curves of a training, or the results of a comparison; with `chart`, the picture of the curves too."""
    runs: Runs = request.app.state.runs

    def described() -> dict[str, Any]:
        one = runs.find(name)
        entry = _entry(runs, one)
        if one.what == "comparison":
            return entry | summary_of(runs.comparison(one))
        record = runs.record(one)
        more = {
            "kind": record.kind,
            "settings": record.settings,
            "measurements": record.measurements,
            "summary": record.summary,
            "points": record.points,
        }
        if chart is None or not record.points:
            return entry | more
        try:
            return entry | more | {"chart": runs.chart(one, chart)}
        except MissingExtraError as error:
            return entry | more | {"chart": None, "note": str(error)}

    return as_json(_finite(await _in_thread(described)))


@router.get("/v1/runs/{name}/chart.svg")
async def chart_of(name: str, request: Request, theme: Literal["light", "dark"] = "light") -> Response:
    """The losses of a training, as a picture."""
    runs: Runs = request.app.state.runs

    def drawn() -> tuple[str, str]:
        one = runs.find(name)
        version = hashlib.sha256(repr((one.name, one.version, theme)).encode()).hexdigest()[:32]
        return runs.chart(one, theme), f'"{version}"'

    svg, tag = await _in_thread(drawn)
    headers = {"ETag": tag, "Cache-Control": "no-cache"}
    if request.headers.get("if-none-match") == tag:
        return Response(status_code=304, headers=headers)
    return Response(svg, media_type="image/svg+xml", headers=headers)


@router.get("/v1/runs/{name}/report")
async def report_of(name: str, request: Request) -> Response:
    """The report of a comparison, if one was made."""
    runs: Runs = request.app.state.runs
    return await _in_thread(lambda: _report(runs.find(name)))


@router.get("/reports/{ticket}")
async def report_by_ticket(ticket: str, request: Request) -> Response:
    """The same by the link that /v1/runs gives, which a browser can open without a key."""
    runs: Runs = request.app.state.runs
    return await _in_thread(lambda: _report(runs.by_ticket(ticket)))


async def _in_thread(work: Callable[[], Result]) -> Result:
    """The result of some work with files, off the event loop; a folder may be removed meanwhile."""
    try:
        return await asyncio.to_thread(work)
    except OSError:
        raise UnknownRunError("it is no longer there") from None


def _report(one: Found) -> Response:
    page = one.report
    if page is None:
        raise UnknownRunError(f"{one.name} has no report: chainrule report makes one")
    headers = {"Content-Security-Policy": REPORT_POLICY, "Cache-Control": "no-cache"}
    return FileResponse(page, media_type="text/html; charset=utf-8", headers=headers)


def _entry(runs: Runs, one: Found) -> dict[str, Any]:
    return {
        "id": one.name,
        "object": "run",
        "what": one.what,
        "changed": int(one.source.stat().st_mtime),
        "is_going_on": one.is_going_on,
        "report": None if one.report is None else f"/reports/{runs.ticket(one)}",
    }


def _finite(value: Any) -> Any:
    """The same without infinities and what is no number, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
