"""`chainrule count`: parameters from shapes, with formulas that give the same numbers."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import chainrule as cr

from .running import Fails, Run, sets

LECTURE = ("--set", "preset=lecture")
TRIGRAM = ("--set", "order=3", "--set", "embedding=300", "--set", "hidden=500")


def test_the_lectures_neural_trigram(run: Run) -> None:
    ran = run("count", "feedforward", *LECTURE, *TRIGRAM)
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["all", "8,310,500"] in lines
    assert "hidden · (order - 1) · embedding" in ran.out
    assert lines[-1] == ["feedforward:", "|V|=10000", "embedding=300", "hidden=500", "layers=1", "order=3"]


def test_kinds_side_by_side(run: Run) -> None:
    ran = run("count", "ngram", "feedforward", "lstm", *TRIGRAM)
    numbers = {line.split()[0]: line.split()[1] for line in ran.out.splitlines()[2:5]}
    assert numbers["ngram"] == "999,900,000,000" and numbers["feedforward"] == "8,310,500"
    assert "|V|^2 · (|V| - 1)" in ran.out


def test_orders(run: Run) -> None:
    ran = run("count", "ngram", "feedforward", "elman", "--orders", "2-4", "--vocab-size", 10, "--set", "hidden=4")
    rows = [line.split() for line in ran.out.splitlines()[2:5]]
    assert [row[:2] for row in rows] == [["2", "90"], ["3", "900"], ["4", "9,000"]]
    assert rows[0][3] == rows[1][3] == rows[2][3]  # one matrix for every step


def test_the_matrix_of_a_feed_forward_network_grows_with_its_order(run: Run) -> None:
    found = run("count", "feedforward", "--orders", "2-4", *TRIGRAM[2:], "--json").json
    assert [one["sizes"]["order"] for one in found] == [2, 3, 4]
    assert [one["parameters"] - found[0]["parameters"] for one in found] == [0, 150_000, 300_000]


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("ngram", "order=4"),
        ("feedforward", "direct=true"),
        ("bagofwords", "bias=false"),
        ("elman", "last=8"),
        ("lstm", "layers=3"),
        ("gru", "preset=lecture"),
        ("qrnn", "learned_start=true"),
        ("transformer", "preset=llama"),
        ("transformer", "kv_heads=2"),
        ("transformer", "preset=gpt2"),
        ("masked", "preset=bert"),
        ("seq2seq", "cell=transformer"),
        ("seq2seq", "cell=gru"),
        ("tagger", "characters=cnn"),
        ("classifier", "encoder=bagofwords"),
    ],
)
def test_formulas_give_the_numbers(run: Run, kind: str, settings: str) -> None:
    (found,) = run("count", kind, "--set", settings, "--vocab-size", 1003, "--json").json
    for weight in found["weights"]:
        formula = weight["formula"].replace("|V|", "V").replace("·", "*").replace("^", "**")
        assert eval(formula, {"V": 1003, **found["sizes"]}) == weight["number"] == math.prod(weight["shape"])
    assert found["parameters"] == sum(weight["number"] for weight in found["weights"])


def test_what_cannot_be_counted(fails: Fails) -> None:
    assert "the parameters of mixture are not known before a training; of ngram, feedforward" in fails(
        "count", "mixture"
    )
    assert "--orders takes a range such as 2-6, not '6-2'" in fails("count", "ngram", "--orders", "6-2")
    assert "unknown setting 'widht'; did you mean 'width'?" in fails("count", "transformer", "--set", "widht=8")
    assert "leave it out, and set the sizes" in fails("count", "classifier", "--set", "pretrained=bert")
    assert "order should be" in fails("count", "feedforward", "--orders", "1-2")


def test_as_many_as_after_a_training(run: Run, tmp_path: Path) -> None:
    lines = [f"{label}\t{word} {word}" for label in ("good", "bad") for word in ("fine", "poor", "so")]
    (tmp_path / "texts.tsv").write_text("\n".join(["label\ttext", *lines * 3]) + "\n")
    sizes = {"encoder": "lstm", "embedding": 4, "width": 8, "layers": 1}
    data = ["i love cats", "cats love me"] * 9
    masked = cr.train("masked", data, tokenizer="word", steps=1, width=8, heads=2, layers=1, batch=64)
    labelled = cr.train("classifier", tmp_path / "texts.tsv", tokenizer="word", steps=1, batch=64, **sizes)
    for lm, others in ((masked, {"width": 8, "heads": 2, "layers": 1}), (labelled, sizes)):
        words = [word for name, value in others.items() for word in ("--set", f"{name}={value}")]
        (found,) = run(
            "count", lm.kind, *words, "--label-count", 2, "--vocab-size", lm.tokenizer.vocab_size, "--json"
        ).json
        assert found["parameters"] == lm.metrics["parameters"]


def test_operations_by_length(run: Run) -> None:
    small = ("--vocab-size", 100, *sets("layers=1", "embedding=8", "hidden=8", "width=8"))
    shown = " ".join(run("count", "elman", "transformer", *small, "--lengths", "8-32").out.split())
    assert "elman 32 184,320 33 " in shown
    assert "elman, from 16 to 32 tokens: operations grow as length^1.00, products in a row as length^0.96" in shown
    assert "products in a row as length^0.00, time as length^" in shown
    found = run("count", "elman", "transformer", *small, "--lengths", "8-32", "--json").json["elman"]
    assert [one["length"] for one in found] == [8, 16, 32] and found[2]["flops"] == 184_320


def test_lengths_that_cannot_be_counted(fails: Fails) -> None:
    assert "--lengths takes a range such as 64-1024, not '0-8'" in fails("count", "lstm", "--lengths", "0-8")
    assert "doubles the length at least once" in fails("count", "lstm", "--lengths", "8-15")
    assert "exclude each other" in fails("count", "lstm", "--lengths", "8-16", "--orders", "2-3")
    assert "networks that the tape computes, not ngram" in fails("count", "ngram", "--lengths", "8-16")


def test_weights_that_blocks_have_alike_share_a_row(run: Run) -> None:
    shown = run("count", "transformer", "--vocab-size", 100, "--set", "layers=3", "--set", "width=64").out
    assert "blocks.0-2.feedforward.up.weight 256 x 64 49,152 3 · hidden · width" in " ".join(shown.split())
