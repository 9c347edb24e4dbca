"""Tokens, scores, trees and tasks: the answers agree with the library."""

from __future__ import annotations

import math
from pathlib import Path

import httpx2
import numpy as np
import pytest
from tests.serve.serving import Running, answer

import chainrule as cr
from chainrule.decode.beam import beam_search

TEXT = "the cat sat — naïve\n\nquite unknown dogs"


def test_a_text_without_tokens_has_no_bits(server: Running) -> None:
    found = answer(server, "/v1/score", model="words", text="")
    assert found["tokens"] == [] and str(found["bits"]) == "0.0" and found["bits_per_byte"] is None


@pytest.mark.parametrize("name", ["ngram", "words", "lstm", "transformer", "mixture"])
def test_scores_are_those_of_the_library_on_the_bytes_of_the_text(
    name: str, server: Running, models: dict[str, cr.LanguageModel]
) -> None:
    found = answer(server, "/v1/score", model=name, text=TEXT, top=3)
    expected = cr.score(models[name], TEXT)
    assert [token["id"] for token in found["tokens"]] == expected.ids.tolist()
    own = [token["log_prob"] for token in found["tokens"]]
    assert own == pytest.approx(expected.log_probs.tolist(), abs=1e-4)
    plain = answer(server, "/v1/score", model=name, text=TEXT)
    assert [token["log_prob"] for token in plain["tokens"]] == pytest.approx(own, abs=1e-4)
    assert found["bits"] == pytest.approx(-expected.log_probs.sum() / math.log(2), rel=1e-4)
    assert found["bits_per_byte"] == pytest.approx(found["bits"] / len(TEXT.encode()))
    last = 0
    for token in found["tokens"]:
        assert last <= token["start"] <= token["end"] <= len(TEXT.encode())
        last = token["end"]
        if token["rank"] == 0:
            assert token["top"][0]["log_prob"] == pytest.approx(token["log_prob"], abs=1e-5)
    if models[name].tokenizer.lossless:
        assert found["tokens"][0]["start"] == 0 and last == len(TEXT.encode())


def test_tokens_and_back(server: Running, models: dict[str, cr.LanguageModel]) -> None:
    for name in ("ngram", "lstm", "transformer"):
        found = answer(server, "/tokenize", model=name, prompt="the café")
        assert found["tokens"] == models[name].tokenizer.encode("the café").tolist()
        assert found["count"] == len(found["tokens"]) == len(found["spans"])
        assert answer(server, "/detokenize", model=name, tokens=found["tokens"])["prompt"] == "the café"
    info = httpx2.get(f"{server.address}/tokenizer_info", params={"model": "lstm"}).json()
    assert info["vocab_size"] == models["lstm"].tokenizer.vocab_size


def test_a_line_end_has_its_byte_and_alternatives_their_text(
    server: Running, models: dict[str, cr.LanguageModel]
) -> None:
    for text, ends in (("the cat\n", [7, 8]), ("the cat", [7, 7]), ("a\n\n", [2, 3])):
        found = answer(server, "/v1/score", model="lstm", text=text, top=2)["tokens"]
        assert [found[-1]["start"], found[-1]["end"]] == ends
    tokenizer = models["words"].tokenizer
    for token in answer(server, "/v1/score", model="words", text="the cat sat", top=4)["tokens"][1:]:
        for other in token["top"]:
            if tokenizer.special(other["id"]) is None:
                assert other["text"] == f" {other['token']}"


def test_merges_of_bpe_are_replayed(server: Running, models: dict[str, cr.LanguageModel]) -> None:
    text = "the cat — sat\non"
    found = answer(server, "/v1/merges", model="ngram", text=text)
    words = found["words"]
    for step in found["steps"]:
        for number, tokens in step["changed"]:
            words[number] = tokens
    tokenizer = models["ngram"].tokenizer
    names = ["\n" if i == tokenizer.eos else tokenizer.token(int(i)) for i in tokenizer.encode(text)]
    assert [token for word in words for token in word] == names
    for body in ({"model": "words", "text": "x"}, {"model": "ngram", "text": "x" * 201}):
        assert httpx2.post(f"{server.address}/v1/merges", json=body).status_code == 400


@pytest.mark.parametrize("name", ["ngram", "transformer"])
def test_the_next_token_before_and_after_the_cut(name: str, server: Running) -> None:
    found = answer(server, "/v1/next", model=name, prompt="the", top=8, top_k=3, temperature=0.5)
    p = [token["p"] for token in found["tokens"]]
    q = [token["q"] for token in found["tokens"]]
    assert p == sorted(p, reverse=True) and found["kept"] == 3
    assert sum(q) == pytest.approx(1, abs=1e-5) and q[3:] == [0] * 5
    assert q[0] / q[1] == pytest.approx((p[0] / p[1]) ** 2, rel=1e-3)
    penalised = answer(
        server, "/v1/next", model=name, prompt="the the the", presence_penalty=5, frequency_penalty=2
    )
    assert sum(token["q"] for token in penalised["tokens"]) > 0


@pytest.mark.parametrize("name", ["ngram", "transformer"])
def test_the_tree_of_a_beam_search_ends_where_the_search_does(
    name: str, server: Running, models: dict[str, cr.LanguageModel]
) -> None:
    lm, prompt = models[name], "the"
    found = answer(server, "/v1/beam", model=name, prompt=prompt, width=3, max_tokens=6)
    nodes = found["nodes"]
    ids = np.asarray([lm.tokenizer.encode(prompt)], dtype=np.int64)
    end = lm.tokenizer.eos if lm.context == "line" else None
    forbid = () if lm.tokenizer.unk is None else (lm.tokenizer.unk,)
    state = lm.extend(lm.start(1), ids)
    searched = beam_search(lm, state, cr.Beam(3, 1.0, "best"), max_tokens=6, end=end, forbid=forbid)[0][0]
    path, number = [], found["best"][0]
    assert nodes[number]["log_prob"] == pytest.approx(searched.log_prob, abs=1e-4)
    while number is not None:
        path.append(nodes[number]["token"])
        number = nodes[number]["parent"]
    assert tuple(reversed(path)) == searched.ids
    for step in range(max(node["step"] for node in nodes) + 1):
        assert sum(node["kept"] for node in nodes if node["step"] == step) <= 3


def test_models_and_health_and_metrics(server: Running, folders: dict[str, Path]) -> None:
    listed = httpx2.get(f"{server.address}/v1/models").json()["data"]
    assert [model["id"] for model in listed] == [*folders]
    assert httpx2.get(f"{server.address}/v1/models/lstm").json()["kind"] == "lstm"
    assert httpx2.get(f"{server.address}/health").json() == {"status": "ok"}
    answer(server, "/v1/completions", model="ngram", prompt="the", max_tokens=2)
    text = httpx2.get(f"{server.address}/metrics").text
    assert 'chainrule_requests_total{route="/v1/completions",status="200"}' in text
    assert 'chainrule_tokens_total{model="ngram"}' in text
