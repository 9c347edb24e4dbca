"""Beside llama.cpp's server: the same weights, the same requests, one server after the other.

`python -m benchmarks serve llama --llama-server PATH` needs the program llama-server and the package `gguf`.
"""

from __future__ import annotations

import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import chainrule as cr
from benchmarks.serve.load import Request, complete, load, load_one_then_many, request_bytes, server
from chainrule.interop.gguf import write_gguf

TOKENS = 64


def train_llama() -> cr.LanguageModel:
    """Train a Transformer of Llama's design with about 10 million parameters for a few steps."""
    settings = {"preset": "llama", "width": 320, "layers": 6, "heads": 5, "window": 256}
    corpus = cr.Corpus.open("builtin:python")
    return cr.train("transformer", corpus, tokenizer="bpe", context="stream", steps=10, **settings)


@contextmanager
def llama_server(program: Path, model: Path, slots: int, window: int) -> Iterator[int]:
    """Start llama.cpp's server in a process of its own; yield its port."""
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


def compare(program: Path, place: Path, prompts: list[str], many: int, seconds: float) -> list[dict[str, str]]:
    """Return a row for each server and load."""
    lm = train_llama()
    lm.save(place / "llama")
    write_gguf(lm, place / "llama.gguf")
    # greedy streams that do not end by themselves are the same on both servers
    greedy = {"temperature": 0, "logit_bias": {str(lm.tokenizer.eos): -100}}
    stream = {"max_tokens": TOKENS, "stream": True, "stream_options": {"include_usage": True}, **greedy}
    requests: list[Request] = [(request_bytes({"prompt": prompt, **stream}), None) for prompt in prompts]

    def measure(name: str, port: int, some: Sequence[object]) -> tuple[list[dict[str, str]], list[str]]:
        load(port, requests, many, 2)
        rows = [{"server": name, **row} for row in load_one_then_many(port, requests, many, seconds)]
        return rows, [complete(port, {"prompt": prompt, "max_tokens": 24, **greedy}) for prompt in some]

    with llama_server(program, place / "llama.gguf", many, 256) as port:
        their_rows, theirs = measure("llama.cpp", port, prompts[:4])
    with server(str(place / "llama")) as (port, _):
        # as tokens, which are not changed: a text may stop inside a word
        our_rows, ours = measure(
            "chainrule", port, [lm.tokenizer.encode(prompt).tolist() for prompt in prompts[:4]]
        )
    same = sum(one == other for one, other in zip(theirs, ours, strict=True))
    print(f"greedy texts: {same} of {len(ours)} are the same")
    for row, peer in zip(our_rows, their_rows, strict=True):
        print(f"{row['at once']} at once: {_rate(row) / _rate(peer):.2f}x llama.cpp")
    return their_rows + our_rows


def _rate(row: dict[str, str]) -> float:
    return float(row["tokens/s"].replace(",", ""))
