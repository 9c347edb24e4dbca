"""Encoder-decoders, taggers and masked models behind the server; and a folder that is replaced while it serves."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest
from tests.serve.serving import Running, running

import chainrule as cr


@pytest.fixture(scope="module")
def models(task_folders: dict[str, Path]) -> dict[str, Path]:
    return task_folders


@pytest.fixture(scope="module")
def server(models: dict[str, Path]) -> Iterator[Running]:
    with running([*models.values()]) as found:
        yield found


def ask(server: Running, path: str, **body: object) -> httpx2.Response:
    return httpx2.post(f"{server.address}{path}", json=body, timeout=60)


def test_translations_are_those_of_the_library(server: Running, models: dict[str, Path]) -> None:
    texts = ["a b", "c a b", ""]
    found = ask(server, "/v1/translate", model="translator", text=texts, beams=3, alignments=True).json()
    assert [one["text"] for one in found["data"]] == cr.translate(cr.load(models["translator"]), texts, beams=3)
    weights = found["data"][0]["alignment"]["weights"]
    assert all(sum(row) == pytest.approx(1, abs=0.01) for row in weights)


def test_tags_are_those_of_the_library(server: Running, models: dict[str, Path]) -> None:
    found = ask(server, "/v1/tag", model="tagger", text="the dog sat").json()
    (expected,) = cr.tag(cr.load(models["tagger"]), ["the dog sat"])
    assert [(one["word"], one["tag"]) for one in found["data"][0]["words"]] == [
        *zip(expected.words, expected.tags, strict=True)
    ]


def test_gaps_are_filled_as_by_the_library(server: Running, models: dict[str, Path]) -> None:
    found = ask(server, "/v1/fill", model="filler", text="the [MASK] sat", top=3).json()
    expected = cr.fill(cr.load(models["filler"]), "the [MASK] sat", 3)
    assert [one["text"] for one in found["gaps"][0]] == [one.text for one in expected.gaps[0]]
    assert [one["text"] for one in found["texts"]] == [one.text for one in expected.texts]


def test_a_model_asked_for_what_it_does_not_do_says_what_it_does(server: Running) -> None:
    for path, body, hint in (
        ("/v1/completions", {"model": "tagger", "prompt": "x"}, "tag"),
        ("/v1/completions", {"model": "filler", "prompt": "x"}, "fill"),
        ("/v1/translate", {"model": "filler", "text": "x"}, "fill"),
        ("/v1/tag", {"model": "translator", "text": "x"}, "translate"),
        ("/v1/fill", {"model": "tagger", "text": "[MASK]"}, "tag"),
        ("/v1/fill", {"model": "filler", "text": "no gap"}, "MASK"),
    ):
        response = ask(server, path, **body)
        assert response.status_code == 400, response.text
        assert hint in response.json()["error"]["message"]


def test_a_folder_that_is_replaced_is_taken_up(tmp_path: Path) -> None:
    cr.train("ngram", ["old old old"] * 3, order=2, tokenizer="word").save(tmp_path / "model")
    with (
        running([tmp_path / "model"], "--reload") as server,
        openai.OpenAI(base_url=f"{server.address}/v1", api_key="x", max_retries=0) as client,
    ):

        def text() -> str:
            return client.completions.create(model="model", prompt="", max_tokens=1, temperature=0).choices[0].text

        assert text() == "old"
        cr.train("ngram", ["new new new"] * 3, order=2, tokenizer="word").save(tmp_path / "model", overwrite=True)
        until = time.monotonic() + 15
        while text() != "new":
            assert time.monotonic() < until
            time.sleep(0.1)
