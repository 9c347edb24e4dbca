"""`chainrule explain`: one prediction, module by module."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr

from .running import Fails, Run, trained_folders, without_torch

SMALL: dict[str, dict[str, Any]] = {
    "feedforward": {"order": 4, "embedding": 4, "hidden": 6, "activation": "tanh", "engine": "tape"},
    "bagofwords": {"embedding": 4, "hidden": 4, "layers": 1, "window": 8, "engine": "torch"},
    "elman": {"embedding": 4, "hidden": 4, "layers": 1, "tied": False, "engine": "tape"},
    "lstm": {"embedding": 4, "hidden": 4, "layers": 1, "context": "stream", "engine": "torch"},
    "transformer": {"width": 8, "heads": 2, "layers": 1, "window": 6, "preset": "gpt2", "engine": "torch"},
}


@pytest.fixture(scope="module")
def networks(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_folders(SMALL, corpus, tmp_path_factory.mktemp("networks"))


def test_the_lecture_s_network_is_printed(run: Run, networks: dict[str, Path]) -> None:
    ran = run("explain", networks["feedforward"], "we love cats")
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    nats = -math.log(probability(networks["feedforward"], "we love cats"))
    assert lines[0].startswith(f"L = -ln p(cats | <s> we love) = {nats:.4g} nats = {nats / math.log(2):.4g} bits")
    shown = [line.rpartition(" ")[0] for line in lines[4:12]]
    V = cr.load(networks["feedforward"]).tokenizer.vocab_size
    assert shown == [
        "Embedding e₁ = E[x₁] 4",
        "Embedding e₂ = E[x₂] 4",
        "Embedding e₃ = E[x₃] 4",
        "Concat x = [e₁; e₂; e₃] 12",
        "Linear a₁ = W x + b 6",
        "Tanh h = tanh(a₁) 6",
        f"Linear z = U h + c {V}",
        "SoftmaxCrossEntropy L = -ln softmax(z)[y] number",
    ]
    assert lines[11].endswith(" 1.00e+00")
    (table,) = (line for line in lines if line.startswith("E "))
    assert table.startswith(f"E {V}×4 3 times ")
    assert lines[-1].startswith("most likely: ") and lines[-1].count(",") == 4


def probability(folder: Path, text: str) -> float:
    lm = cr.load(folder)
    return math.exp(-lm.surprisals(text)[-2])  # behind the last word comes </s>


def test_steps_are_unrolled(run: Run, networks: dict[str, Path]) -> None:
    ran = run("explain", networks["elman"], "we love cats", "--last", 2)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert lines[0] == "the first token is read without the tape: the state after it is data"
    assert [line.strip() for line in lines if line.startswith("step ")] == ["step 1: we", "step 2: love"]
    assert ran.out.count("Tanh") == 2
    assert "h₂ = tanh(" in ran.out and "h₃" not in ran.out
    assert run("explain", networks["elman"], "we love cats").out.count("Tanh") == 3


def test_a_bag_of_words_is_printed(run: Run, networks: dict[str, Path]) -> None:
    ran = run("explain", networks["bagofwords"], "we love cats", "--last", 2)
    assert (ran.code, ran.err) == (0, "")
    assert "token is read without the tape: the sum of their vectors is data" in ran.out
    for equation in ("a₁ = stack(s₀; e₁; e₂)", "s = Σ a₁", "m = 0.3333 s", "a₂ = W m + b", "h = max(0, a₂)"):
        assert equation in ran.out


def test_a_transformer_is_printed(run: Run, networks: dict[str, Path]) -> None:
    ran = run("explain", networks["transformer"], "we love cats")
    assert (ran.code, ran.err) == (0, "")
    lines = [" ".join(line.split()) for line in ran.out.splitlines()]
    nats = -math.log(probability(networks["transformer"], "we love cats"))
    assert lines[0].startswith(f"L = -ln p(cats | <s> we love) = {nats:.4g} nats")
    shown = [line.rpartition(" ")[0] for line in lines[4:29]]
    V = cr.load(networks["transformer"]).tokenizer.vocab_size
    assert shown == [
        "Embedding e = E[x] 3×8",
        "Slice a₁ = P[0:3] 3×8",
        "Add h⁰ = e + a₁ 3×8",
        "LayerNorm a₂ = γ₁¹ ⊙ (h⁰ - μ) / σ + β₁¹ 3×8",
        "Linear a₃ = Wqkv¹ a₂ + bqkv¹ 3×24",
        "Slice a₄ = a₃[..., 0:8] 3×8",
        "SplitHeads q¹ = heads(a₄) 2×3×4",
        "Slice a₅ = a₃[..., 8:16] 3×8",
        "SplitHeads k¹ = heads(a₅) 2×3×4",
        "Slice a₆ = a₃[..., 16:24] 3×8",
        "SplitHeads v¹ = heads(a₆) 2×3×4",
        "ScaledDotProductAttention A¹ = softmax(q¹ k¹ᵀ / √d) v¹ 2×3×4",
        "MergeHeads a₇ = [A¹] 3×8",
        "Linear a₈ = Wo¹ a₇ + bo¹ 3×8",
        "Add a₉ = h⁰ + a₈ 3×8",
        "LayerNorm a₁₀ = γ₂¹ ⊙ (a₉ - μ) / σ + β₂¹ 3×8",
        "Linear a₁₁ = W₁¹ a₁₀ + b₁¹ 3×32",
        "GELU a₁₂ = gelu(a₁₁) 3×32",
        "Linear a₁₃ = W₂¹ a₁₂ + b₂¹ 3×8",
        "Add h¹ = a₉ + a₁₃ 3×8",
        "LayerNorm a₁₄ = γ ⊙ (h¹ - μ) / σ + β 3×8",
        "Slice a₁₅ = a₁₄[-1] 8",
        f"Linear z = E a₁₅ {V}",
        "SoftmaxCrossEntropy L = -ln softmax(z)[y] number",
        "",
    ]
    (table,) = (line for line in lines if line.startswith("E "))
    assert table.startswith(f"E {V}×8 2 times ")


def test_the_picture_is_written(run: Run, networks: dict[str, Path], tmp_path: Path) -> None:
    picture = tmp_path / "lstm.svg"
    ran = run("explain", networks["lstm"], "we love cats", "--svg", picture)
    assert (ran.code, ran.err) == (0, "")
    assert f"the picture is in {picture}" in ran.out
    content = picture.read_text(encoding="utf-8")
    root = ET.fromstring(content)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    record = run("explain", networks["lstm"], "we love cats", "--json").json
    for node in record["nodes"]:
        if node["kind"] == "module":
            assert content.count(f">{node['equation']}</text>") == 1
    for word in ("we", "love", "cats", "step 3"):
        assert f">{word}</text>" in content


def test_as_json(run: Run, networks: dict[str, Path]) -> None:
    record = run("explain", networks["feedforward"], "--prompt", "we love", "--next", "cats", "--json").json
    assert record["kind"] == "feedforward"
    assert record["tokens"] == ["<s>", "we", "love"]
    assert record["target"] == "cats"
    assert record["probability"] == pytest.approx(math.exp(-record["nats"]))
    assert record["bits"] == pytest.approx(record["nats"] / math.log(2))
    assert len(record["likely"]) == 5
    symbols = [node["symbol"] for node in record["nodes"]]
    loss, logits = symbols.index("L"), symbols.index("z")
    assert {edge["giver"] for edge in record["edges"] if edge["taker"] == loss} == {logits, symbols.index("y")}
    assert record["nodes"][loss]["gradient"] == 1.0


def test_an_older_picture_is_not_replaced_unasked(
    run: Run, fails: Fails, networks: dict[str, Path], tmp_path: Path
) -> None:
    mine = tmp_path / "mine.svg"
    mine.write_text("precious", encoding="utf-8")
    words = ("explain", networks["elman"], "we love", "--svg", mine)
    assert "mine.svg exists" in fails(*words)
    assert mine.read_text(encoding="utf-8") == "precious"
    assert run(*words, "--overwrite").code == 0
    assert mine.read_text(encoding="utf-8").startswith("<svg")
    assert "there is no folder" in fails(*words[:-1], tmp_path / "nowhere" / "a.svg")


def test_unknown_words_are_noted(run: Run, networks: dict[str, Path]) -> None:
    ran = run("explain", networks["elman"], "--prompt", "zebras love", "--next", "zebras")
    assert ran.err == "note: 2 of 3 tokens are unknown to the model\n"
    assert "p(<unk> | <s> <unk> love)" in ran.out


def test_what_cannot_be_explained(fails: Fails, model: Path, networks: dict[str, Path], tmp_path: Path) -> None:
    assert "an n-gram model has none" in fails("explain", model, "we", "--svg", tmp_path / "a.svg")
    elman = networks["elman"]
    assert "no token to predict" in fails("explain", elman, "")
    assert "'cats mice' is 2: cats, mice" in fails("explain", elman, "--prompt", "we", "--next", "cats mice")
    assert "'' is 0: nothing" in fails("explain", elman, "--prompt", "we", "--next", "")
    assert "--last" in fails("explain", elman, "we", "--last", 0)
    assert "--prompt" in fails("explain", elman)
    assert f"{tmp_path / 'm'}: no such model folder" in fails("explain", tmp_path / "m", "we")


def test_the_contexts_of_an_ngram_model_are_printed(run: Run, corpus: Path, tmp_path: Path) -> None:
    cr.train("ngram", corpus, order=3, tokenizer="word").save(tmp_path / "trigram")
    ran = run("explain", tmp_path / "trigram", "we love zebras cats")
    assert (ran.code, ran.err) == (0, "note: 1 of 4 tokens are unknown to the model\n")
    p = probability(tmp_path / "trigram", "we love zebras cats")
    lines = ran.out.splitlines()
    assert lines[0].startswith(f"p(cats | … love <unk>) = {p:.4g}, ")
    rows = [" ".join(line.split()) for line in lines[4:7]]
    # neither context was seen, so that nothing is lost by leaving it out
    assert rows == [f"love <unk> no 1 {p:.4g}", f"<unk> yes 1 {p:.4g}", f"(none) yes {p:.4g} {p:.4g}"]
    assert lines[8] == f"p = {p:.4g}" and lines[9].startswith(
        "p(w | h) = max(c(h w) - D, 0) / c(h) + γ(h) p(w | h')"
    )
    assert lines[10].startswith("  p(cats) = (2 - ") and lines[10].endswith(f" = {p:.4g}")
    assert lines[-1].startswith("most likely: ")


def test_the_contexts_of_an_anygram_model_are_printed(run: Run, corpus: Path, tmp_path: Path) -> None:
    cr.train("anygram", corpus, tokenizer="word").save(tmp_path / "any")
    ran = run("explain", tmp_path / "any", "we love cats")
    assert (ran.code, ran.err) == (0, "")
    assert "every word alike" in ran.out and "<s> we love" in ran.out
    assert f"= {probability(tmp_path / 'any', 'we love cats'):.4g}\n" in ran.out
    record = run("explain", tmp_path / "any", "we love cats", "--json").json
    assert record["probability"] == pytest.approx(sum(line["share"] for line in record["contexts"]))


def test_the_models_of_a_mixture_are_printed(run: Run, corpus: Path, tmp_path: Path) -> None:
    parts = [cr.train("ngram", corpus, order=order, tokenizer="word") for order in (1, 3)]
    cr.mix(parts, corpus, by="length").save(tmp_path / "mixed")
    ran = run("explain", tmp_path / "mixed", "we love cats")
    assert (ran.code, ran.err) == (0, "")
    assert "1: ngram" in ran.out and "2: ngram" in ran.out
    assert f"= {probability(tmp_path / 'mixed', 'we love cats'):.4g}\n" in ran.out
    assert "the weights depend on the length of the context: 2" in ran.out
    record = run("explain", tmp_path / "mixed", "we love cats", "--json").json
    assert record["probability"] == pytest.approx(sum(part["share"] for part in record["parts"]))


def test_scores_are_not_called_probabilities(run: Run, corpus: Path, tmp_path: Path) -> None:
    cr.train("ngram", corpus, order=3, smoothing="stupid-backoff", tokenizer="word").save(tmp_path / "stupid")
    ran = run("explain", tmp_path / "stupid", "we love zebras cats")
    assert "S(cats | … love <unk>) = " in ran.out
    assert "S = 0.4 · 0.4 · " in ran.out
    assert "no probability" in ran.out
    record = run("explain", tmp_path / "stupid", "we love zebras cats", "--json").json
    assert "probability" not in record
    assert record["score"] == pytest.approx(probability(tmp_path / "stupid", "we love zebras cats"))


def test_the_tape_and_ngrams_need_no_torch(networks: dict[str, Path], model: Path) -> None:
    folders = [*networks.values(), model]
    done = without_torch(*(["explain", folder, "we love cats"] for folder in folders))
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.count("most likely: ") == len(folders)


def test_a_prompt_is_text_before_the_token_that_is_predicted(
    run: Run, fails: Fails, networks: dict[str, Path]
) -> None:
    folder = networks["feedforward"]
    asked = run("explain", folder, "--prompt", "we love", "--json").json
    assert asked["tokens"][-1] == "love" and asked["target"] == asked["likely"][0]["token"]
    assert run("explain", folder, "--prompt", "we love", "--next", asked["target"], "--json").json == asked
    assert (
        run("explain", folder, "--prompt", "we love", "--next", "cats").out
        == run("explain", folder, "we love cats").out
    )
    assert "give a TEXT in quotes" in fails("explain", folder, "we love", "--prompt", "we")


def test_a_head_is_printed_and_drawn(run: Run, fails: Fails, networks: dict[str, Path], tmp_path: Path) -> None:
    picture, words = tmp_path / "head.svg", ("explain", networks["transformer"], "we love cats")
    ran = run(*words, "--head", "0.1", "--svg", picture)
    assert (ran.code, ran.err) == (0, "")
    (record,) = run(*words, "--head", "0.1", "--json").json["attention"]
    assert (record["layer"], record["head"], record["token"]) == (0, 1, "love")
    assert ran.out.startswith("layer 0, head 1: attention of 'love', with the query q = (")
    for one in record["tokens"]:
        (row,) = (line for line in ran.out.splitlines() if line.startswith(one["token"]))
        assert f" {one['score']:.4f} " in row and f" {one['weight']:.4f} " in row
        assert f"weight, {one['token']}: {one['weight']:.4g}".replace("<", "&lt;").replace(">", "&gt;") in (
            picture.read_text(encoding="utf-8")
        )
    assert ET.parse(picture).getroot().tag.endswith("svg")
    assert len(run(*words, "--json").json["attention"]) == 2
    assert "there is no head 1.0: the layers are 0 to 0, the heads of each 0 to 1" in fails(*words, "--head", "1.0")
    assert "'1' is not a layer and a head, such as 0.1" in fails(*words, "--head", "1")
    assert "no attention" in fails("explain", networks["elman"], "we love cats", "--head", "0.0")
