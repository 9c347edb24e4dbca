"""Clients that hold a connection: those that send a byte now and then, and those that do not read their answer."""

from __future__ import annotations

import contextlib
import socket
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.serve.load import request_bytes

from chainrule.serve.guard import DEADLINE
from chainrule.serve.run import UNREAD_SECONDS

from .beside import Beside
from .frame import Trial

_HEAD = b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 9000\r\n\r\n"
UNREAD = "a stream that is not read"
SLOW: dict[str, tuple[bytes, bytes, float]] = {
    "a silent connection": (b"", b"", DEADLINE),
    "a header byte by byte": (b"", b"POST /v1/completions HTTP/1.1\r\nX: " + b"a" * 9000, DEADLINE),
    "a body byte by byte": (_HEAD % b"/v1/completions", b" " * 9000, DEADLINE),
    "a body after its answer": (_HEAD % b"/v1/nothing", b" " * 9000, 2 * DEADLINE),
    UNREAD: (b"", b"", UNREAD_SECONDS),
}
"""What a client sends at once, what it sends byte by byte, and the seconds after which the server gives it up."""
_SLACK = 15.0
"""Seconds that a busy machine may take longer."""
SHORT = 20.0
"""A small run waits for so many times less."""
PROGRAM = f"""
import sys
from chainrule.serve import guard, run
from chainrule.cli.main import run_process
from reliability.controls import broken

guard.DEADLINE = run.DEADLINE = {DEADLINE / SHORT}
run.UNREAD_SECONDS = {UNREAD_SECONDS / SHORT}
chosen = sys.argv.pop(1)
with broken(chosen):
    run_process()
"""
"""The server of a small run."""


def hold(trial: Trial, names: Sequence[str], port: int, beside: Beside, unread: bytes) -> None:
    """Open connections of every sort at once, and hold them; each is given up by the server after its time."""
    late = beside.during(lambda: _held(trial, names, port, unread))
    trial.note("another client beside slow ones", late)


def _held(trial: Trial, names: Sequence[str], port: int, unread: bytes) -> None:
    share, each = (SHORT, 3) if trial.small else (1.0, 20)
    # each stream has 8 texts, and the server generates 64 together: one that waits has sent nothing to be read
    chosen = [name for name in names for _ in range(min(each, 6) if name == UNREAD else each)]
    clients = [(name, _connected(port, SLOW[name][0] or unread * (name == UNREAD))) for name in chosen]
    ends: dict[int, float] = {}
    began = time.perf_counter()
    latest = began + max(SLOW[name][2] for name in names) / share + _SLACK
    turn = 0
    while len(ends) < len(clients) and time.perf_counter() < latest:
        served = _served(port)
        for number, (name, client) in enumerate(clients):
            if number not in ends and client.getsockname()[1] not in served:
                ends[number] = time.perf_counter() - began
            with contextlib.suppress(OSError):
                client.send(SLOW[name][1][turn : turn + 1])
        turn += 1
        time.sleep(DEADLINE / share / 40)
    for number, (name, client) in enumerate(clients):
        client.close()
        stated, took = SLOW[name][2] / share, ends.get(number, float("inf"))
        is_right = 0.5 * stated < took < stated + _SLACK
        trial.note(name, None if is_right else f"given up after {took:.1f} s, not {stated:.1f}")


def _connected(port: int, request: bytes) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.connect(("127.0.0.1", port))
    client.sendall(request)
    client.setblocking(False)
    return client


def _served(port: int) -> set[int]:
    """The ports of clients whose connections are open at the server (Linux)."""
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        _, local, remote, state, *_ = line.split()
        if int(local.partition(":")[2], 16) == port and state in ("01", "08"):  # established, close-wait
            found.add(int(remote.partition(":")[2], 16))
    return found


def endless(eos: int, model: str) -> bytes:
    """A request for a stream of many megabytes."""
    asked = {"model": model, "prompt": "we", "max_tokens": 4096, "n": 8, "logprobs": 5, "stream": True}
    return request_bytes({**asked, "logit_bias": {str(eos): -100}})
