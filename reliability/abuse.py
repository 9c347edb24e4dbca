"""Requests that are known to have harmed such servers: each has its stated answer, and others are answered too."""

from __future__ import annotations

import asyncio
import socket
import struct
import subprocess
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.serve.largest import largest_requests, task_models
from benchmarks.serve.load import active_texts, answer, request_bytes, server

from .beside import Beside, Span
from .controls import command
from .frame import Trial
from .guesses import GUESSES, guess
from .models import made
from .slow import PROGRAM, SLOW, endless, hold

SECONDS = 30
GONE = 0
"""In the place of a status: the connection was closed without an answer."""
Make = Callable[[Random], bytes]


def _body(**fields: Any) -> Make:
    return lambda random: request_bytes({"prompt": "i", "max_tokens": 2, "seed": random.randrange(9), **fields})


def _raw(
    content: bytes, *headers: str, path: str = "/v1/completions", method: str = "POST", host: str = "localhost"
) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Content-Type: application/json", *headers]
    return "\r\n".join([*lines, f"Content-Length: {len(content)}", "", ""]).encode("latin-1") + content


_GOOD = b'{"prompt": "i", "max_tokens": 2}'


def _of(content: bytes, *headers: str, **options: str) -> Make:
    return lambda random: _raw(content, *headers, **options)


def _nested(random: Random) -> bytes:
    return _raw(b'{"prompt": ' + b"[" * random.randrange(1000, 200_000) + b"}")


def _noise(random: Random) -> bytes:
    return _raw(random.randbytes(random.randrange(1, 400)))


def _endless(random: Random) -> bytes:
    return _raw(b"").removesuffix(b"\r\n\r\n") + b"\r\nX: " + b"a" * (1 << 22)


def _changed(random: Random) -> bytes:
    """A good request in which a byte of the head or the body was changed."""
    content = bytearray(_raw(_GOOD))
    content[random.randrange(len(content))] = random.randrange(256)
    return bytes(content)


ABUSES: dict[str, tuple[Make, set[int]]] = {
    "a good request": (_body(), {200}),
    "many choices": (_body(n=10**9), {400}),
    "negative choices": (_body(n=-1), {400}),
    "many tokens": (_body(max_tokens=10**12), {400}),
    "many stops": (_body(stop=["x"] * 1000), {400}),
    "a bias for nothing": (_body(logit_bias={"99999999999": 1}), {400}),
    "a bias that is no number": (_of(b'{"prompt": "i", "logit_bias": {"3": NaN}}'), {400}),
    "NaN": (_of(b'{"prompt": "i", "temperature": NaN}'), {400}),
    "Infinity": (_of(b'{"prompt": "i", "temperature": Infinity}'), {400}),
    "a number of 5,000 digits": (_of(b'{"prompt": "i", "seed": ' + b"9" * 5000 + b"}"), {400}),
    "ids beyond the vocabulary": (_body(prompt=[10**9, -1]), {400}),
    "deep JSON": (_nested, {400}),
    "noise": (_noise, {400}),
    "half a surrogate": (_of(b'{"prompt": "\\ud800"}'), {400}),
    "a large body": (_of(b'{"prompt": "' + b"i " * 700_000 + b'"}'), {413}),
    "a length without a body": (
        lambda random: _raw(_GOOD).replace(b"Content-Length: 32", b"Content-Length: 99999999"),
        {413},
    ),
    "a length that is no number": (lambda random: _raw(_GOOD).replace(b"Length: 32", b"Length: -5"), {400, GONE}),
    "two lengths": (_of(_GOOD, "Content-Length: 4"), {400, GONE}),
    "a large header": (_of(_GOOD, "X-Long: " + "a" * 70_000), {431, GONE}),
    "a header of a megabyte": (_of(_GOOD, "X-Long: " + "a" * (1 << 20)), {431, GONE}),
    "a header without an end": (
        lambda random: _raw(b"").split(b"\r\n\r\n")[0] + b"\r\nX: " + b"a" * (1 << 22),
        {GONE},
    ),
    "many headers": (_of(_GOOD, *(f"X-{i}: yyyyyyyy" for i in range(5000))), {431, GONE}),
    "a long path": (_of(_GOOD, path="/" + "a" * 100_000), {400, 404, 413, 414, 431, GONE}),
    "a path outside": (_of(b"", path="/page/../../../../etc/passwd", method="GET"), {404}),
    "a packed path outside": (_of(b"", path="/page/%2e%2e%2f%2e%2e%2fetc/passwd", method="GET"), {404}),
    "a model outside": (_body(model="../../etc/passwd"), {404}),
    "another method": (_of(b"", method="DELETE"), {405}),
    "another host": (_of(_GOOD, host="evil.example"), {403}),
    "another origin": (_of(_GOOD, "Origin: http://evil.example"), {403}),
    "no origin at all": (_of(_GOOD, "Origin: null"), {403}),
    "half an origin": (_of(_GOOD, "Origin: http://[::1"), {403}),
    "two hosts": (_of(_GOOD, "Host: localhost"), {400}),
    "a byte changed": (_changed, {200, 400, 403, 404, 405, 413, 415, 422, 501, 505, GONE}),
    "gone at once": (_body(max_tokens=400, stream=True), {200, GONE}),
    "the largest prompt": (_of(b'{"max_tokens": 1, "prompt": "' + b"i " * 400_000 + b'"}'), {200, 400}),
    "the largest answer": (_body(n=8, max_tokens=400, logprobs=5), {200}),
}


BESIDE, STORM = "another client beside each", "a storm of clients that leave"
LARGEST = {f"{name}, largest": (path, body) for name, path, body in largest_requests()}
_STORM_SECONDS = 5.0
"""After so long nothing may be left to do for clients that have left."""


def run(trial: Trial) -> None:
    """Send abuses in turn beside another client; then come slow clients, storms, guesses, and large requests."""
    if trial.chosen([*ABUSES, *SLOW, STORM]):
        _on_a_small_server(trial)
    if trial.chosen([GUESSES]):
        guess(trial)
    large = trial.chosen(list(LARGEST)) if trial.only or not trial.small else []
    if large:
        _largest(trial, large)


def _on_a_small_server(trial: Trial) -> None:
    program = ("-c", PROGRAM, trial.control) if trial.small else ("-m", "chainrule")
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        folders = [str(Path(folder) / name) for name in ("m", "other")]
        lm = made("ngram")
        for one in folders:
            lm.save(one)
        endlessly = endless(lm.tokenizer.eos, "m")
        with server(*folders, program=program) as (port, process):
            with Beside(port, "other", "other") as beside:
                beside.be_quiet(0.5 if trial.small else 3.0)
                if names := trial.chosen(list(ABUSES)):
                    _abuses(trial, names, port, process, beside)
                if names := trial.chosen(list(SLOW)):
                    hold(trial, names, port, beside, endlessly)
                if trial.chosen([STORM]):
                    _storms(trial, port, beside, endlessly)
            if trial.control:
                process.kill()  # it may have work left


def _abuses(trial: Trial, names: list[str], port: int, process: subprocess.Popen[str], beside: Beside) -> None:
    """Send abuses, each of which is answered as stated."""
    spans: dict[str, list[Span]] = defaultdict(list)

    def send(name: str) -> str | None:
        make, expected = ABUSES[name]
        began = time.perf_counter()
        status = _status(port, make(trial.random), gone=name == "gone at once")
        spans[name].append((began, time.perf_counter()))
        return None if status in expected else f"{status}, not {' or '.join(map(str, sorted(expected)))}"

    for number in trial:
        name = names[number % len(names)]
        trial.note(name, send(name))
        if process.poll() is not None:
            trial.note(name, f"the server ended with {process.returncode}")
            return
        if number % 500 == 499:
            beside.be_quiet(1.0)
    for name, found in spans.items():
        late = beside.late(found) and beside.during(lambda name=name: "".join(send(name) or "" for _ in range(10)))
        trial.note(BESIDE, late and f"{late}, beside {name}")


def _storms(trial: Trial, port: int, beside: Beside, request: bytes) -> None:
    """Clients that leave all at once, when they have something of their answer or nothing yet."""

    def storm() -> str | None:
        clients = [socket.create_connection(("127.0.0.1", port)) for _ in range(50 if trial.small else 300)]
        for client in clients:
            client.sendall(request)
        clients[0].recv(1)
        for number, client in enumerate(clients):
            if number % 2:  # without a goodbye
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        until = time.perf_counter() + _STORM_SECONDS
        while left := active_texts(port, "m"):
            if time.perf_counter() > until:
                return f"{left:.0f} texts are generated or wait {_STORM_SECONDS:.0f} s later"
            time.sleep(0.02)
        return None

    for _ in range(1 if trial.small else 10):
        trial.note(STORM, beside.during(storm))


def _largest(trial: Trial, names: list[str]) -> None:
    """Send the largest requests of each route beside a canary and a stream of other models."""
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        for name, model in {**task_models(), "canary": made("ngram")}.items():
            model.save(Path(folder) / name)
        folders = [str(path) for path in sorted(Path(folder).iterdir())]
        with server(*folders, program=tuple(command(trial.control)[1:])) as (port, process):
            with Beside(port, "canary", "lstm") as beside:
                beside.be_quiet(3.0)
                for name in names:
                    if trial.is_over:
                        break
                    path, body = LARGEST[name]
                    content = request_bytes(body, path)

                    def send(content: bytes = content) -> str | None:
                        status = asyncio.run(_answered(port, content))
                        return None if status in (200, 400) else f"{status}, not 200 or 400"

                    trial.note(name, beside.during(send))
            if trial.control:
                process.kill()


async def _answered(port: int, request: bytes) -> int:
    """The status of the answer to a request, which is read to its end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writer.write(request)
    status, _, _ = await answer(reader)
    writer.close()
    return status


def _status(port: int, request: bytes, *, gone: bool) -> int:
    """The status of the answer to a request."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        try:
            connection.sendall(request)
            if gone:
                return GONE
            said = connection.recv(12)
            while said and len(said) < 12 and (piece := connection.recv(12 - len(said))):
                said += piece
        except TimeoutError:
            return -1
        except OSError:  # it was closed before all of the request was sent
            return GONE
    return int(said[9:12]) if len(said) == 12 else GONE
