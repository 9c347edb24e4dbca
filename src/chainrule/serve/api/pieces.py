"""Work off the event loop, in pieces: a long text, or a long answer, should not hold up the other requests.

A few threads do it, in turns of some milliseconds. A request that is given up is not taken up again.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from starlette.responses import Response, StreamingResponse

from chainrule.errors import DecodingError

Result = TypeVar("Result")

SMALL = 1 << 11
"""Characters, bytes or tokens that are dealt with at once, in less than a few milliseconds."""
SMALL_JSON = 1 << 14
"""Bytes of JSON that are written at once."""
MOST_ENTRIES = 250_000
"""The most tokens and alternatives that one answer lists."""
_TURN_SECONDS = 0.02
_CHUNK = 1 << 16  # bytes that are written at once
_FLAT = 1024  # numbers, or texts, of a list that are written at once
_WORKERS = ThreadPoolExecutor(2, "chainrule-pieces")


async def off_loop(size: int, work: Callable[[], Result]) -> Result:
    """Return the result of some work, which takes time that grows with `size`; a small one is done at once."""
    if size <= SMALL:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_WORKERS, work)


async def in_pieces(size: int, work: Iterator[Result]) -> list[Result]:
    """Return all that an iterator yields; a large one runs off the event loop until the task is cancelled."""
    if size <= SMALL:
        return [*work]
    found: list[Result] = []

    def take_some() -> bool:
        until = time.perf_counter() + _TURN_SECONDS
        for one in work:
            found.append(one)
            if time.perf_counter() > until:
                return True
        return False

    while await asyncio.get_running_loop().run_in_executor(_WORKERS, take_some):
        pass
    return found


def check_entries(tokens: int, alternatives: int) -> None:
    """Refuse a request whose answer would list too many tokens."""
    if tokens * (1 + alternatives) > MOST_ENTRIES:
        most = MOST_ENTRIES // (1 + alternatives)
        each, fewer = (
            (f" with {alternatives} alternatives each", " or for fewer alternatives,") if alternatives else ("", "")
        )
        raise DecodingError(
            f"{tokens:,} tokens{each} are too many for one answer: ask for at most {most:,},{fewer} and in parts"
        )


# -- JSON -------------------------------------------------------------------------------------------------

_encoder = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def compact_json(value: Any) -> str:
    """Write a value as JSON without spaces."""
    return _encoder.encode(value)


async def as_json(body: Any) -> Response:
    """Answer in JSON, written without a schema in between, which would take longer than many a model."""
    if is_small(body):
        return Response(compact_json(body), media_type="application/json")
    chunks = await long_json(body)
    size = {"Content-Length": str(sum(map(len, chunks)))}

    async def each() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk

    return StreamingResponse(each(), media_type="application/json", headers=size)


async def long_json(value: Any) -> list[bytes]:
    """Write a value as JSON off the event loop, as chunks of bytes."""

    def chunks() -> Iterator[bytes]:
        parts: list[str] = []
        size = 0
        for part in _parts(value):
            parts.append(part)
            size += len(part)
            if size >= _CHUNK:
                yield "".join(parts).encode()
                parts, size = [], 0
        yield "".join(parts).encode()

    return await in_pieces(SMALL + 1, chunks())


def is_small(value: Any) -> bool:
    """Return True if a value is written as JSON in about a millisecond."""
    left, found = SMALL_JSON, [value]
    while found:
        one = found.pop()
        left -= 8 if one is None or isinstance(one, int | float) else len(one)
        if left < 0:
            return False
        if isinstance(one, dict):
            found += one.values()
        elif isinstance(one, list | tuple):
            found += one
    return True


def _parts(value: Any) -> Iterator[str]:
    """Yield a value as JSON part by part: the library would hold all threads up until it has written all of it."""
    if not isinstance(value, dict | list | tuple) or is_small(value):
        yield compact_json(value)
    elif isinstance(value, dict):
        for number, (key, one) in enumerate(value.items()):
            yield f"{',' if number else '{'}{compact_json(key)}:"
            yield from _parts(one)
        yield "}"
    else:
        is_flat = not isinstance(value[0], dict | list | tuple)
        for first in range(0, len(value), _FLAT if is_flat else 1):
            yield "," if first else "["
            if is_flat:
                yield compact_json(value[first : first + _FLAT])[1:-1]
            else:
                yield from _parts(value[first])
        yield "]"
