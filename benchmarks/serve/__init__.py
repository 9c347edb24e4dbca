"""The server under load, on loopback: throughput, latency, memory, and its behaviour when clients or it stop.

    python -m benchmarks serve ngram          a 5-gram model, 64 connections, 16 tokens each
    python -m benchmarks serve soak           200 connections for minutes: nothing lost or mixed up, memory steady
    python -m benchmarks serve transformer    a Transformer: one request against sixteen at once
    python -m benchmarks serve large          a Transformer of 124 M parameters, 64 streams at once (--device cuda)
    python -m benchmarks serve llama          beside llama.cpp's server, with the same weights (--llama-server PATH)
    python -m benchmarks serve leave          clients that disconnect: what the server still does for them
    python -m benchmarks serve terminate      SIGTERM while streams are open
    python -m benchmarks serve largest        the largest requests beside a stream: its worst gap, and a control

Models are trained on the built-in corpus, small and quickly: their quality does not matter here.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import chainrule as cr
from benchmarks.harness import new_parser, show_named
from benchmarks.serve.largest import (
    CONTROLS,
    LONGEST_GAP,
    MOST_AFTER_LEAVING,
    ON_THE_LOOP,
    after_leaving,
    large_server,
    largest_requests,
    measure,
)
from benchmarks.serve.llama import compare as compare_with_llama
from benchmarks.serve.load import (
    Request,
    Tally,
    active_texts,
    complete,
    load,
    load_one_then_many,
    request_bytes,
    resident,
    server,
)
from chainrule.inference.neural_model import NeuralModel
from chainrule.networks.transformer.config import TransformerConfig
from chainrule.networks.transformer.decoder import Transformer
from chainrule.tokens.words.tokenizer import WordTokenizer

PROMPTS = ["The", "A list of", "If the", "In this case", "The function", "When it is", "Use", "Objects have"]
LEAVE_AFTER = (0.3, 1.0)
_LEFT = tuple(f"left after {wait} s" for wait in LEAVE_AFTER)


def main(arguments: list[str]) -> None:
    """Run the loads that the arguments name."""
    parser = new_parser("serve", __doc__)
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


# -- models -----------------------------------------------------------------------------------------------


def train_ngram() -> cr.LanguageModel:
    """Train a 5-gram model."""
    return cr.train("ngram", cr.Corpus.open("builtin:python"), order=5, tokenizer="bpe")


def train_transformer() -> cr.LanguageModel:
    """Train a Transformer of 10 million parameters for one step."""
    sizes: dict[str, Any] = {"width": 320, "layers": 6, "steps": 1, "window": 256}
    return cr.train("transformer", cr.Corpus.open("builtin:python"), tokenizer="bpe", context="stream", **sizes)


def large_transformer() -> cr.LanguageModel:
    """Return a Transformer of GPT-2's smallest size with random weights."""
    config = TransformerConfig("gpt2", layers=12, width=768, heads=12, window=1024)
    tokenizer = WordTokenizer([f"w{number:05d}".encode() for number in range(50_254)])
    network = Transformer(config, tokenizer.vocab_size, tokenizer.bos)
    return NeuralModel(network, tokenizer, "stream", kind="transformer", settings=config)


@contextmanager
def served(lm: cr.LanguageModel, *arguments: str) -> Iterator[tuple[int, subprocess.Popen[str]]]:
    """Serve a model from a temporary folder; yield the port and the process of the server."""
    with tempfile.TemporaryDirectory() as place:
        lm.save(Path(place, "model"))
        with server(str(Path(place, "model")), *arguments) as running:
            yield running


# -- loads ------------------------------------------------------------------------------------------------


def _requests(port: int, count: int = 64, **fields: object) -> list[Request]:
    """Return requests for different texts, each with the text that the server gives when it is idle."""
    found = []
    for number in range(count):
        body = {"prompt": f"{number}. {PROMPTS[number % 8]}", "max_tokens": 16, "seed": number, **fields}
        text = complete(port, {**body, "stream": False})
        expected = json.dumps({"text": text}, ensure_ascii=False, separators=(",", ":"))[1:-1].encode()
        found.append((request_bytes(body), None if fields.get("stream") else expected))
    return found


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
    """Measure completions of 16 tokens by a 5-gram model."""
    connections = options.connections or 64
    with served(train_ngram()) as (port, _):
        requests = _requests(port)
        load(port, requests, connections, 2)
        tally = load(port, requests, connections, options.seconds)
        one = load(port, requests, 1, options.seconds / 2)
    rows = [_row(f"{connections} connections", tally, options.seconds), _row("one", one, options.seconds / 2)]
    show_named("5-gram, 16 tokens", rows)


def soak(options: argparse.Namespace) -> None:
    """Load the server for minutes, and check that no answer is lost or wrong and that memory stays the same."""
    connections = options.connections or 200
    with served(train_ngram()) as (port, process):
        requests = _requests(port)
        load(port, requests, connections, 10)
        before = resident(process)
        tally = load(port, requests, connections, options.seconds)
        after = resident(process)
    row = _row(f"{connections} connections, {options.seconds:.0f} s", tally, options.seconds)
    row |= {"MB before": f"{before:.0f}", "after": f"{after:.0f}", "growth": f"{after / before - 1:+.1%}"}
    show_named("soak", [row])
    assert tally.sent == tally.answered + tally.refused and not tally.wrong


def transformer(options: argparse.Namespace) -> None:
    """Measure streams of 64 tokens by a Transformer: one alone, and sixteen at once."""
    many = options.connections or 16
    with served(train_transformer()) as (port, _):
        requests = _requests(port, 16, max_tokens=64, stream=True, stream_options={"include_usage": True})
        load(port, requests, many, 2)
        show_named("Transformer, 64 tokens", load_one_then_many(port, requests, many, options.seconds))


def large(options: argparse.Namespace) -> None:
    """Measure streams of a large Transformer: the tokens of all streams together."""
    many, tokens = options.connections or 64, options.tokens
    dtype = "bfloat16" if options.device.startswith("cuda") else "float32"
    how = {"max_tokens": tokens, "stream": True, "top_k": 50, "stream_options": {"include_usage": True}}
    requests: list[Request] = [
        (request_bytes({"prompt": f"w{number:05d} w00001 w00002", "seed": number, **how}), None)
        for number in range(many)
    ]
    arguments = "--device", options.device, "--dtype", dtype, "--rows", str(many)
    with served(large_transformer(), *arguments) as (port, _):
        for power in range(many.bit_length() + 1):  # kernels are compiled for each number of rows
            load(port, requests, min(many, 2**power), 1)
        rows = load_one_then_many(port, requests, many, options.seconds)
    show_named(f"Transformer, 124 M parameters, {tokens} tokens", rows)


def llama(options: argparse.Namespace) -> None:
    """Measure a Transformer of Llama's design behind this server and behind llama.cpp's."""
    if options.llama_server is None:
        raise SystemExit("--llama-server is missing: the path of llama.cpp's program of that name")
    prompts = [f"{number}. {PROMPTS[number % 8]}" for number in range(16)]
    many = options.connections or 16
    with tempfile.TemporaryDirectory() as place:
        rows = compare_with_llama(options.llama_server, Path(place), prompts, many, options.seconds)
    show_named("Transformer, 64 tokens, greedy", rows)


# -- clients and servers that stop ------------------------------------------------------------------------


def leave(options: argparse.Namespace) -> None:
    """Disconnect clients in the middle of a stream, and time how long the server goes on for them."""
    count = options.count or 500
    with served(train_transformer()) as (port, _):
        request = request_bytes({"prompt": "The", "max_tokens": 4000, "stream": True})

        async def go(number: int) -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(request)
            await (reader.readuntil(b"data:") if number % 3 else asyncio.sleep(0.05))
            writer.close()

        async def every() -> None:
            for first in range(0, count, 25):
                some = range(first, min(first + 25, count))
                await asyncio.gather(*(go(number) for number in some), return_exceptions=True)

        asyncio.run(every())
        gone = time.perf_counter()
        while active_texts(port):
            time.sleep(0.02)
        took = time.perf_counter() - gone
    show_named("clients that disconnect", [{"clients": f"{count}", "all places free after s": f"{took:.2f}"}])
    rows, worst = [], 0.0
    with large_server() as (port, process):
        for name, path, body in largest_requests():
            left = [after_leaving(port, process, path, body, wait) for wait in LEAVE_AFTER]
            rows.append({"request": name} | dict(zip(_LEFT, (f"{one:.2f}" for one in left), strict=True)))
            worst = max(worst, *left)
    show_named("seconds of CPU for a client that has gone", rows)
    assert took < 1 and worst < MOST_AFTER_LEAVING


def terminate(options: argparse.Namespace) -> None:
    """Send SIGTERM while streams are open: each must end completely or with an error."""
    count, ended, failed, cut = options.count or 100, 0, 0, 0
    with tempfile.TemporaryDirectory() as place:
        train_ngram().save(Path(place, "ngram"))
        for _ in range(count):
            with server(str(Path(place, "ngram"))) as (port, process):
                for body in asyncio.run(_streams_until_sigterm(port, process)):
                    ended += b"[DONE]" in body
                    failed += b"[DONE]" not in body and b'"error"' in body
                    cut += b"[DONE]" not in body and b'"error"' not in body
                process.wait(40)
    row = {"times": f"{count}", "ended": f"{ended}", "with an error": f"{failed}", "cut off": f"{cut}"}
    show_named("SIGTERM", [row])
    assert cut == 0


async def _streams_until_sigterm(port: int, process: subprocess.Popen[str]) -> list[bytes]:
    """Open eight streams, stop the server, and return the bodies of the streams."""
    opened = [await asyncio.open_connection("127.0.0.1", port) for _ in range(8)]
    for _, writer in opened:
        writer.write(request_bytes({"prompt": "The", "max_tokens": 4000, "stream": True}))
    await asyncio.sleep(0.02)
    process.terminate()
    bodies = await asyncio.gather(*(reader.read() for reader, _ in opened), return_exceptions=True)
    for _, writer in opened:
        writer.close()
    return [body if isinstance(body, bytes) else b"" for body in bodies]


def largest(options: argparse.Namespace) -> None:
    """Send the largest request that each route takes beside a stream, and some of them to a server that waits."""
    requests = largest_requests()
    with large_server() as (port, _):
        found = measure(port, "lstm", requests)
    with large_server(program=("-c", ON_THE_LOOP)) as (port, _):
        control = measure(port, "lstm", [one for one in requests if one[0] in CONTROLS])
    show_named("the largest requests beside a stream", [one.row() for one in found])
    show_named("control: all work on the event loop", [one.row() for one in control])
    assert not any(one.status == 0 or one.status >= 500 for one in found[1:])
    assert max(one.gap for one in found) < LONGEST_GAP < min(one.gap for one in control[1:])


WHAT: dict[str, Callable[[argparse.Namespace], None]] = {
    run.__name__: run for run in (ngram, soak, transformer, large, llama, leave, terminate, largest)
}
