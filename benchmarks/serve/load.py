"""Clients that load a server: raw HTTP on sockets, since a full client would be slower than the server."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

Request = tuple[bytes, bytes | None]
"""The bytes of a request, and bytes that its answer must contain."""

_MOMENT = 0.3


@dataclass
class Tally:
    """The outcome of many requests."""

    sent: int = 0
    answered: int = 0
    refused: int = 0
    """Answers 429."""
    wrong: int = 0
    """Answers with another status or another text than expected."""
    seconds: list[float] = field(default_factory=list)
    """The time of each answer."""
    first: list[float] = field(default_factory=list)
    """The time until the first piece of each stream."""
    tokens: int = 0
    """Sampled tokens, if the answers count them."""

    def quantile(self, q: float, of: str = "seconds") -> float:
        """Return a quantile of the times, in milliseconds."""
        times = getattr(self, of)
        return 1000 * float(np.quantile(times, q)) if times else float("nan")


def request_bytes(body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """Return a request as the bytes that go over the wire."""
    content = json.dumps(body, separators=(",", ":")).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, float | None]:
    """Return the status and the body of an answer, and the time of its first piece if it is a stream."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head[9:12])
    length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
    if length is not None:
        return status, await reader.readexactly(int(length[1])), None
    pieces, first = [], None
    while size := int(await reader.readline(), 16):  # chunks
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)
        first = first or time.perf_counter()
    await reader.readexactly(2)
    return status, b"".join(pieces), first


async def client(port: int, requests: list[Request], until: float, tally: Tally, offset: int) -> None:
    """Send one request after the other on one connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    turn = offset
    while time.perf_counter() < until:
        request, expected = requests[turn % len(requests)]
        turn += 1
        began = time.perf_counter()
        tally.sent += 1
        writer.write(request)
        try:
            status, body, first = await answer(reader)
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            # some servers close a connection after a number of requests, without a message
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            status, body, first = await answer(reader)
        tally.seconds.append(time.perf_counter() - began)
        if status == 429:
            tally.refused += 1
            await asyncio.sleep(0.05)
            continue
        tally.answered += 1
        if first is not None:
            tally.first.append(first - began)
        if counted := re.search(rb'"completion_tokens":(\d+)', body):
            tally.tokens += int(counted[1])
        if status != 200 or (expected is not None and expected not in body):
            tally.wrong += 1
    writer.close()


def load(port: int, requests: list[Request], connections: int, seconds: float) -> Tally:
    """Open some connections, each of which sends requests without a pause."""
    tally = Tally()

    async def every() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, requests, until, tally, i * 7919) for i in range(connections)))

    asyncio.run(every())
    return tally


def load_one_then_many(port: int, requests: list[Request], many: int, seconds: float) -> list[dict[str, str]]:
    """Return a row of figures for streams one at a time, and one for many at once."""
    rows, rates = [], []
    for connections in (1, many):
        began = time.perf_counter()
        tally = load(port, requests, connections, seconds)
        rates.append(tally.tokens / (time.perf_counter() - began))
        rows.append(
            {
                "at once": f"{connections}",
                "tokens/s": f"{rates[-1]:,.0f}",
                "to one": f"{rates[-1] / rates[0]:.2f}x",
                "first token p50 ms": f"{tally.quantile(0.5, 'first'):.0f}",
                "p95 ms": f"{tally.quantile(0.95, 'first'):.0f}",
                "answered": f"{tally.answered}",
                "wrong": f"{tally.wrong}",
            }
        )
    return rows


def complete(port: int, body: dict[str, Any]) -> str:
    """Return the text of a completion."""
    url, headers = f"http://127.0.0.1:{port}/v1/completions", {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        return str(json.loads(response.read())["choices"][0]["text"])


def active_texts(port: int, model: str = "") -> float:
    """Return how many texts the server, or one model of it, is sampling or has in its queue."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as response:
        lines = response.read().decode().splitlines()
    busy = [line for line in lines if line.startswith(("chainrule_writing{", "chainrule_waiting{"))]
    return sum(float(line.split()[1]) for line in busy if f'model="{model}' in line)


@contextmanager
def server(
    *arguments: str, program: tuple[str, ...] = ("-m", "chainrule")
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server in a process of its own; yield its port and the process."""
    command = [sys.executable, *program, "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        output = []
        for line in process.stdout:
            output.append(line)
            if found := re.search(r"http://\S+?:(\d+)", line):
                yield int(found[1]), process
                return
        raise SystemExit(f"the server did not start: {''.join(output)}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)
        if process.stdout is not None:
            process.stdout.close()


def resident(process: subprocess.Popen[str]) -> float:
    """Return the memory of a process in MB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Return the time that a process has computed, all of its threads together."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cpu_until_idle(process: subprocess.Popen[str]) -> float:
    """Wait until a process has done nothing for a moment; return how long it computed until then."""
    began = before = cpu_seconds(process)
    while True:
        time.sleep(_MOMENT)
        now = cpu_seconds(process)
        if now - before < 0.1 * _MOMENT:
            return before - began
        before = now
