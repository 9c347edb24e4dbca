"""A process that serves until it is stopped, and then finishes the texts under way."""

from __future__ import annotations

import asyncio
import gc
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from chainrule.errors import ChainruleError, SettingsError
from chainrule.serve.app import make_app
from chainrule.serve.guard import DEADLINE, LOCAL, MOST_HEADER, Guard, Rules
from chainrule.serve.models import Models

DRAIN_SECONDS = 25.0
"""How long texts under way may go on after SIGTERM; then they end with an error."""
_LAST_SECONDS = 4  # for those errors to reach their clients
_GRACE_SECONDS = 2  # after which the process ends, whatever is under way: the unit file allows 35 in all
_LATE_SECONDS = 0.5  # in which requests that were sent before SIGTERM, and not read yet, get an answer
UNREAD_SECONDS = 30.0
"""How long a client may take nothing of its answer; then its connection is closed (on Linux)."""

UNSENT_BYTES = 1 << 16
"""How much of an answer the system holds that was not sent yet; what is on its way comes on top of it."""
_SWITCH_SECONDS = 5e-4
"""How long a thread computes in Python while others wait.

A network's thread lets the others have Python at each operation: with Python's 5 ms, each of the hundreds of
operations of a token would wait so long for a thread that prepares a long answer.
"""


class ServeError(ChainruleError):
    """The server could not start."""


class _Protocol(HttpToolsProtocol):
    """HTTP with bounds for the header of a request: one without an end would hold its connection, or all memory."""

    _header_bytes: int | None = 0
    """How much has come of a header that is not complete; None inside a body."""

    def data_received(self, data: bytes) -> None:
        if self._header_bytes is not None:
            if self._header_bytes > MOST_HEADER:
                self.transport.close()
                return
            self._header_bytes += len(data)
        super().data_received(data)

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_header()

    def _await_header(self) -> None:
        self._deadline = self.loop.call_later(DEADLINE, self.transport.close)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._header_bytes = 0
        self._deadline.cancel()
        self._await_header()

    def on_headers_complete(self) -> None:
        self._deadline.cancel()
        self._deadline = self.loop.call_later(2 * DEADLINE, self._end_body)
        self._header_bytes = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._deadline.cancel()
        super().on_message_complete()

    def _end_body(self) -> None:
        """Close the connection if the request was answered, and its body still comes: nobody reads that."""
        if self.cycle is not None and self.cycle.response_complete:
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)


class _Server(uvicorn.Server):
    """A server that drains: texts under way end, or fail, before it exits."""

    def __init__(self, config: uvicorn.Config, guard: Guard, models: Models, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._guard, self._models, self._started = guard, models, started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        loop = asyncio.get_running_loop()
        if not self._guard.closing:
            self._guard.closing = True
            _later(DRAIN_SECONDS, self._models.close)
            _later(DRAIN_SECONDS + _LAST_SECONDS + _GRACE_SECONDS, lambda: os._exit(1))
            # connections are closed only then: the request on one that is closed at once might not have been read
            loop.call_later(_LATE_SECONDS, self._exit)
        elif sig == signal.SIGINT:  # a second Ctrl-C ends it at once, as in uvicorn
            self._models.close()
            self._exit()

    def _exit(self) -> None:
        self.should_exit = True


def _later(seconds: float, act: Callable[[], None]) -> None:
    """Do something later by a thread of its own, which does not wait for an event loop that is busy."""
    timer = threading.Timer(seconds, act)
    timer.daemon = True
    timer.start()


def serve(
    models: Models,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    key: str | None = None,
    hosts: tuple[str, ...] = (),
    origins: tuple[str, ...] = (),
    reload: bool = False,
    runs_below: Path | None = None,
    learn: bool = False,
    say: Callable[[str], None] | None = None,
) -> None:
    """Serve loaded models until SIGTERM or Ctrl-C; `say` is called with the address once it listens.

    `hosts` are more names of the server; pages of `origins`, such as http://localhost:3000, may use it too;
    `runs_below` is a folder whose trainings are shown; `learn` shows the lessons of the course. An address that
    others can reach needs a key.
    """
    if host not in LOCAL and not key:
        raise SettingsError(f"{host} can be reached by others: set a key, by --key-file or CHAINRULE_KEY")
    names = {one.lower() for one in (*LOCAL, host, *hosts)} - {"0.0.0.0", "::"}
    rules = Rules(frozenset(names), frozenset(map(_origin, origins)), key)
    sys.setswitchinterval(_SWITCH_SECONDS)
    guard = make_app(models, rules, reload=reload, runs_below=runs_below, learn=learn)
    listening = _listen(host, port)
    config = uvicorn.Config(
        guard,
        http=_Protocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        proxy_headers=False,  # the client is the one that is connected
        timeout_keep_alive=30,
        timeout_graceful_shutdown=int(DRAIN_SECONDS) + _LAST_SECONDS,
        lifespan="on",
    )

    def started() -> None:
        if say is not None:
            name = f"[{host}]" if ":" in host else host
            say(f"http://{name}:{listening.getsockname()[1]}")

    gc.collect()
    gc.freeze()  # to look through all that libraries and models hold stops every thread for 0.2 s
    _Server(config, guard, models, started).run(sockets=[listening])


def _origin(given: str) -> str:
    """Return an origin as browsers write it."""
    found = re.fullmatch(r"(https?://[^/?#@\s]+)/?", given.lower())
    if found is None:
        raise SettingsError(f"{given!r} is no address of pages: write it as http://localhost:3000")
    return found[1]


def _listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens already, so that the address can be used once it is printed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from the socket that listens
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * UNREAD_SECONDS))
    if hasattr(socket, "TCP_NOTSENT_LOWAT"):  # else megabytes are generated for a client that reads nothing
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, UNSENT_BYTES)
    try:
        listening.bind((host, port))
        listening.listen(1024)
    except OSError as error:
        listening.close()
        raise ServeError(f"{host}:{port} cannot be listened on: {error.strerror}; choose another --port") from None
    return listening
