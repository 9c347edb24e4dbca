"""A server under load, which is then told to stop: every request is answered or refused, and it ends in time."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import tempfile
import threading
import time
from pathlib import Path

from benchmarks.serve.load import Request, Tally, load, request_bytes, server

import chainrule as cr
from chainrule.serve.run import DRAIN_SECONDS

from .frame import Trial
from .models import made

CONNECTIONS = 32
_PROMPTS = ["i", "i love", "we", "cats chase", ""]


def run(trial: Trial) -> None:
    """Send requests on many connections, compare each answer with the library's, and stop the server.

    A try is a request.
    """
    lm = made("ngram")
    requests: list[Request] = []
    for number, prompt in enumerate(_PROMPTS):
        body = {"prompt": prompt, "max_tokens": 8, "seed": number, "temperature": 0.9}
        (found,) = cr.generate_many(lm, [prompt], cr.Temperature(0.9), max_tokens=8, seed=number)
        requests.append((request_bytes(body), json.dumps(found.continuation).encode()[1:-1]))
    seconds = min(3.0 if trial.small else 60.0, max(1.0, trial.ends - time.monotonic()))
    with tempfile.TemporaryDirectory(prefix="trial-") as folder:
        lm.save(Path(folder) / "m")
        program = ("-m", "reliability.controls", trial.control) if trial.control else ("-m", "chainrule")
        with server(str(Path(folder) / "m"), "--queue", "16", program=program) as (port, process):
            tally = load(port, requests, CONNECTIONS, seconds)
            _judge(trial, "requests", tally)
            clients = [threading.Thread(target=_ask_until_gone, args=(port, one)) for one, _ in requests]
            for client in clients:
                client.start()
            time.sleep(0.5)
            began = time.monotonic()
            process.send_signal(signal.SIGTERM)
            code = process.wait(DRAIN_SECONDS + 30)
            took = time.monotonic() - began
            for client in clients:
                client.join()
            problem = f"exit code {code} after {took:.0f} s" if code or took > DRAIN_SECONDS + 10 else None
            trial.note("stops under load", problem)


def _ask_until_gone(port: int, request: bytes) -> None:
    """Send a request again and again, on new connections, until the server is gone."""
    with contextlib.suppress(OSError):
        while True:
            with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                connection.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
                while connection.recv(1 << 16):
                    pass


def _judge(trial: Trial, sort: str, tally: Tally) -> None:
    missing = tally.sent - tally.answered - tally.refused
    trial.note(sort, None, times=tally.sent)
    for count, what in ((missing, "without an answer"), (tally.wrong, "answered wrongly")):
        if count:
            trial.lost[f"{sort}: {what}"] += count
