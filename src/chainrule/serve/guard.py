"""Checks before every route: hosts, origins, keys, sizes and deadlines.

A server on 127.0.0.1 can be reached by any page that a browser on the same machine shows: a page may send requests
to it, or have its own name resolve to 127.0.0.1 (DNS rebinding). So a request is answered only if its Host header
names this server, and, if a browser sends an Origin, only if that does too.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections import deque
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from chainrule.serve.api.answers import answer_to
from chainrule.serve.metrics import Meters

MOST_BYTES = 1 << 20
"""The longest body of a request."""
MOST_HEADER = 1 << 16
"""The longest header of a request."""
DEADLINE = 10.0
"""Seconds in which the header, and then the body, of a request should arrive."""
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_AT_ONCE = 4
"""Requests that begin in one turn of the event loop, which take some milliseconds."""
LOCAL = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True)
class Rules:
    """Which requests are answered."""

    hosts: frozenset[str] = frozenset(LOCAL)
    """Names of the server, without port."""
    origins: frozenset[str] = frozenset()
    """Addresses of other servers whose pages may use this one, such as http://localhost:3000."""
    key: str | None = None

    def needs_key(self, path: str) -> bool:
        """Return True if a path is answered only with the key."""
        return (
            self.key is not None and path not in ("/health", "/") and not path.startswith(("/page/", "/reports/"))
        )


class Guard:
    """Refuses requests that may not be answered, before a route sees them."""

    def __init__(self, app: ASGIApp, rules: Rules, meters: Meters) -> None:
        self.app, self.rules, self.meters = app, rules, meters
        self.closing = False
        self._turns = _Turns()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.perf_counter(), 500
        await self._turns.take()
        origin = next((value for name, value in scope["headers"] if name == b"origin"), b"")
        own_headers = [*_SAFE]
        if self.rules.origins:
            own_headers.append((b"vary", b"Origin"))
            if origin.decode("latin-1") in self.rules.origins:
                own_headers += [(b"access-control-allow-origin", origin)]

        async def sending(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = [*message.get("headers", ())]
                own = {name.lower() for name, _ in headers}
                # a route may have a policy of its own; two would both hold
                message["headers"] = headers + [one for one in own_headers if one[0] not in own]
            await send(message)

        try:
            await (self._refusal(scope) or self.app)(scope, _Bounded(receive), sending)
        except ClientDisconnect:  # it left before its request was read
            status = 499
        finally:
            path = getattr(scope.get("route"), "path", "other")
            self.meters.requests.labels(path, str(status)).inc()
            self.meters.seconds.labels(path).observe(time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        """Return the answer that refuses a request, or None if it may pass."""
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        if self.closing:
            return _refused(503, "the server is shutting down", {**_CLOSE, "Retry-After": "1"})
        if sum(len(name) + len(value) for name, value in scope["headers"]) > MOST_HEADER:
            return _refused(431, f"the header of a request has {MOST_HEADER:,} bytes at most", _CLOSE)
        if sum(name == b"host" for name, _ in scope["headers"]) > 1:
            return _refused(400, "a request has one Host")
        if _name(headers.get(b"host", "")) not in self.rules.hosts:
            return _refused(403, "this server does not answer to that Host")
        origin = headers.get(b"origin")
        if origin is not None and not self._may_ask(origin):
            return _refused(403, "this server does not answer to pages of that Origin")
        if scope["method"] == "OPTIONS" and origin in self.rules.origins:
            return Response(status_code=204, headers=_PREFLIGHT)  # asked before the request itself, without the key
        length = headers.get(b"content-length", "0")
        if length.isdigit() and int(length) > MOST_BYTES:
            return _refused(413, _TOO_LONG, _CLOSE)
        if self.rules.needs_key(scope["path"]) and not self._has_key(headers.get(b"authorization", "")):
            return _refused(401, "a key is needed: send it as 'Authorization: Bearer KEY'")
        return None

    def _may_ask(self, origin: str) -> bool:
        """Return True if pages of an origin may send requests."""
        if origin in self.rules.origins:
            return True
        try:
            return urlsplit(origin).hostname in self.rules.hosts
        except ValueError:  # such as http://[::1
            return False

    def _has_key(self, authorization: str) -> bool:
        scheme, _, given = authorization.partition(" ")
        assert self.rules.key is not None
        # compared in constant time, so that the time of an answer says nothing about the key
        same = hmac.compare_digest(given.strip().encode(), self.rules.key.encode())
        return same and scheme.lower() == "bearer"


class _Turns:
    """Lets a few requests begin at a time: hundreds that come at once leave texts under way their turns."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Wait for a turn."""
        loop = asyncio.get_running_loop()
        turn = loop.create_future()
        self._waiting.append(turn)
        if len(self._waiting) == 1:
            loop.call_soon(self._give, loop)
        await turn

    def _give(self, loop: asyncio.AbstractEventLoop) -> None:
        for _ in range(min(_AT_ONCE, len(self._waiting))):
            turn = self._waiting.popleft()
            if not turn.cancelled():
                turn.set_result(None)
        if self._waiting:
            loop.call_soon(self._give, loop)


_SAFE = [
    (b"content-security-policy", PAGE_POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-frame-options", b"DENY"),
]


_PREFLIGHT = {
    "Access-Control-Allow-Methods": "GET, POST",
    "Access-Control-Allow-Headers": "Authorization, *",  # * stands for all but Authorization
    "Access-Control-Max-Age": "600",
}
_CLOSE = {"Connection": "close"}  # the rest of the request is not read
_TOO_LONG = f"a request has {MOST_BYTES:,} bytes at most"


class _Bounded:
    """Receives a request, with no more bytes and no later than is allowed."""

    def __init__(self, receive: Receive) -> None:
        self._receive, self._taken, self._complete = receive, 0, False
        self._until = time.monotonic() + DEADLINE

    async def __call__(self) -> Message:
        if self._complete:  # now comes only the message that the client has gone
            return await self._receive()
        try:
            message = await asyncio.wait_for(self._receive(), max(0.01, self._until - time.monotonic()))
        except TimeoutError:
            raise HTTPException(408, f"the request did not come within {DEADLINE:.0f} s", _CLOSE) from None
        if message["type"] == "http.request":
            self._taken += len(message.get("body", b""))
            if self._taken > MOST_BYTES:
                raise HTTPException(413, _TOO_LONG, _CLOSE)
            self._complete = not message.get("more_body", False)
        return message


def _name(host: str) -> str:
    """Return the name in a Host header, without the port, in small letters."""
    host = host.lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() and ":" in host else host


def _refused(status: int, message: str, headers: dict[str, str] | None = None) -> JSONResponse:
    return answer_to(HTTPException(status, message, headers))
