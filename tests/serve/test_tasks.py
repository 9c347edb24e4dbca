"""Encoder-decoders, taggers and masked models behind the server; and a folder that is replaced while it serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import numpy as np
import openai
import pytest
from tests.serve.serving import Running, ask, run_async, running

import chainrule as cr
from chainrule.decode.suggest import next_tokens
from chainrule.folder import MANIFEST
from chainrule.ngram.sampling import sampler
from chainrule.serve.batching.scheduler import Scheduler
from chainrule.serve.models import Models, Served


@pytest.fixture(scope="module")
def models(task_folders: dict[str, Path]) -> dict[str, Path]:
    return task_folders


@pytest.fixture(scope="module")
def server(models: dict[str, Path]) -> Iterator[Running]:
    with running([*models.values()]) as found:
        yield found


@pytest.fixture(scope="module")
def language_server(folders: dict[str, Path]) -> Iterator[Running]:
    with running([*folders.values()]) as found:
        yield found


def test_translations_are_those_of_the_library(server: Running, models: dict[str, Path]) -> None:
    texts = ["a b", "c a b", ""]
    found = ask(server, "/v1/translate", model="translator", text=texts, beams=3, alignments=True).json()
    assert [one["text"] for one in found["data"]] == cr.translate(cr.load(models["translator"]), texts, beams=3)
    weights = found["data"][0]["alignment"]["weights"]
    assert all(sum(row) == pytest.approx(1, abs=0.01) for row in weights)
    assert all(weight == round(weight, 4) for row in weights for weight in row)


def test_tags_are_those_of_the_library(server: Running, models: dict[str, Path]) -> None:
    found = ask(server, "/v1/tag", model="tagger", text="the dog sat").json()
    (expected,) = cr.tag(cr.load(models["tagger"]), ["the dog sat"])
    assert [(one["word"], one["tag"]) for one in found["data"][0]["words"]] == [
        *zip(expected.words, expected.tags, strict=True)
    ]


def test_labels_are_those_of_the_library(server: Running, models: dict[str, Path]) -> None:
    texts = ["the cat", "die Katze da"]
    found = ask(server, "/v1/classify", model="classifier", text=texts).json()
    expected = cr.classify(cr.load(models["classifier"]), texts)
    assert [one["label"] for one in found["data"]] == [one.label for one in expected] == ["en", "de"]
    assert found["labels"] == ["de", "en"] and sum(found["data"][0]["probabilities"].values()) == pytest.approx(1)
    response = ask(server, "/v1/classify", model="classifier", text=["a", " "])
    assert response.status_code == 400 and "a text is empty" in response.json()["error"]["message"]
    response = ask(server, "/v1/classify", model="tagger", text="a")
    assert response.status_code == 400 and "/v1/tag is for it" in response.json()["error"]["message"]


def test_gaps_are_filled_as_by_the_library(server: Running, models: dict[str, Path]) -> None:
    found = ask(server, "/v1/fill", model="filler", text="the [MASK] sat", top=3).json()
    expected = cr.fill(cr.load(models["filler"]), "the [MASK] sat", 3)
    assert [one["text"] for one in found["gaps"][0]] == [one.text for one in expected.gaps[0]]
    assert [one["text"] for one in found["texts"]] == [one.text for one in expected.texts]


@pytest.mark.parametrize("name", ["ngram", "words", "lstm", "transformer"])
def test_suggestions_are_those_of_the_library(
    name: str, folders: dict[str, Path], language_server: Running
) -> None:
    lm = cr.load(folders[name])
    for text, k in (("the c", 3), ("the cat sat on the ", 5), ("", 20), ("a cat\nthe do", 1)):
        found = ask(language_server, "/v1/suggest", model=name, text=text, k=k).json()["data"]
        expected = cr.suggest(lm, text, k)
        assert [(one["word"], one["completion"]) for one in found] == [(o.word, o.completion) for o in expected]
        assert [one["probability"] for one in found] == pytest.approx([o.probability for o in expected], rel=1e-4)


def test_the_next_tokens_are_those_of_the_library(folders: dict[str, Path], language_server: Running) -> None:
    lm = cr.load(folders["lstm"])
    for text in ("the c", ""):
        found = ask(language_server, "/v1/next", model="lstm", prompt=text, top=4).json()["tokens"]
        expected = next_tokens(lm, text, 4, heal=False)
        assert [one["id"] for one in found] == [one.id for one in expected]
        assert [one["p"] for one in found] == pytest.approx([one.probability for one in expected], rel=1e-4)


def test_suggestions_have_bounds(language_server: Running, server: Running) -> None:
    for wrong in ({"k": 0}, {"k": 21}, {"text": "x" * 4001}):
        assert ask(language_server, "/v1/suggest", model="ngram", **wrong).status_code == 400
    response = ask(server, "/v1/suggest", model="tagger", text="the")
    assert response.status_code == 400 and "/v1/tag" in response.json()["error"]["message"]


def test_a_masked_model_embeds_texts(server: Running, models: dict[str, Path]) -> None:
    texts = ["the cat", "the cat", "a mat", "", "the cat sat on the mat\n" * 30]
    found = ask(server, "/v1/embeddings", model="filler", input=texts).json()
    vectors = np.asarray([one["embedding"] for one in found["data"]])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-4)
    np.testing.assert_allclose(vectors[0], vectors[1], atol=1e-6)
    assert np.abs(vectors[0] - vectors[2]).max() > 1e-3
    model = cr.load(models["filler"])
    ids = model.tokenizer.encode("the cat").tolist()
    features_TD = cr.to_numpy(model.features(np.asarray([[*ids, model.tokenizer.eos]])))[0][: len(ids)]
    mean_D = features_TD.mean(axis=0)
    np.testing.assert_allclose(vectors[0], mean_D / np.linalg.norm(mean_D), atol=1e-4)


def test_vectors_and_probabilities_that_are_no_numbers_are_an_error(
    models: dict[str, Path], folders: dict[str, Path], tmp_path: Path
) -> None:
    for folder in (models["filler"], folders["lstm"]):
        broken: Any = cr.load(folder)
        for weights in broken.network.parameters():
            weights.data[:] = float("nan")
        broken.save(tmp_path / folder.name)
    asked = [("filler", "embeddings", {"input": "the"}), ("lstm", "embeddings", {"input": "the"})]
    asked += [("lstm", "next", {"prompt": "the"}), ("lstm", "beam", {"prompt": "the"})]
    with running([tmp_path / "filler", tmp_path / "lstm"]) as server:
        for model, route, body in asked:
            found = httpx2.post(f"{server.address}/v1/{route}", json={"model": model, **body}, timeout=60)
            assert found.status_code == 400 and "gives NaN" in found.json()["error"]["message"]


def test_a_text_with_too_many_gaps_is_refused(server: Running) -> None:
    response = ask(server, "/v1/fill", model="filler", text="[MASK] " * 33)
    assert response.status_code == 400 and "gaps" in response.json()["error"]["message"]


def test_a_model_asked_for_what_it_does_not_do_says_what_it_does(server: Running) -> None:
    for path, body, hint in (
        ("/v1/completions", {"model": "tagger", "prompt": "x"}, "/v1/tag is for it"),
        ("/v1/completions", {"model": "filler", "prompt": "x"}, "/v1/fill is for it"),
        ("/v1/translate", {"model": "filler", "text": "x"}, "/v1/fill is for it"),
        ("/v1/tag", {"model": "translator", "text": "x"}, "/v1/translate is for it"),
        ("/v1/fill", {"model": "tagger", "text": "[MASK]"}, "/v1/tag is for it"),
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


def test_a_damaged_folder_is_reported_and_the_old_model_stays(tmp_path: Path) -> None:
    cr.train("ngram", ["old old old"] * 3, order=2, tokenizer="word").save(tmp_path / "model")
    with running([tmp_path / "model"], "--reload") as server:
        assert server.process.stdout is not None

        def text() -> str:
            asked = {"prompt": "", "max_tokens": 1, "temperature": 0}
            return str(ask(server, "/v1/completions", **asked).json()["choices"][0]["text"])

        manifest = tmp_path / "model" / MANIFEST
        whole = manifest.read_text()
        manifest.write_text(whole[: len(whole) // 2])
        said = server.process.stdout.readline()
        assert "model was replaced and cannot be loaded; the old model stays" in said
        assert text() == "old"


def test_writing_is_compiled_when_a_model_is_loaded(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not while a client waits: that takes half a minute, in which the streams of other models stand still."""
    said: list[str] = []
    monkeypatch.setattr(sampler, "is_compiled", lambda kernel: False)
    monkeypatch.setattr(sampler, "announce", said.append)
    models = Models({"ngram": folders["ngram"]})
    models.load()
    assert len(said) == 1 and "compiling" in said[0]


def test_no_exception_ends_the_watching(
    folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    models = Models({"ngram": folders["ngram"]})
    models.load()
    (old,), tries = models.all(), []

    def loaded(name: str) -> Served:
        tries.append(name)
        if len(tries) < 4:
            raise RuntimeError("no memory")
        return replace(old, created=old.created + 1, version=(1,), scheduler=Scheduler(old.model))

    monkeypatch.setattr(models, "_loaded", loaded)
    monkeypatch.setattr("chainrule.serve.models._version", lambda folder: (1,))

    async def watch() -> None:
        models.start()
        watching = asyncio.create_task(models.watch(0.01))
        async with asyncio.timeout(20):
            while models.all()[0] is old:
                await asyncio.sleep(0.01)
        watching.cancel()
        models.close()

    run_async(watch())
    assert len(tries) == 4
    assert [record.message for record in caplog.records] == [
        "ngram was replaced and cannot be loaded; the old model stays: no memory"  # said once
    ]
