"""Beside llama.cpp's server: the same weights, the same requests, one server after the other.

`python -m benchmarks serve llama --llama-server PATH` needs the program llama-server and the package `gguf`.
"""

from __future__ import annotations

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import chainrule as cr
from benchmarks.serve.load import Tally, load, request_bytes, server
from chainrule.interop.gguf import write_gguf

TOKENS = 64


def train_llama() -> cr.LanguageModel:
    """A Transformer of Llama's design with about 10 million parameters, trained a little."""
    settings = {"preset": "llama", "width": 320, "layers": 6, "heads": 5, "window": 256}
    corpus = cr.Corpus.open("builtin:python")
    return cr.train("transformer", corpus, tokenizer="bpe", context="stream", steps=10, **settings)


@contextmanager
def llama_server(program: Path, model: Path, slots: int, window: int) -> Iterator[int]:
    """llama.cpp's server in a process of its own: its port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [str(program), "-m", str(model), "--port", str(port), "--threads", "2"]
    command += ["--parallel", str(slots), "--ctx-size", str(slots * window), "--log-disable"]
    command += ["--cache-type-k", "f32", "--cache-type-v", "f32", "--flash-attn", "off"]  # as here: the same texts
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while not _is_up(port):
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit(f"{program} did not start")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(30)


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError, TimeoutError):
        return False


def requests_for(prompts: list[str], end: int) -> list[tuple[bytes, bytes | None]]:
    """Streams of the most likely tokens, which are the same whoever computes them, and do not end by themselves."""
    fields = {"max_tokens": TOKENS, "stream": True, "stream_options": {"include_usage": True}}
    return [(request_bytes({"prompt": prompt, **fields, **_most_likely(end)}), None) for prompt in prompts]


def _most_likely(end: int) -> dict[str, object]:
    return {"temperature": 0, "logit_bias": {str(end): -100}}


def measure(
    port: int, requests: list[tuple[bytes, bytes | None]], many: int, seconds: float
) -> list[tuple[int, float, Tally]]:
    """How many at once, tokens per second, and what came of the requests: one at a time, then many."""
    found = []
    load(port, requests, many, 2)
    for connections in (1, many):
        began = time.perf_counter()
        tally = load(port, requests, connections, seconds)
        found.append((connections, tally.tokens / (time.perf_counter() - began), tally))
    return found


def compare(program: Path, place: Path, prompts: list[str], many: int, seconds: float) -> list[dict[str, str]]:
    """A row for each server and load."""
    lm = train_llama()
    lm.save(place / "llama")
    write_gguf(lm, place / "llama.gguf")
    end = lm.tokenizer.eos
    requests = requests_for(prompts, end)
    measured: dict[str, list[tuple[int, float, Tally]]] = {}
    with llama_server(program, place / "llama.gguf", many, 256) as port:
        measured["llama.cpp"] = measure(port, requests, many, seconds)
        theirs = [text_of(port, prompt, end) for prompt in prompts[:4]]
    with server(str(place / "llama")) as (port, _):
        measured["chainrule"] = measure(port, requests, many, seconds)
        # as tokens, which are taken as they are: a text may stop inside a word
        ours = [text_of(port, lm.tokenizer.encode(prompt).tolist(), end) for prompt in prompts[:4]]
    same = sum(one == other for one, other in zip(theirs, ours, strict=True))
    print(f"the most likely texts: {same} of {len(ours)} are the same")
    peer = {connections: rate for connections, rate, _ in measured["llama.cpp"]}
    return [
        {
            "server": name,
            "at once": f"{connections}",
            "tokens/s": f"{rate:,.0f}",
            "ratio": f"{rate / peer[connections]:.2f}",
            "first token p50 ms": f"{tally.quantile(0.5, 'first'):.0f}",
            "p95 ms": f"{tally.quantile(0.95, 'first'):.0f}",
            "wrong": f"{tally.wrong}",
        }
        for name, rows in measured.items()
        for connections, rate, tally in rows
    ]


def text_of(port: int, prompt: str | list[int], end: int) -> str:
    """The most likely text after a prompt."""
    body = {"prompt": prompt, "max_tokens": 24, **_most_likely(end)}
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(json.loads(answer.read())["choices"][0]["text"])
