"""The routes of the server in this process, without a network: each answers as the library does."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import numpy as np
import pytest
from tests.serve.serving import run_async

import chainrule as cr
from chainrule.errors import DecodingError
from chainrule.serve import guard
from chainrule.serve.api import inside
from chainrule.serve.api.completions import _merged
from chainrule.serve.api.pieces import MOST_ENTRIES, check_entries
from chainrule.serve.api.texts import TokenList
from chainrule.serve.app import make_app
from chainrule.serve.models import Models

TEXT = "i love cats\nand dogs"
Ask = Callable[..., httpx2.Response]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lm = cr.train("ngram", ["i love cats", "i love dogs", "cats love dogs"] * 3, order=3, tokenizer="char")
    lm.save(folder := tmp_path_factory.mktemp("routes") / "letters")
    return folder


@pytest.fixture(scope="module")
def lm(folder: Path) -> Any:
    return cr.load(folder)


@pytest.fixture(scope="module")
def ask(folder: Path) -> Iterator[Ask]:
    """Send JSON to a route, or ask for one where there is none."""
    models = Models({"letters": folder})
    models.load()
    app, loop = make_app(models), asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def asked(path: str, headers: dict[str, str], body: dict[str, Any]) -> httpx2.Response:
        transport = httpx2.ASGITransport(app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return await (client.post(path, json=body) if body else client.get(path, headers=headers))

    async def start() -> None:
        models.start()

    asyncio.run_coroutine_threadsafe(start(), loop).result(60)
    yield lambda path, headers={}, **body: asyncio.run_coroutine_threadsafe(
        asked(path, headers, body), loop
    ).result(60)
    models.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


def test_scores_are_in_bits(ask: Ask, lm: Any) -> None:
    found, expected = ask("/v1/score", text=TEXT, top=2).json(), cr.score(lm, TEXT)
    assert [token["id"] for token in found["tokens"]] == expected.ids.tolist()
    bits = -expected.log_probs.sum() / math.log(2)
    assert found["bits"] == pytest.approx(bits) and found["bytes"] == len(TEXT)
    assert found["bits_per_byte"] == pytest.approx(bits / len(TEXT))
    assert found["perplexity"] == pytest.approx(2 ** (bits / len(expected.ids)))
    best = np.sort(lm.next_log_probs(lm.start(1))[0])[::-1][:2]
    assert [one["log_prob"] for one in found["tokens"][0]["top"]] == pytest.approx(best.tolist())


@pytest.mark.parametrize("special", [False, True])
def test_tokens_have_their_places(special: bool, ask: Ask, lm: Any) -> None:
    found, ids = (
        ask("/tokenize", prompt="cats", add_special_tokens=special).json(),
        lm.tokenizer.encode("cats").tolist(),
    )
    assert found["tokens"] == [lm.tokenizer.bos] * special + ids
    assert found["spans"] == [[0, 0]] * special + [[place, place + 1] for place in range(4)]
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])


def test_texts_and_beams_are_those_of_the_library(ask: Ask, lm: Any) -> None:
    found = ask("/v1/completions", prompt="i lo", seed=3, temperature=0.8, max_tokens=6).json()
    expected = cr.generate(lm, "i lo", strategy=cr.Temperature(0.8), seed=3, max_tokens=6)
    assert "i lo" + found["choices"][0]["text"] == expected
    assert found["usage"]["prompt_tokens"] == 4 and found["usage"]["completion_tokens"] > 0
    assert ask("/v1/beam", prompt="i lo", width=2, max_tokens=4).status_code == 200


def test_a_token_of_the_text_is_looked_at_unless_the_next_one_is_asked_for(ask: Ask) -> None:
    found = [ask("/v1/inside", text="i love", **given).json() for given in ({}, {"after": False}, {"after": True})]
    assert found[0] == found[1] != found[2]


def test_a_network_with_many_features_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    block = SimpleNamespace(attended=SimpleNamespace(query_HK=np.zeros((2, 10))), out_D=np.zeros(10))
    said: list[str] = []
    given: list[Any] = [None, SimpleNamespace(blocks=(block,)), SimpleNamespace(note=said.append)]
    monkeypatch.setattr(inside, "MOST_WEIGHTS", 100)
    assert inside._path(*given) is None and "too many features" in said[0]


def test_what_is_not_there_is_named(ask: Ask) -> None:
    for path, param in (("/v1/score", "model"), ("/v1/runs/x", None)):
        refused = ask(path, model="other", text="a") if param else ask(path)
        assert refused.status_code == 404 and refused.json()["error"]["param"] == param
    assert ask("/v1/runs").json() == {"object": "list", "has_folder": False, "data": []}


def test_a_header_may_have_so_many_bytes(ask: Ask) -> None:
    async def seen(scope: Any, receive: Any, send: Any) -> None:
        sizes.append(sum(len(name) + len(value) for name, value in scope["headers"]))

    sizes: list[int] = []
    rest = guard.MOST_HEADER
    for long, status in ((rest, 431), (0, 200)):
        response = ask("/health", {"x-long": "x" * long})
        assert response.status_code == status
    own = sum(len(name) + len(value) for name, value in response.request.headers.raw)
    assert ask("/health", {"x-long": "x" * (rest - own)}).status_code == 200
    assert ask("/health", {"x-long": "x" * (rest - own + 1)}).status_code == 431


def test_an_answer_that_is_too_long_says_how_much_may_be_asked_for() -> None:
    check_entries(MOST_ENTRIES // 6, 5)
    with pytest.raises(DecodingError, match=f"at most {MOST_ENTRIES // 6:,}, or for fewer"):
        check_entries(MOST_ENTRIES // 6 + 1, 5)


def test_alternatives_of_no_text_go_by_their_names(lm: Any) -> None:
    listed = TokenList(lm.tokenizer, has_tops=True)
    a, end = int(lm.tokenizer.encode("a")[0]), lm.tokenizer.eos
    for _ in listed.add([a], [-1.0], [[(a, -1.0), (end, -2.0), (lm.tokenizer.bos, -3.0)]]):
        pass
    (tops,) = listed.take()["top_logprobs"]
    assert tops == {"a": -1.0, "\n": -2.0, lm.tokenizer.token(lm.tokenizer.bos): -3.0}


def test_one_text_that_fails_ends_all() -> None:
    async def goes_on() -> AsyncIterator[int]:
        for number in range(3):
            yield number

    async def fails() -> AsyncIterator[int]:
        yield 7
        raise ValueError("no more")

    async def all_of(*parts: AsyncIterator[int]) -> list[int]:
        async with asyncio.timeout(20):
            return [item async for item in _merged([*parts])]

    assert sorted(run_async(all_of(goes_on(), goes_on()))) == [0, 0, 1, 1, 2, 2]
    with pytest.raises(ValueError, match="no more"):
        run_async(all_of(goes_on(), fails()))
