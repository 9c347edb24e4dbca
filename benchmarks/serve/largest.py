"""The largest request that each route takes, beside a stream: how long the stream waits for its next piece."""

from __future__ import annotations

import asyncio
import random
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.serve.load import answer, cpu_until_idle, request_bytes, server

PATIENCE = 60.0
"""Seconds after which a client gives its request up."""
LONGEST_GAP = 0.5
"""Seconds that a stream may have to wait for its next piece."""
MOST_AFTER_LEAVING = 0.5
"""Seconds that a server may compute for a client that has gone."""
CONTROLS = ("/tokenize letters", "/v1/score 30 kB, top 20", "/v1/completions echo, 30 kB, top 20")
"""Requests for which a server that does its work on the event loop must fail."""
WORDS = "The function returns a list of objects, in the order in which they were added. It may be empty."


class OnTheLoop(Executor):
    """Does work at once, where it is asked for."""

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **options: Any) -> Future[Any]:
        future = Future[Any]()
        try:
            future.set_result(work(*arguments, **options))
        except BaseException as error:
            future.set_exception(error)
        return future


ON_THE_LOOP = """
import runpy
from benchmarks.serve.largest import OnTheLoop
from chainrule.serve.api import pieces

pieces._WORKERS, pieces._TURN_SECONDS = OnTheLoop(), float("inf")
runpy.run_module("chainrule", run_name="__main__", alter_sys=True)
"""
"""The control: the same server, which does all work on its event loop, each in one go."""


@dataclass
class Outcome:
    """What became of a request, and of the stream beside it."""

    name: str
    status: int
    """Of the answer; 0: the client gave it up."""
    megabytes: float
    seconds: float
    gap: float
    """The longest time between two pieces of the stream, in seconds."""
    pieces: int

    def row(self) -> dict[str, str]:
        """Return the figures as a row of a table."""
        return {
            "request": self.name,
            "status": str(self.status or "given up"),
            "answer MB": f"{self.megabytes:.1f}",
            "s": f"{self.seconds:.1f}",
            "pieces": f"{self.pieces}",
            "worst gap ms": f"{1000 * self.gap:.0f}",
        }


def texts(words: str) -> dict[str, str]:
    """Return texts of nearly a megabyte: one line, many lines, letters without a space."""
    line = (words + " ") * (900_000 // (len(words) + 1))
    letters = random.Random(0).choices("abcdefghijklmnopqrstuvwxyz", k=900_000)
    return {"one line": line.strip(), "lines": line.replace(". ", ".\n"), "letters": "".join(letters)}


def task_models() -> dict[str, Any]:
    """Train a small model for each route: two that predict text, and one of each other task by its verb."""
    corpus, small = cr.Corpus.open("builtin:python"), {"layers": 1, "steps": 2}
    pairs, tagged = [("a b c", "c b a"), ("b c a", "a c b")] * 8, [[("the", "DET"), ("cat", "NOUN")]] * 8
    labelled = [
        (f"{words} {number}", label)
        for number in range(40)
        for words, label in (("a cat", "en"), ("eine Katze", "de"))
    ]
    return {
        "ngram": cr.train("ngram", corpus, order=5, tokenizer="bpe"),
        "lstm": cr.train("lstm", corpus, tokenizer="bpe", context="stream", embedding=64, hidden=128, steps=1),
        "translate": cr.train("seq2seq", pairs, cell="gru", width=32, **small),
        "tag": cr.train("tagger", tagged, width=32, **small),
        "classify": cr.train("classifier", labelled, width=32, **small),
        "fill": cr.train("masked", corpus, width=32, heads=2, window=128, **small),
    }


@contextmanager
def large_server(
    program: tuple[str, ...] = ("-m", "chainrule"),
) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Start a server of `task_models`; yield its port and the process."""
    with tempfile.TemporaryDirectory() as place:
        folders = []
        for name, model in task_models().items():
            folders.append(str(Path(place, name)))
            model.save(folders[-1])
        with server(*folders, program=program) as found:
            yield found


def largest_requests() -> list[tuple[str, str, Any]]:
    """Return name, path and body of requests to `task_models`: the largest of each route, and some too large."""
    lm, network, words = "ngram", "lstm", WORDS
    found: list[tuple[str, str, Any]] = []

    def add(name: str, path: str, **body: Any) -> None:
        found.append((f"{path} {name}", path, body))

    for name, text in texts(words).items():
        add(name, "/tokenize", model=lm, prompt=text)
        add(name, "/v1/completions", model=lm, prompt=text, max_tokens=8)
    text = texts(words)["one line"]
    add("500,000 ids", "/detokenize", model=lm, tokens=[5] * 500_000)
    add("195 kB", "/v1/score", model=lm, text=text[:195_000])
    add("900 kB", "/v1/score", model=lm, text=text)
    add("200 kB, network", "/v1/score", model=network, text=text[:200_000])
    for size in (30_000, 50_000):
        add(f"{size // 1000} kB, top 20", "/v1/score", model=lm, text=text[:size], top=20)
    add("echo, 195 kB", "/v1/completions", model=lm, prompt=text[:195_000], echo=True, logprobs=0, max_tokens=0)
    add(
        "echo, 30 kB, top 20",
        "/v1/completions",
        model=lm,
        prompt=text[:30_000],
        echo=True,
        logprobs=20,
        max_tokens=1,
    )
    add("128 prompts", "/v1/completions", model=lm, prompt=[text[:7000]] * 128, n=8, max_tokens=64)
    add("128 lists of ids", "/v1/completions", model=lm, prompt=[[5] * 2500] * 128, max_tokens=4)
    add("8 texts, top 20", "/v1/completions", model=lm, prompt=words, n=8, max_tokens=1400, logprobs=20)
    chat = [{"role": "user", "content": text[:3500]}] * 256
    add("256 messages", "/v1/chat/completions", model=lm, messages=chat, max_tokens=8)
    add(
        "top 20",
        "/v1/chat/completions",
        model=lm,
        messages=chat[:1],
        max_tokens=4096,
        logprobs=True,
        top_logprobs=20,
    )
    add("900 kB", "/v1/responses", model=lm, input=text, max_output_tokens=8)
    add("128 texts", "/v1/embeddings", model=network, input=[text[:1500]] * 128)
    add("900 kB, network", "/v1/completions", model=network, prompt=text, max_tokens=8)
    add("900 kB", "/v1/next", model=lm, prompt=text, top=200)
    add("900 kB, network", "/v1/next", model=network, prompt=text)
    add("16 beams", "/v1/beam", model=lm, prompt=text, width=16, max_tokens=64)
    add("4,000 letters", "/v1/suggest", model=lm, text=text[:4000], k=20)
    add("2,000 letters", "/v1/inside", model=network, text=text[:2000])
    add("200 letters", "/v1/merges", model=lm, text=text[:200])
    add("100", "/v1/neighbours", model=network, token="a", top=100)
    add("128 texts", "/v1/translate", model="translate", text=[text[:300]] * 128, beams=5)
    add("45 texts of 20 kB", "/v1/tag", model="tag", text=[text[:20_000]] * 45)
    add("9 texts of 100 kB", "/v1/classify", model="classify", text=[text[:100_000]] * 9)
    add("30 gaps", "/v1/fill", model="fill", text="[MASK] " * 30, top=50)
    add("a wrong list", "/detokenize", model=lm, tokens=["a"] * 200_000)
    return found


async def beside(port: int, streaming: str, name: str, path: str, body: Any) -> Outcome:
    """Send a request while another model streams; return the answer and the stream's worst gap."""
    content = b"" if body is None else request_bytes(body, path)  # before the clock starts: it takes its time
    times: list[float] = []
    done = asyncio.Event()
    streams = asyncio.create_task(stream_until(port, streaming, done, times))
    while not times:  # it streams
        await asyncio.sleep(0.01)
    del times[:-1]
    began = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 26)
    writer.write(content)
    status, found = 0, b""
    try:
        async with asyncio.timeout(PATIENCE):
            if body is None:
                await asyncio.sleep(3)
            else:
                status, found, _ = await answer(reader)
    except TimeoutError:
        pass
    writer.close()
    took = time.perf_counter() - began
    await asyncio.sleep(0.5)  # what the server does after the client has gone counts as well
    done.set()
    await streams
    gaps = [after - before for before, after in pairwise(times)]
    return Outcome(name, status, len(found) / 1e6, took, max(gaps, default=took), len(gaps))


async def stream_until(port: int, model: str, done: asyncio.Event, times: list[float]) -> None:
    """Stream one text after the other; note the time of each piece."""
    asked = {"model": model, "prompt": "the", "max_tokens": 4096, "stream": True, "logprobs": 1}
    seed = 0
    while not done.is_set():
        seed += 1
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(request_bytes({**asked, "seed": seed}))
        await reader.readuntil(b"\r\n\r\n")
        while not done.is_set():
            size = int(await reader.readline(), 16)
            await reader.readexactly(size + 2)
            times.append(time.perf_counter())
            if not size:
                break
        writer.close()


def after_leaving(port: int, process: subprocess.Popen[str], path: str, body: Any, wait: float) -> float:
    """Send a request, and leave after some seconds; return how long the server then computes for nobody."""
    cpu_until_idle(process)
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(request_bytes(body, path))
        time.sleep(wait)
    return cpu_until_idle(process)


def measure(port: int, streaming: str, requests: list[tuple[str, str, Any]]) -> list[Outcome]:
    """Send each request beside a stream, the stream alone first."""
    every = [("the stream alone", "", None), *requests]
    return [asyncio.run(beside(port, streaming, *one)) for one in every]
