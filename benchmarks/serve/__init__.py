"""The server under load, on loopback: throughput, latency, memory, and what becomes of requests that go wrong.

    python -m benchmarks serve ngram          a 5-gram model, 64 connections, 16 tokens each
    python -m benchmarks serve soak           200 connections for minutes: nothing lost or mixed up, memory steady
    python -m benchmarks serve transformer    a Transformer: one request against sixteen at once
    python -m benchmarks serve large          a Transformer of 124 M parameters, 64 streams at once (--device cuda)
    python -m benchmarks serve llama          beside llama.cpp's server, with the same weights (--llama-server PATH)
    python -m benchmarks serve leave          clients that go away: how soon their places are free
    python -m benchmarks serve terminate      SIGTERM while streams are open

Models are trained on the built-in corpus, small and quickly: how good they are does not matter here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import tempfile
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import numpy as np

import chainrule as cr
from benchmarks import harness
from benchmarks.serve.llama import compare as beside_llama
from benchmarks.serve.load import Tally, load, request_bytes, resident, server
from chainrule.inference.model import NeuralModel
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.tokens.words.tokenizer import WordTokenizer

PROMPTS = ["The", "A list of", "If the", "In this case", "The function", "When it is", "Use", "Objects have"]


def main(arguments: list[str]) -> None:
    """Run what is named."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks serve", description=__doc__)
    parser.add_argument("what", nargs="*", default=["ngram", "transformer"], choices=[*WHAT], metavar="WHAT")
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each load lasts [default: 10]")
    parser.add_argument("--connections", type=int, default=None, help="connections [default: those of each load]")
    parser.add_argument("--count", type=int, default=None, help="how often to leave or to terminate")
    parser.add_argument("--device", default="cpu", help="where the large Transformer computes [default: cpu]")
    parser.add_argument("--tokens", type=int, default=512, help="tokens in each of its texts [default: 512]")
    parser.add_argument("--llama-server", type=Path, help="the program of llama.cpp, to measure beside it")
    options = parser.parse_args(arguments)
    for name in options.what:
        WHAT[name](options)


def _ngram_folder(place: Path) -> Path:
    cr.train("ngram", cr.Corpus.open("builtin:python"), order=5, tokenizer="bpe").save(place / "ngram")
    return place / "ngram"


def _transformer_folder(place: Path) -> Path:
    lm = cr.train(
        "transformer",
        cr.Corpus.open("builtin:python"),
        tokenizer="bpe",
        context="stream",
        width=320,
        layers=6,
        steps=1,
        window=256,
    )
    lm.save(place / "transformer")
    return place / "transformer"


def _requests(port: int, count: int = 64, **fields: object) -> list[tuple[bytes, bytes | None]]:
    """Requests whose texts differ, each with the text that it gets when nothing else is asked."""
    found = []
    for number in range(count):
        body = {"prompt": f"{number}. {PROMPTS[number % 8]}", "max_tokens": 16, "seed": number, **fields}
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}/v1/completions",
            json.dumps({**body, "stream": False}).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as response:
            text = json.loads(response.read())["choices"][0]["text"]
        expected = json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":"))[1:-1].encode()
        found.append((request_bytes(body), None if fields.get("stream") else expected))
    return found


def show(title: str, rows: list[dict[str, str]]) -> None:
    """Print rows of one kind as a table."""
    harness.show(title, [*rows[0]], [[*row.values()] for row in rows])


def _row(name: str, tally: Tally, seconds: float) -> dict[str, str]:
    return {
        "load": name,
        "requests/s": f"{tally.answered / seconds:,.0f}",
        "p50 ms": f"{tally.quantile(0.5):.1f}",
        "p99 ms": f"{tally.quantile(0.99):.1f}",
        "sent": f"{tally.sent:,}",
        "answered": f"{tally.answered:,}",
        "429": f"{tally.refused:,}",
        "wrong": f"{tally.wrong:,}",
    }


def ngram(options: argparse.Namespace) -> None:
    """Completions of 16 tokens by a 5-gram model."""
    connections = options.connections or 64
    with tempfile.TemporaryDirectory() as place, server(str(_ngram_folder(Path(place)))) as (port, _):
        requests = _requests(port)
        load(port, requests, connections, 2)
        tally = load(port, requests, connections, options.seconds)
        one = load(port, requests, 1, options.seconds / 2)
    show(
        "5-gram, 16 tokens",
        [_row(f"{connections} connections", tally, options.seconds), _row("one", one, options.seconds / 2)],
    )


def soak(options: argparse.Namespace) -> None:
    """Many connections for minutes: sent = answered + refused, every text the one it should be, memory steady."""
    connections = options.connections or 200
    with tempfile.TemporaryDirectory() as place, server(str(_ngram_folder(Path(place)))) as (port, process):
        requests = _requests(port)
        load(port, requests, connections, 10)
        before = resident(process)
        tally = load(port, requests, connections, options.seconds)
        after = resident(process)
    row = _row(f"{connections} connections, {options.seconds:.0f} s", tally, options.seconds)
    show(
        "soak",
        [{**row, "MB before": f"{before:.0f}", "after": f"{after:.0f}", "growth": f"{after / before - 1:+.1%}"}],
    )
    assert tally.sent == tally.answered + tally.refused and not tally.wrong


def transformer(options: argparse.Namespace) -> None:
    """Streams of 64 tokens by a Transformer of 10 million parameters: alone, and sixteen at once."""
    many = options.connections or 16
    rows = []
    with tempfile.TemporaryDirectory() as place, server(str(_transformer_folder(Path(place)))) as (port, _):
        requests = _requests(port, 16, max_tokens=64, stream=True)
        load(port, requests, many, 2)
        rates = []
        for connections in (1, many):
            began = time.perf_counter()
            tally = load(port, requests, connections, options.seconds)
            rates.append(64 * tally.answered / (time.perf_counter() - began))
            rows.append(
                {
                    "load": f"{connections} at once",
                    "tokens/s": f"{rates[-1]:,.0f}",
                    "ratio": f"{rates[-1] / rates[0]:.2f}",
                    "first token p50 ms": f"{tally.quantile(0.5, 'first'):.0f}",
                    "p95 ms": f"{tally.quantile(0.95, 'first'):.0f}",
                    "answered": f"{tally.answered}",
                    "wrong": f"{tally.wrong}",
                }
            )
    show("Transformer, 64 tokens", rows)


def _large_folder(place: Path) -> Path:
    """A Transformer of GPT-2's smallest size with random weights."""
    config = TransformerConfig("gpt2", layers=12, width=768, heads=12, window=1024)
    tokenizer = WordTokenizer([f"w{number:05d}".encode() for number in range(50_254)])
    network = Transformer(config, tokenizer.vocab_size, tokenizer.bos)
    NeuralModel(network, tokenizer, "stream", kind="transformer", settings=config).save(place / "large")
    return place / "large"


def large(options: argparse.Namespace) -> None:
    """Streams of a large Transformer: all tokens of all streams together."""
    many, tokens = options.connections or 64, options.tokens
    dtype = "bfloat16" if options.device.startswith("cuda") else "float32"
    with tempfile.TemporaryDirectory() as place:
        folder = str(_large_folder(Path(place)))
        with server(folder, "--device", options.device, "--dtype", dtype, "--rows", str(many)) as (port, _):
            fields: dict[str, object] = {
                "max_tokens": tokens,
                "stream": True,
                "top_k": 50,
                "stream_options": {"include_usage": True},
            }
            requests = [
                (request_bytes({"prompt": f"w{number:05d} w00001 w00002", "seed": number, **fields}), None)
                for number in range(many)
            ]
            rows = []
            for connections in 2 ** np.arange(
                many.bit_length() + 1
            ):  # kernels are compiled for each number of rows
                load(port, requests, min(many, int(connections)), 1)
            for connections in (1, many):
                began = time.perf_counter()
                tally = load(port, requests, connections, options.seconds)
                seconds = time.perf_counter() - began
                rows.append(
                    {
                        "load": f"{connections} at once",
                        "tokens/s": f"{tally.tokens / seconds:,.0f}",
                        "first token p50 ms": f"{tally.quantile(0.5, 'first'):.0f}",
                        "p95 ms": f"{tally.quantile(0.95, 'first'):.0f}",
                        "answered": f"{tally.answered}",
                        "wrong": f"{tally.wrong}",
                    }
                )
    show(f"Transformer, 124 M parameters, {tokens} tokens", rows)


def llama(options: argparse.Namespace) -> None:
    """A Transformer of Llama's design behind this server and behind llama.cpp's."""
    if options.llama_server is None:
        raise SystemExit("--llama-server is missing: the path of llama.cpp's program of that name")
    prompts = [f"{number}. {PROMPTS[number % 8]}" for number in range(16)]
    with tempfile.TemporaryDirectory() as place:
        rows = beside_llama(options.llama_server, Path(place), prompts, options.connections or 16, options.seconds)
    show("Transformer, 64 tokens, the most likely", rows)


def leave(options: argparse.Namespace) -> None:
    """Clients that go away in the middle of a stream: how long until no text is being written for them."""
    count = options.count or 500
    with tempfile.TemporaryDirectory() as place, server(str(_transformer_folder(Path(place)))) as (port, _):
        request = request_bytes({"prompt": "The", "max_tokens": 4000, "stream": True})

        async def go(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await (reader.readuntil(b"data:") if number % 3 else asyncio.sleep(0.05))
            writer.close()

        async def every() -> None:
            for first in range(0, count, 25):
                await asyncio.gather(
                    *(go(first + i) for i in range(min(25, count - first))), return_exceptions=True
                )

        asyncio.run(every())
        gone = time.perf_counter()
        while _writing(port):
            time.sleep(0.02)
        took = time.perf_counter() - gone
    show("clients that go away", [{"clients": f"{count}", "all places free after s": f"{took:.2f}"}])
    assert took < 1


def _writing(port: int) -> float:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as response:
        lines = response.read().decode().splitlines()
    busy = [line for line in lines if line.startswith(("chainrule_writing{", "chainrule_waiting{"))]
    return sum(float(line.split()[1]) for line in busy)


def terminate(options: argparse.Namespace) -> None:
    """SIGTERM while streams are open: each ends with its end or with an error."""
    count, ended, failed, cut = options.count or 100, 0, 0, 0
    with tempfile.TemporaryDirectory() as place:
        folder = str(_ngram_folder(Path(place)))
        request = request_bytes({"prompt": "The", "max_tokens": 4000, "stream": True})
        for _ in range(count):
            with server(folder) as (port, process):

                async def streams(port: int = port, process: object = process) -> list[bytes]:
                    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
                    for _, writer in opened:
                        writer.write(request)
                    await asyncio.sleep(0.02)
                    process.terminate()  # type: ignore[attr-defined]
                    bodies = await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
                    for _, writer in opened:
                        writer.close()
                    return [body if isinstance(body, bytes) else b"" for body in bodies]

                for body in asyncio.run(streams()):
                    if b"[DONE]" in body:
                        ended += 1
                    elif b'"error"' in body:
                        failed += 1
                    else:
                        cut += 1
                process.wait(40)
    show("SIGTERM", [{"times": f"{count}", "ended": f"{ended}", "with an error": f"{failed}", "cut off": f"{cut}"}])
    assert cut == 0


WHAT: dict[str, Callable[[argparse.Namespace], None]] = {
    "ngram": ngram,
    "soak": soak,
    "transformer": transformer,
    "large": large,
    "llama": llama,
    "leave": leave,
    "terminate": terminate,
}
