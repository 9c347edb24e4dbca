"""Requests that are known to have harmed such servers: each has its stated answer, and others are answered too."""

from __future__ import annotations

import json
import socket
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from benchmarks.serve.load import complete, request_bytes, server

from .controls import command
from .frame import Trial
from .models import made

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


def run(trial: Trial) -> None:
    """Send abuses in turn, each of which is answered as stated; after each the server answers others."""
    names = trial.chosen(list(ABUSES))
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        made("ngram").save(Path(folder) / "m")
        with server(str(Path(folder) / "m"), program=tuple(command(trial.control)[1:])) as (port, process):
            for number in trial:
                name = names[number % len(names)]
                make, expected = ABUSES[name]
                status = _status(port, make(trial.random), gone=name == "gone at once")
                problem = None if status in expected else f"{status}, not {' or '.join(map(str, sorted(expected)))}"
                if process.poll() is not None:
                    trial.note(name, f"the server ended with {process.returncode}")
                    return
                trial.note(name, problem or _canary(port))


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


def _canary(port: int) -> str | None:
    """Whether another client is still answered."""
    began = time.monotonic()
    try:
        complete(port, {"prompt": "we", "max_tokens": 2})
    except (OSError, ValueError, json.JSONDecodeError) as error:
        return f"then another client got {type(error).__name__}"
    took = time.monotonic() - began
    return None if took < SECONDS / 3 else f"then another client waited {took:.1f} s"
