"""/v1/runs: the trainings and comparisons below the folder that `--runs` names."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, HTMLResponse, Response

from chainrule.errors import MissingExtraError
from chainrule.serve.api.pieces import as_json
from chainrule.serve.runs import Found, Runs, UnknownRunError, summary_of

router = APIRouter()
Result = TypeVar("Result")

REPORT_POLICY = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; "
    "style-src 'unsafe-inline'; img-src data:; font-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
"""The policy of a report, one file with scripts of its own: it has no origin, and no access to a network.

'unsafe-eval' is for Vega, which makes functions of the expressions in its charts.
"""


class _Picture(Response):
    media_type = "image/svg+xml"


@router.get("/v1/runs")
async def list_runs(request: Request) -> Response:
    """List the trainings and comparisons that exist now."""
    runs: Runs = request.app.state.runs
    data = await _in_thread(lambda: [_entry(runs, one) for one in runs.all()])
    return await as_json({"object": "list", "has_folder": runs.folder is not None, "data": data})


@router.get("/v1/runs/{name}")
async def one_run(name: str, request: Request, chart: Literal["light", "dark"] | None = None) -> Response:
    """Return the curves of a training, or the results of a comparison; with `chart`, also a picture."""
    runs: Runs = request.app.state.runs

    def described() -> dict[str, Any]:
        one = runs.find(name)
        entry = _entry(runs, one)
        if one.what == "comparison":
            return entry | summary_of(runs.comparison(one))
        record = runs.record(one)
        names = ("kind", "settings", "measurements", "summary", "points")
        entry |= {name: getattr(record, name) for name in names}
        if chart is not None and record.points:
            try:
                entry["chart"] = runs.chart(one, chart)
            except MissingExtraError as error:
                entry |= {"chart": None, "note": str(error)}
        return entry

    return await as_json(await _in_thread(lambda: _finite(described())))


@router.get("/v1/runs/{name}/chart.svg", response_class=_Picture)
async def chart_of(name: str, request: Request, theme: Literal["light", "dark"] = "light") -> Response:
    """Draw the losses of a training."""
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


@router.get("/v1/runs/{name}/report", response_class=HTMLResponse)
async def report_of(name: str, request: Request) -> Response:
    """Return the report of a comparison, if one was made."""
    runs: Runs = request.app.state.runs
    return await _in_thread(lambda: _report(runs.find(name)))


@router.get("/reports/{ticket}", response_class=HTMLResponse)
async def report_by_ticket(ticket: str, request: Request) -> Response:
    """Return a report by the link that /v1/runs gives, which a browser can open without a key."""
    runs: Runs = request.app.state.runs
    return await _in_thread(lambda: _report(runs.by_ticket(ticket)))


async def _in_thread(work: Callable[[], Result]) -> Result:
    """Return the result of some work with files, off the event loop; a folder may be removed meanwhile."""
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
    """Replace infinities and NaN, which JSON does not have, by None."""
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_finite(one) for one in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
