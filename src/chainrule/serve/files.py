"""The files of the page: a map from paths to bytes, made once, so that no path of a client reaches the disk."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from fastapi import APIRouter, Request
from fastapi.responses import Response
from starlette.exceptions import HTTPException

_MEDIA = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}


@dataclass(frozen=True)
class PageFile:
    """A file of the page, as it is answered."""

    content: bytes
    media: str
    tag: str
    """The ETag: a browser that has the file of this tag is told so, and not sent it again."""


def page_files() -> dict[str, PageFile]:
    """The files of the page by their paths; "/" is for the page itself."""
    found = dict(_below(files("chainrule.serve").joinpath("page"), "/page/"))
    return {**found, "/": found["/page/index.html"]}


def _below(folder: Traversable, path: str) -> list[tuple[str, PageFile]]:
    found: list[tuple[str, PageFile]] = []
    for one in folder.iterdir():
        if one.is_dir():
            found += _below(one, f"{path}{one.name}/")
        elif (media := _MEDIA.get(one.name.rpartition(".")[2])) is not None:
            content = one.read_bytes()
            found.append(
                (path + one.name, PageFile(content, media, f'"{hashlib.sha256(content).hexdigest()[:32]}"'))
            )
    return found


def page_router() -> APIRouter:
    """The routes of the page."""
    router, found = APIRouter(), page_files()

    @router.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    @router.api_route("/page/{name:path}", methods=["GET", "HEAD"], include_in_schema=False)
    async def page_file(request: Request, name: str | None = None) -> Response:
        one = found.get("/" if name is None else f"/page/{name}")
        if one is None:
            raise HTTPException(404, "the page has no such file")
        headers = {"ETag": one.tag, "Cache-Control": "no-cache"}  # kept, but asked about each time
        if one.tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(one.content, media_type=one.media, headers=headers)

    return router
