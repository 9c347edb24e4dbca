"""Clients for load: raw HTTP on sockets, since a full client takes more time than the server that it asks."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np


@dataclass
class Tally:
    """What came of many requests."""

    sent: int = 0
    answered: int = 0
    refused: int = 0
    """Answers 429."""
    wrong: int = 0
    """Answers that are not what they should be: another status, or another text."""
    seconds: list[float] = field(default_factory=list)
    """How long each answer took."""
    first: list[float] = field(default_factory=list)
    """How long the first piece of each stream took."""
    tokens: int = 0
    """Tokens that were written, where the answers tell it."""

    def quantile(self, q: float, of: str = "seconds") -> float:
        """A quantile of the times, in milliseconds."""
        times = getattr(self, of)
        return 1000 * float(np.quantile(times, q)) if times else float("nan")


def request_bytes(body: dict[str, Any], path: str = "/v1/completions") -> bytes:
    """A request as it goes over the wire."""
    content = json.dumps(body).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content


async def answer(reader: asyncio.StreamReader) -> tuple[int, bytes, float | None]:
    """The status and the body of an answer, and when its first piece came if it is a stream."""
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


async def client(
    port: int, requests: list[tuple[bytes, bytes | None]], until: float, tally: Tally, offset: int
) -> None:
    """Ask one request after the other on one connection; each comes with what its answer should contain."""
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
            # some servers close a connection after so many requests, without a word
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
        if told := re.search(rb'"completion_tokens":(\d+)', body):
            tally.tokens += int(told[1])
        if status != 200 or (expected is not None and expected not in body):
            tally.wrong += 1
    writer.close()


def load(port: int, requests: list[tuple[bytes, bytes | None]], connections: int, seconds: float) -> Tally:
    """So many connections, each of which asks without a pause."""
    tally = Tally()

    async def every() -> None:
        until = time.perf_counter() + seconds
        await asyncio.gather(*(client(port, requests, until, tally, i * 7919) for i in range(connections)))

    asyncio.run(every())
    return tally


@contextmanager
def server(*arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """A server in a process of its own: its port, and the process."""
    command = [sys.executable, "-m", "chainrule", "serve", *arguments, "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        assert process.stdout is not None
        said = []
        for line in process.stdout:
            said.append(line)
            if found := re.search(r"http://\S+?:(\d+)", line):
                yield int(found[1]), process
                return
        raise SystemExit(f"the server did not start: {''.join(said)}")
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def resident(process: subprocess.Popen[str]) -> float:
    """The memory of a process in MB."""
    pages = int(Path(f"/proc/{process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
