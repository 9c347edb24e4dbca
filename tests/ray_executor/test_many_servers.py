"""The example of several processes behind one port: all of them answer, with the same texts."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

import chainrule as cr

pytest.importorskip("fastapi")

EXAMPLE = Path(__file__).parents[2] / "examples" / "serving" / "many.py"


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Two workers behind one address."""
    cr.train("ngram", ["i love cats", "i love dogs", "dogs love cats"], order=2, tokenizer="word").save(
        tmp_path / "toy"
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, str(EXAMPLE), str(tmp_path / "toy"), "--workers", "2", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def asked(address: str, path: str, body: dict[str, object] | None = None) -> str:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(address + path, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def test_all_workers_answer_with_the_same_texts(address: str) -> None:
    ends = time.monotonic() + 120
    while True:
        try:
            asked(address, "/health")
            break
        except (urllib.error.URLError, ConnectionError):
            assert time.monotonic() < ends, "the servers did not start"
            time.sleep(0.2)
    body: dict[str, object] = {"model": "toy", "prompt": "i", "max_tokens": 4, "seed": 3}
    texts, processes = set(), set()
    while len(processes) < 2 and time.monotonic() < ends:
        texts.add(json.loads(asked(address, "/v1/completions", body))["choices"][0]["text"])
        # each process counts its own requests, and says since when it does
        metrics = asked(address, "/metrics")
        first = 'chainrule_requests_created{route="/v1/completions"'
        processes |= {line for line in metrics.split("\n") if line.startswith(first)}
    assert len(texts) == 1
    assert len(processes) == 2
