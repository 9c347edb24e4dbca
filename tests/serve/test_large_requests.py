"""Large requests hold up nobody else, are answered in full, and are refused if the answer would be too long."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks.serve.largest import (
    MOST_AFTER_LEAVING,
    ON_THE_LOOP,
    after_leaving,
    beside,
    large_server,
    largest_requests,
)
from benchmarks.serve.load import server as started
from tests.serve.serving import Running, ask, run_async

import chainrule as cr
from chainrule.serve import run
from chainrule.serve.api import pieces, tasks
from chainrule.serve.batching.requests import PAUSE
from chainrule.serve.batching.scheduler import Scheduler
from chainrule.serve.models import Models

LETTERS = "".join(random.Random(0).choices("abcdefghij", k=900_000))
WORDS = "the cat sat on the mat and the dog saw the cat "


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"prompt": LETTERS}),
        ("/v1/score", {"text": WORDS * 600, "top": 20}),
        ("/v1/completions", {"prompt": WORDS * 600, "echo": True, "logprobs": 20, "max_tokens": 1}),
    ],
)
def test_a_stream_goes_on_beside_a_large_request(path: str, body: Any, folders: dict[str, Path]) -> None:
    """The control does the same work on its event loop, where the stream has to wait for it."""
    both = [str(folders["ngram"]), str(folders["lstm"])]
    with started(*both) as (port, _):
        found = run_async(beside(port, "lstm", path, path, {"model": "ngram", **body}))
    with started(*both, program=("-c", ON_THE_LOOP)) as (port, _):
        control = run_async(beside(port, "lstm", path, path, {"model": "ngram", **body}))
    assert found.status == control.status == 200
    assert found.megabytes == pytest.approx(control.megabytes, rel=1e-3)
    assert control.gap > 0.5
    assert found.gap < 0.5 or found.gap < control.gap / 5  # a machine that does much else is slow


def test_long_answers_are_those_of_the_library(server: Running, models: dict[str, cr.LanguageModel]) -> None:
    text = WORDS * 400
    tokenizer = models["ngram"].tokenizer
    found = ask(server, "/tokenize", model="ngram", prompt=text)
    ids = tokenizer.encode(text).tolist()
    assert found.json()["tokens"] == ids and int(found.headers["content-length"]) == len(found.content)
    assert found.json()["token_strs"] == [tokenizer.token(token) for token in ids]
    assert [text[a:b] for a, b in found.json()["spans"]] == [tokenizer.decode([token]) for token in ids]
    assert ask(server, "/detokenize", model="ngram", tokens=ids).json()["content"] == text
    for name in ("ngram", "lstm", "transformer", "mixture"):
        scored = ask(server, "/v1/score", model=name, text=text).json()["tokens"]
        expected = cr.score(models[name], text).log_probs.tolist()
        assert len(scored) > 4096  # read in parts
        assert [one["log_prob"] for one in scored] == pytest.approx(expected, abs=1e-4)


def test_a_long_echo_has_every_token_once(server: Running, models: dict[str, cr.LanguageModel]) -> None:
    text = WORDS * 60
    asked = {"model": "ngram", "prompt": text, "echo": True, "logprobs": 3, "max_tokens": 2, "n": 2, "seed": 1}
    whole = ask(server, "/v1/completions", **asked).json()["choices"]
    lines = ask(server, "/v1/completions", **asked, stream=True).text.split("\n")
    chunks = [json.loads(line[6:])["choices"][0] for line in lines if line.startswith("data: {")]
    for choice in whole:
        own = [chunk for chunk in chunks if chunk["index"] == choice["index"]]
        assert "".join(chunk["text"] for chunk in own) == choice["text"]
        for field in ("tokens", "token_logprobs", "text_offset"):
            assert [one for chunk in own for one in chunk["logprobs"][field]] == choice["logprobs"][field]
        assert "".join(choice["logprobs"]["tokens"]) == choice["text"]


def test_answers_that_would_be_too_long_are_refused(server: Running) -> None:
    for path, body in (
        ("/v1/score", {"text": WORDS * 4000, "top": 20}),
        ("/v1/completions", {"prompt": WORDS * 4000, "echo": True, "logprobs": 20, "max_tokens": 0}),
        ("/v1/completions", {"prompt": "the", "n": 8, "logprobs": 20, "max_tokens": 4096}),
    ):
        response = ask(server, path, model="ngram", **body)
        assert response.status_code == 400
        assert "too many for one answer" in response.json()["error"]["message"]
    many = ask(server, "/detokenize", model="ngram", tokens=["a"] * 200_000)
    assert many.status_code == 400 and many.json()["error"]["param"] == "tokens.0"


def test_json_in_parts_is_the_same_json() -> None:
    value = {
        "numbers": [*range(5000)],
        "nested": [[[index / 7, None, True] for index in range(300)] for _ in range(30)],
        "objects": [{"text": 'é\n"' * 20, "top": [{"id": one} for one in range(20)]} for _ in range(900)],
        "empty": [[], {}, ""],
        "pairs": [(1, 2)] * 4000,
        "long": "x" * 100_000,
    }
    assert not pieces.is_small(value)
    parts = run_async(pieces.long_json(value))
    assert b"".join(parts).decode() == pieces.compact_json(value)
    assert len(parts) > 3


def test_work_in_pieces_stops_when_it_is_given_up() -> None:
    taken: list[str] = []

    def work() -> Iterator[None]:
        while True:
            taken.append(threading.current_thread().name)
            yield

    async def give_up() -> int:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(pieces.in_pieces(pieces.SMALL + 1, work()), 0.1)
        await asyncio.sleep(0.1)  # a turn that has begun ends
        return len(taken)

    count = run_async(give_up())
    assert count == len(taken) and all(name.startswith("chainrule-pieces") for name in taken)


def test_short_work_does_not_wait_for_long_work(models: dict[str, cr.LanguageModel]) -> None:
    scheduler, ended = Scheduler(models["ngram"]), []

    async def one(size: int) -> None:
        def run(items: list[int]) -> Iterator[Any]:
            for _ in range(items[0]):
                yield PAUSE
            yield items[0]

        assert await scheduler.bulk(size, [size], run) == [size]
        ended.append(size)

    async def both() -> None:
        long, short = asyncio.ensure_future(one(50)), asyncio.ensure_future(one(3))
        await asyncio.sleep(0)
        scheduler.start()
        await asyncio.gather(long, short)
        scheduler.close()

    run_async(both())
    assert ended == [3, 50]


def test_texts_of_a_task_are_read_in_groups() -> None:
    texts = ["a" * 4000] * 3 + ["b"] * 40 + ["c" * 50_000]
    groups = [*tasks._groups(texts)]
    assert [text for group in groups for text in group] == texts
    assert all(len(group) <= 32 and (len(group) == 1 or sum(map(len, group)) <= 10_000) for group in groups)
    assert len(groups) == 4 and not [*tasks._groups([])]


def test_a_large_request_can_be_given_up_by_itself(models: dict[str, cr.LanguageModel]) -> None:
    """Short texts of several clients are done together; a client that goes does not leave its own to others."""
    scheduler, read = Scheduler(models["ngram"]), []
    begun, left = threading.Event(), threading.Event()

    def run(items: list[str]) -> Iterator[Any]:
        for item in items:
            begun.set()
            assert left.wait(60)
            read.append(item)
            yield item
            yield PAUSE

    async def leave(large: list[str]) -> None:
        gone, other = (
            asyncio.ensure_future(scheduler.bulk(tasks._key(texts, "tag", "unicode"), texts, run))
            for texts in (large, ["short"])
        )
        await asyncio.sleep(0)  # both wait before the thread begins
        scheduler.start()
        while not begun.is_set():
            await asyncio.sleep(0.01)
        gone.cancel()
        await asyncio.sleep(0)
        left.set()
        assert await other == ["short"]
        scheduler.close()

    assert tasks._key(["a"] * 31, "tag") == tasks._key(["b"], "tag") != tasks._key(["b"], "classify")
    run_async(leave(["long"] * 32))
    assert read == ["long", "short"]


@pytest.mark.slow
def test_little_is_done_for_a_client_that_has_gone() -> None:
    with large_server() as (port, process):
        for name, path, body in largest_requests():
            assert after_leaving(port, process, path, body, wait=0.5) < MOST_AFTER_LEAVING, name


def test_the_collector_of_garbage_passes_over_what_was_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """It stops all threads while it looks through what libraries and models hold."""
    frozen: list[int] = []

    def note(self: run._Server, sockets: list[socket.socket]) -> None:
        frozen.append(gc.get_freeze_count())
        sockets[0].close()

    monkeypatch.setattr(run._Server, "run", note)
    try:
        run.serve(Models({"m": Path("m")}), port=0)
    finally:
        gc.unfreeze()
    assert frozen[0] > 10_000
