"""What goes on inside models, and trainings, behind the server: the figures are those of the library."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import httpx2
import numpy as np
import pytest
from tests.report.test_run_report import run_folder
from tests.serve.conftest import LINES, SETTINGS
from tests.serve.serving import Running, answer, run_async, running

import chainrule as cr
from chainrule.contract.lm import LanguageModel
from chainrule.explanation.neighbours import neighbours, table_of
from chainrule.explanation.reading import token_of
from chainrule.mixtures.mixture import Mixture
from chainrule.seq2seq.alignments import align
from chainrule.serve.api import inside
from chainrule.serve.api.inside import LONGEST, InsideRequest, look_at_network
from chainrule.system.disk import holding

TEXT = "the cat saw the dog"
SMALL: dict[str, Any] = {"steps": 6, "batch": 64}


@pytest.fixture(scope="module")
def more(folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of models of every family."""
    place = tmp_path_factory.mktemp("inside")
    (place / "tags.txt").write_text("the/DET cat/NOUN sat/VERB\n" * 4)
    pairs = [("a b c", "c b a"), ("b c a", "a c b")] * 8
    lstm = cr.load(folders["lstm"])
    made = {
        "anygram": cr.train("anygram", LINES, tokenizer="word"),
        "elman": cr.train("elman", LINES, **SETTINGS | SMALL, tokenizer="word"),
        "gru": cr.train("gru", LINES, layers=2, **SETTINGS | SMALL, tokenizer="word"),
        "qrnn": cr.train("qrnn", LINES, layers=2, **SETTINGS | SMALL, tokenizer="word"),
        "translator": cr.train("seq2seq", pairs, cell="gru", width=8, layers=1, **SMALL),
        "tagger": cr.train("tagger", place / "tags.txt", width=8, embedding=8, spelling=8, layers=1, **SMALL),
        "filler": cr.train("masked", LINES, width=16, layers=1, heads=2, window=32, **SMALL),
        "mixed": cr.mix([cr.train("ngram", LINES, order=2, tokenizer=lstm.tokenizer), lstm], LINES[:5]),
    }
    for name, model in made.items():
        model.save(place / name)
    return folders | {name: place / name for name in made}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a training, one that has only begun, a model and its curves, and a comparison with a report."""
    top = tmp_path_factory.mktemp("runs") / "top"
    (top / "nested").mkdir(parents=True)
    run_folder(top / "nested" / "model.run")
    (top / "new.run").mkdir()
    (top / "new.run" / "metrics.jsonl").write_text("")
    cr.train("elman", LINES, **SETTINGS | SMALL, tokenizer="word").save(top / "elman")
    cr.train("ngram", LINES, order=2, tokenizer="word").save(top / "ngram")  # counted: there is no curve
    (top / "ladder").mkdir()
    test = {"tokens": 9, "bytes": 30, "log_prob": -20.0, "seconds": 1.0, "oov": 0, "normalised": True}
    (top / "ladder" / "compare.json").write_text(json.dumps({"format": "something else", "test": test}))
    page = "<!doctype html><title>r</title><script>document.title = 'drawn ' + self.origin</script>"
    (top / "ladder" / "report.html").write_text(page)
    (top.parent / "secret.run").mkdir()
    (top.parent / "secret.run" / "metrics.jsonl").write_text("secret")
    (top / "linked.run").symlink_to(top.parent / "secret.run")
    (top / ".hidden.run").mkdir()
    (top / ".hidden.run" / "metrics.jsonl").write_text("")
    return top


@pytest.fixture(scope="module")
def looking(more: dict[str, Path], runs: Path) -> Iterator[Running]:
    with running([*more.values()], "--runs", str(runs)) as found:
        yield found


def refused(response: httpx2.Response, status: int) -> str:
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    message: str = error["message"]
    assert "/tmp" not in message
    return message


@pytest.mark.parametrize("name", ["elman", "gru", "lstm", "qrnn", "transformer"])
def test_networks_are_looked_into_as_by_diagnose(name: str, looking: Running, more: dict[str, Path]) -> None:
    lm = cr.load(more[name])
    for token in (None, 3):
        found = answer(looking, "/v1/inside", model=name, text=TEXT, token=token)
        expected = cr.diagnose(lm, TEXT, token=token)
        assert (found["family"], found["kind"]) == ("network", lm.kind)
        assert found["tokens"] == list(expected.tokens)
        assert found["text_tokens"][found["token"] - 1] == found["target"] == expected.target
        assert found["bits"] == pytest.approx(expected.nats / math.log(2))
        assert found["gradients"]["embedding"] == pytest.approx(expected.embedding_gradient_T.tolist(), rel=1e-3)
        for state, norms_LT in expected.state_gradients.items():
            assert np.allclose(found["gradients"][state], norms_LT, rtol=1e-3)
        assert {(gate["gate"], gate["layer"]) for gate in found["gates"]} == {
            (gate, layer) for gate, layers in expected.gates.items() for layer in range(len(layers))
        }
        for gate in found["gates"]:
            values_TH = expected.gates[gate["gate"]][gate["layer"]]
            assert gate["mean"] == pytest.approx(values_TH.mean(axis=1).tolist(), abs=1e-4)
            low, high = gate["range"]
            assert len(gate["units"]) <= 8
            for unit in gate["units"]:
                assert unit["values"] == pytest.approx(values_TH[:, unit["unit"]].tolist(), abs=1e-4)
                assert all(low <= value <= high for value in unit["values"])
        assert (found["attention"] is None) == (expected.attention_LHTT is None) == (name != "transformer")
        if expected.attention_LHTT is not None:
            for layer, head, query in np.ndindex(expected.attention_LHTT.shape[:3]):
                weights = found["attention"][layer][head][query]
                assert weights == pytest.approx(
                    expected.attention_LHTT[layer, head, query, : query + 1].tolist(), abs=1e-4
                )


def test_one_token_is_followed_through_a_transformer(looking: Running, more: dict[str, Path]) -> None:
    lm = cr.load(more["transformer"])
    found = answer(looking, "/v1/inside", model="transformer", text=TEXT)
    path, expected = found["path"], cr.diagnose(lm, TEXT).followed
    assert expected is not None
    for name in ("embedding", "first"):
        assert path[name] == pytest.approx(getattr(expected, f"{name}_D").tolist(), abs=1e-4)
    for block, one in zip(path["blocks"], expected.blocks, strict=True):
        # what goes in, what attention adds, what the feed-forward part adds, what comes out
        assert np.add(block["middle"], block["feedforward"]) == pytest.approx(block["out"], abs=1e-3)
        assert np.add(path["first"], block["attention"]) == pytest.approx(block["middle"], abs=1e-3)
        assert block["hidden"]["count"] == len(one.hidden_I)
        for unit in block["hidden"]["units"]:
            assert unit["value"] == pytest.approx(one.hidden_I[unit["unit"]], abs=1e-4)
        for head, scores in enumerate(block["scores"]):
            weights = np.exp(scores) / np.exp(scores).sum()
            assert weights == pytest.approx(found["attention"][0][head][-1], abs=1e-3)
    # the guess after the last block is the model's own
    assert len(path["guesses"]) == len(path["blocks"]) + 1
    for guess, one in zip(path["guesses"][-1], found["likely"], strict=False):
        assert guess == {"token": one["token"], "probability": pytest.approx(one["probability"])}
    following = answer(looking, "/v1/next", model="transformer", prompt=TEXT, top=10)["tokens"]
    after = answer(looking, "/v1/inside", model="transformer", text=TEXT, after=True)
    assert after["token"] == len(after["text_tokens"]) + 1
    assert after["target"] == following[0]["token"]
    assert [one["token"] for one in after["likely"]] == [one["token"] for one in following]
    assert [one["probability"] for one in after["likely"]] == pytest.approx(
        [one["p"] for one in following], rel=1e-3
    )
    for name in ("ngram", "lstm"):
        best = answer(looking, "/v1/next", model=name, prompt=TEXT, top=1)["tokens"][0]["token"]
        assert answer(looking, "/v1/inside", model=name, text=TEXT, after=True)["target"] == best


def test_the_units_of_a_layer_obey_the_equations_of_its_cell(looking: Running) -> None:
    def values(found: dict[str, Any], unit: int) -> dict[str, np.ndarray]:
        every = [
            (one.get("gate") or one["state"], one)
            for one in (*found["gates"], *found["states"])
            if not one["layer"]
        ]
        return {
            name: np.asarray(next(u["values"] for u in one["units"] if u["unit"] == unit)) for name, one in every
        }

    found = answer(looking, "/v1/inside", model="lstm", text=TEXT)
    for unit in (one["unit"] for one in found["states"][0]["units"]):
        of = values(found, unit)
        # c_t = f_t c_{t-1} + i_t g_t,  h_t = o_t tanh(c_t)
        kept = of["forget"][1:] * of["c"][:-1] + of["input"][1:] * of["candidate"][1:]
        assert kept == pytest.approx(of["c"][1:], abs=1e-3)
        assert of["output"] * np.tanh(of["c"]) == pytest.approx(of["h"], abs=1e-3)
    found = answer(looking, "/v1/inside", model="gru", text=TEXT)
    of = values(found, found["states"][0]["units"][0]["unit"])
    # h_t = (1 - z_t) n_t + z_t h_{t-1}
    mixed = (1 - of["update"][1:]) * of["candidate"][1:] + of["update"][1:] * of["h"][:-1]
    assert mixed == pytest.approx(of["h"][1:], abs=1e-3)
    found = answer(looking, "/v1/inside", model="qrnn", text=TEXT)
    of = values(found, found["states"][0]["units"][0]["unit"])
    # c_t = f_t c_{t-1} + (1 - f_t) z_t,  h_t = o_t c_t
    mixed = of["forget"][1:] * of["c"][:-1] + (1 - of["forget"][1:]) * of["candidate"][1:]
    assert mixed == pytest.approx(of["c"][1:], abs=1e-3)
    assert of["output"] * of["c"] == pytest.approx(of["h"], abs=1e-3)


def test_tokens_of_counts_are_spelled_as_those_of_networks(looking: Running) -> None:
    found = {name: answer(looking, "/v1/inside", model=name, text=TEXT) for name in ("ngram", "transformer")}
    assert found["ngram"]["tokens"][1:] == found["transformer"]["tokens"][1:]
    assert found["ngram"]["target"] == found["transformer"]["target"]
    assert found["ngram"]["target"].startswith(" ")
    assert found["ngram"]["contexts"][0]["context"][-1] == found["ngram"]["tokens"][-1]
    assert not any(one["token"].startswith("'") for one in found["ngram"]["likely"])


def test_a_long_text_is_cut_and_many_heads_cut_it_more(
    looking: Running, more: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = answer(looking, "/v1/inside", model="lstm", text=TEXT * 20)
    assert len(found["tokens"]) == LONGEST
    assert len(found["text_tokens"]) == len(TEXT * 20)
    assert "the last 64 are read" in found["notes"][0]
    monkeypatch.setattr("chainrule.serve.api.inside.MOST_WEIGHTS", 100)
    lm = cr.load(more["transformer"])
    assert isinstance(lm, LanguageModel)
    assert len(look_at_network(lm, InsideRequest(text=TEXT * 4))["tokens"]) == 10  # 2 heads of 10² / 2


@pytest.mark.parametrize("name", ["ngram", "words", "anygram"])
def test_ngrams_are_looked_into_as_by_explain(name: str, looking: Running, more: dict[str, Path]) -> None:
    lm = cr.load(more[name])
    for token in (None, 1, 2):
        found = answer(looking, "/v1/inside", model=name, text=TEXT, token=token)
        expected = cr.explain(lm, TEXT, token=token)
        record = json.loads(json.dumps(expected.record()))
        assert found["family"] == "ngram"
        shown = [
            None if line["context"] is None else [token_of(one) for one in line["context"]]
            for line in record["contexts"]
        ]
        assert [line["context"] for line in found["contexts"]] == shown
        assert [{**line, "context": None} for line in found["contexts"]] == [
            {**line, "context": None} for line in record["contexts"]
        ]
        assert found["probability"] == pytest.approx(math.exp(-expected.nats))
        assert found["lines"][0] == expected.title
        ids = lm.tokenizer.encode(TEXT)[None, :token].astype(np.int64)
        assert found["log_prob"] == pytest.approx(float(cr.to_numpy(lm.score(ids))[0, -1]), abs=1e-6)
        if name == "anygram":
            assert sum(line["share"] for line in found["contexts"]) == pytest.approx(found["probability"])
            continue
        weights = [line["weight"] for line in found["contexts"][:-1]]
        last = found["contexts"][-1]
        assert math.prod(weights) * last["stored"] == pytest.approx(found["probability"])
        # what is stored is a sum: what its own counts give, and a share of the shorter context's
        assert found["terms"][0]["probability"] == pytest.approx(last["stored"])
        for term, lower in zip(found["terms"], found["terms"][1:], strict=False):
            assert term["lower"] == lower["probability"]
            assert term["own"] + term["weight"] * term["lower"] == pytest.approx(term["probability"])
            if term["count"]:
                assert term["own"] == pytest.approx(
                    max(term["count"] - term["discount"], 0) / term["total"], abs=1e-6
                )


def test_a_mixture_tells_what_each_model_says(looking: Running, more: dict[str, Path]) -> None:
    lm = cr.load(more["mixed"])
    assert isinstance(lm, Mixture)
    found = answer(looking, "/v1/inside", model="mixed", text="the c")
    assert [part["name"] for part in found["parts"]] == ["1: ngram", "2: lstm"]
    ids = np.asarray([lm.tokenizer.encode("the c")], dtype=np.int64)
    for part, one in zip(found["parts"], lm.models, strict=True):
        assert math.log(part["probability"]) == pytest.approx(float(cr.to_numpy(one.score(ids))[0, -1]), abs=1e-5)
    assert sum(part["weight"] for part in found["parts"]) == pytest.approx(1)
    assert sum(part["share"] for part in found["parts"]) == pytest.approx(found["probability"])
    assert found["log_prob"] == pytest.approx(float(cr.to_numpy(lm.score(ids))[0, -1]), abs=1e-6)


def test_a_log_linear_mixture_and_one_that_looks_at_its_context() -> None:
    parts = [cr.train("ngram", LINES, order=order, tokenizer="word") for order in (1, 3)]
    lm = cr.mix(parts, LINES[:5], form="log-linear")
    found = cr.explain(lm, TEXT)
    record = found.record()
    factors = math.prod(part["probability"] ** part["weight"] for part in record["parts"])
    z = float(record["equation"].rpartition("Z = ")[2])
    assert factors / z == pytest.approx(record["probability"], rel=1e-3)
    gated = cr.mix(parts, LINES[:5], by="length")
    record = cr.explain(gated, TEXT, token=4).record()
    assert (record["by"], record["value"]) == ("length", 3.0)
    assert sum(part["share"] for part in record["parts"]) == pytest.approx(record["probability"])


def test_an_encoder_decoder_shows_where_it_looks(looking: Running, more: dict[str, Path]) -> None:
    lm = cr.load(more["translator"])
    for target in (None, "c b"):
        found = answer(looking, "/v1/inside", model="translator", text="a b c", target=target)
        expected = align(lm, "a b c", target)
        assert (tuple(found["source"]), tuple(found["target"])) == (expected.source, expected.target)
        assert np.allclose(found["weights"], expected.weights_TS, atol=1e-4)
        assert np.allclose(np.mean(found["attention"][0], axis=0), expected.weights_TS, atol=1e-4)
    long = answer(looking, "/v1/inside", model="translator", text="a b c " * 60)
    assert len(long["source"]) == LONGEST
    assert len(long["target"]) <= LONGEST
    assert long["source"][-1] == "</s>"
    assert "first 63" in long["notes"][0]


@pytest.mark.parametrize("name", ["elman", "transformer", "filler", "tagger", "translator"])
def test_neighbours_are_the_nearest_by_cosine(name: str, looking: Running, more: dict[str, Path]) -> None:
    model = cr.load(more[name])
    table_VD = table_of(model).astype(np.float64)
    word = "a" if name == "translator" else "the"
    found = answer(looking, "/v1/neighbours", model=name, token=word, top=4)
    own = table_VD[found["id"]]
    assert len(table_VD) == model.tokenizers["text"].vocab_size
    # the plain way: one angle after the other
    cosines = {
        i: float(row @ own / (np.linalg.norm(row) * np.linalg.norm(own)))
        for i, row in enumerate(table_VD)
        if i != found["id"] and np.linalg.norm(row)
    }
    best = sorted(cosines, key=lambda i: -cosines[i])[:4]
    assert [one["id"] for one in found["data"]] == best
    assert [one["similarity"] for one in found["data"]] == pytest.approx([cosines[i] for i in best], abs=1e-4)


def test_neighbours_are_the_same_on_the_tape() -> None:
    lm = cr.train("elman", LINES, engine="tape", **SETTINGS | SMALL, tokenizer="word")
    token, found = neighbours(lm, "cat", 3)
    assert token.token == "cat"
    table_VD = lm.tensors()["embedding.weight"][: lm.tokenizer.vocab_size]
    unit_VD = table_VD / np.linalg.norm(table_VD, axis=1, keepdims=True)
    order = np.argsort(-(unit_VD @ unit_VD[token.id]))
    assert [one.id for one in found] == [i for i in order if i != token.id][:3]


def test_what_cannot_be_looked_into_says_what_it_does(looking: Running) -> None:
    for path, body, hint in (
        ("/v1/inside", {"model": "tagger", "text": "x"}, "/v1/tag"),
        ("/v1/inside", {"model": "filler", "text": "x"}, "/v1/fill"),
        ("/v1/inside", {"model": "ngram", "text": ""}, "no token to predict"),
        ("/v1/inside", {"model": "lstm", "text": ""}, "no token to predict"),
        ("/v1/inside", {"model": "translator", "text": " "}, "no token to translate"),
        ("/v1/inside", {"model": "lstm", "text": "the", "token": 9}, "tokens 1 to 3"),
        ("/v1/inside", {"model": "ngram", "text": "the", "token": 0}, "token"),
        ("/v1/inside", {"model": "ngram", "text": "x" * 2001}, "2000"),
        ("/v1/neighbours", {"model": "ngram", "token": "the"}, "no embedding table"),
        ("/v1/neighbours", {"model": "mixture", "token": "the"}, "no embedding table"),
        ("/v1/neighbours", {"model": "elman", "token": "the cat"}, "one token"),
        ("/v1/neighbours", {"model": "elman", "token": "zebra"}, "unknown"),
        ("/v1/neighbours", {"model": "elman", "token": "the", "top": 1000}, "top"),
    ):
        response = httpx2.post(f"{looking.address}{path}", json=body, timeout=60)
        assert hint in refused(response, 400), body
    refused(httpx2.post(f"{looking.address}/v1/inside", json={"model": "none", "text": "x"}), 404)


# -- trainings --------------------------------------------------------------------------------------------


def test_runs_are_listed_by_name(looking: Running, runs: Path) -> None:
    found = httpx2.get(f"{looking.address}/v1/runs").json()
    assert found["has_folder"]
    assert {one["id"]: one["what"] for one in found["data"]} == {
        "elman": "model",
        "ladder": "comparison",
        "nested:model.run": "run",
        "new.run": "run",
    }
    assert str(runs) not in json.dumps(found)


def test_the_curves_of_a_run_are_those_of_its_report(looking: Running, runs: Path) -> None:
    from chainrule.report.run import run_details

    expected = run_details(runs / "nested" / "model.run")
    found = httpx2.get(f"{looking.address}/v1/runs/nested:model.run").json()
    assert (found["points"], found["summary"], found["kind"]) == (expected.points, expected.summary, "lstm")
    assert not found["is_going_on"]
    with holding(runs / "nested" / "model.run"):
        assert httpx2.get(f"{looking.address}/v1/runs/nested:model.run").json()["is_going_on"]
    model = httpx2.get(f"{looking.address}/v1/runs/elman").json()
    assert (model["kind"], model["summary"]["step"]) == ("elman", 6)
    assert httpx2.get(f"{looking.address}/v1/runs/new.run", params={"chart": "light"}).json()["points"] == []


def test_the_chart_of_a_run_is_drawn_again_when_there_is_more(looking: Running, runs: Path) -> None:
    pytest.importorskip("vl_convert")
    shutil.copytree(runs / "nested" / "model.run", runs / "growing.run")
    try:
        address = f"{looking.address}/v1/runs/growing.run/chart.svg"
        until_listed(looking, "growing.run")
        first = httpx2.get(address)
        assert first.status_code == 200
        assert first.headers["content-type"] == "image/svg+xml"
        assert first.text.startswith("<svg")
        assert "mark-line" in first.text
        again = httpx2.get(address, headers={"If-None-Match": first.headers["etag"]})
        assert again.status_code == 304
        with (runs / "growing.run" / "metrics.jsonl").open("a") as file:
            file.write('\n{"what": "steps", "step": 31, "loss": 9.0}\n')
        later = httpx2.get(address, headers={"If-None-Match": first.headers["etag"]})
        assert later.status_code == 200
        assert later.text != first.text
        dark = httpx2.get(f"{looking.address}/v1/runs/growing.run", params={"chart": "dark"}).json()
        assert dark["chart"] != later.text
        assert dark["chart"].startswith("<svg")
    finally:
        shutil.rmtree(runs / "growing.run")
    refused(httpx2.get(f"{looking.address}/v1/runs/growing.run/chart.svg"), 404)


def until_listed(server: Running, name: str) -> None:
    """A list is valid for a second."""
    import time

    until = time.monotonic() + 10
    while name not in httpx2.get(f"{server.address}/v1/runs").text:
        assert time.monotonic() < until
        time.sleep(0.1)


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "../secret.run",
        "..%2fsecret.run",
        "%2e%2e",
        "%2e%2e%2fsecret.run",
        "..:secret.run",
        "nested%2fmodel.run",
        "nested",
        "linked.run",
        ".hidden.run",
        "ngram",
        "%00",
        "/etc/passwd",
        "%ff",
    ],
)
def test_what_is_not_in_the_list_is_not_found(name: str, looking: Running) -> None:
    for rest in ("", "/chart.svg", "/report"):
        assert "secret" not in refused(raw_get(looking, f"/v1/runs/{name}{rest}"), 404).replace(name, "")


def raw_get(server: Running, path: str) -> httpx2.Response:
    """A request with a path as it is: clients tidy dots away."""
    import http.client

    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
    try:
        connection.putrequest("GET", path, skip_accept_encoding=True)
        connection.endheaders()
        found = connection.getresponse()
        return httpx2.Response(found.status, content=found.read())
    finally:
        connection.close()


def test_a_report_is_a_document_without_an_origin(looking: Running) -> None:
    link = {one["id"]: one["report"] for one in httpx2.get(f"{looking.address}/v1/runs").json()["data"]}
    assert link["nested:model.run"] is None
    for address in (link["ladder"], "/v1/runs/ladder/report"):
        found = httpx2.get(f"{looking.address}{address}")
        assert found.status_code == 200
        assert found.headers["content-type"].startswith("text/html")
        (policy,) = found.headers.get_list("content-security-policy")
        assert policy.startswith("sandbox allow-scripts;")
        assert "default-src 'none'" in policy
        assert "same-origin" not in policy
        assert found.headers["x-content-type-options"] == "nosniff"
    assert "no report" in refused(httpx2.get(f"{looking.address}/v1/runs/elman/report"), 404)
    refused(httpx2.get(f"{looking.address}/reports/{'0' * 64}"), 404)
    refused(httpx2.get(f"{looking.address}/v1/runs/ladder"), 400)  # its compare.json is none


def test_without_a_folder_there_are_no_runs(server: Running) -> None:
    assert httpx2.get(f"{server.address}/v1/runs").json() == {"object": "list", "has_folder": False, "data": []}
    refused(httpx2.get(f"{server.address}/v1/runs/x"), 404)


def test_a_key_protects_them(folders: dict[str, Path], runs: Path) -> None:
    with running([folders["ngram"]], "--runs", str(runs), key="sesame") as server:
        for path in ("/v1/runs", "/v1/runs/elman", "/v1/runs/ladder/report", "/v1/runs/elman/chart.svg"):
            refused(httpx2.get(f"{server.address}{path}"), 401)
        for path in ("/v1/inside", "/v1/neighbours"):
            refused(httpx2.post(f"{server.address}{path}", json={"text": "x", "token": "x"}), 401)
        key = {"Authorization": "Bearer sesame"}
        listed = httpx2.get(f"{server.address}/v1/runs", headers=key).json()["data"]
        link = next(one["report"] for one in listed if one["id"] == "ladder")
        # a browser that follows a link sends no key: the link is one that nobody else can know
        assert httpx2.get(f"{server.address}{link}").status_code == 200
        refused(httpx2.get(f"{server.address}/reports/ladder"), 404)


def test_who_leaves_lets_nobody_look_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look makes a copy of the model, and goes on when its client has gone."""
    begun: list[int] = []
    looking = threading.Lock()

    def look(lm: object, asked: InsideRequest) -> dict[str, object]:
        begun.append(1)
        assert looking.acquire(blocking=False), "another one is looking"
        time.sleep(0.2)
        looking.release()
        return {}

    served = SimpleNamespace(name="m", lm=None, model=SimpleNamespace(kind="lstm"))
    monkeypatch.setattr(inside, "find_model", lambda *_: served)
    monkeypatch.setattr(inside, "look_at_network", look)
    monkeypatch.setattr(inside, "_way_to_look", lambda model: look)

    async def several() -> None:
        asked = InsideRequest(text="the cat"), cast(Any, None)
        gone = [asyncio.create_task(inside.inside(*asked)) for _ in range(3)]
        await asyncio.sleep(0.05)
        for one in gone:
            one.cancel()
        await inside.inside(*asked)

    run_async(several())
    assert len(begun) == 2  # the first was looking when its client left, two had not begun
