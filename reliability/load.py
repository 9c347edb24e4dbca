"""A server under load, which is then told to stop: every request is answered or refused, and it ends in time."""

from __future__ import annotations

import json
import signal
import sys
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
            began = time.monotonic()
            thread = threading.Thread(target=_load_quietly, args=(port, requests))
            thread.start()
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            code = process.wait(DRAIN_SECONDS + 30)
            took = time.monotonic() - began
            thread.join()
            problem = f"exit code {code} after {took:.0f} s" if code or took > DRAIN_SECONDS + 10 else None
            trial.note("stops under load", problem)


def _load_quietly(port: int, requests: list[Request]) -> None:
    """Send requests until the server goes away."""
    try:
        load(port, requests, 4, 3.0)
    except Exception as error:  # the connection ends with the server
        print(f"  (the clients ended with {type(error).__name__})", file=sys.stderr)


def _judge(trial: Trial, sort: str, tally: Tally) -> None:
    missing = tally.sent - tally.answered - tally.refused
    trial.note(sort, None, times=tally.sent)
    for count, what in ((missing, "without an answer"), (tally.wrong, "answered wrongly")):
        if count:
            trial.lost[f"{sort}: {what}"] += count
