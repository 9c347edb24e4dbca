"""`chainrule diagnose`: what goes on inside a network."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.autodiff.tape_model import as_tape_model
from chainrule.explanation.diagnosis import heat_line

from .running import Fails, Run, strict_json, trained_folders, without_torch

SMALL: dict[str, dict[str, Any]] = {
    "elman": {"embedding": 8, "hidden": 8, "layers": 2},
    "lstm": {"embedding": 8, "hidden": 8, "layers": 1, "context": "stream"},
    "transformer": {"width": 8, "heads": 2, "layers": 2, "window": 6},
}


@pytest.fixture(scope="module")
def networks(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return trained_folders(SMALL, corpus, tmp_path_factory.mktemp("networks"))


def test_gradients_through_time_are_shown(run: Run, networks: dict[str, Path]) -> None:
    ran = run("diagnose", networks["elman"], "we love cats")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("3 tokens, then 'cats': ")
    for shown in ("embedding", "h, layer 0", "h, layer 1", "first / last", "most depends on", "█"):
        assert shown in ran.out
    assert "attention" not in ran.out
    assert "forget" not in ran.out


def test_gates_are_shown(run: Run, networks: dict[str, Path]) -> None:
    ran = run("diagnose", networks["lstm"], "we love cats\ni chase mice")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("7 tokens, then 'mice': ")
    for shown in ("c, layer 0", "input, layer 0", "forget, layer 0", "candidate, layer 0", "output, layer 0"):
        assert shown in ran.out


def test_attention_is_shown(run: Run, networks: dict[str, Path]) -> None:
    found = cr.diagnose(cr.load(networks["transformer"]), "we love cats")
    ran = run("diagnose", networks["transformer"], "we love cats")
    assert (ran.code, ran.err) == (0, "")
    assert "attention of 'love'" in ran.out
    assert found.attention_LHTT is not None
    for layer, head in ((0, 0), (0, 1), (1, 0), (1, 1)):
        weights_T = found.attention_LHTT[layer, head, -1]
        (row,) = (line for line in ran.out.splitlines() if line.startswith(f"layer {layer}, head {head}"))
        best = int(weights_T.argmax())
        assert f"{found.tokens[best]!r} at {best} ({weights_T[best]:.3f})" in row


def test_records_are_written_and_printed_alike(run: Run, networks: dict[str, Path], tmp_path: Path) -> None:
    out = tmp_path / "records.jsonl"
    words = ("diagnose", networks["lstm"], "we love cats", "--out", out)
    assert run(*words).code == 0
    written = out.read_text(encoding="utf-8")
    assert run(*words, "--overwrite", "--json").out == written
    records = [strict_json(line) for line in written.splitlines()]
    assert {record["what"] for record in records} == {"prediction", "gradient_norm", "gradient_norm_alone", "gate"}
    found = cr.diagnose(as_tape_model(cr.load(networks["lstm"])), "we love cats")
    assert records == [json.loads(json.dumps(record)) for record in found.records()]


def test_several_models_are_in_one_picture(
    run: Run, fails: Fails, networks: dict[str, Path], tmp_path: Path
) -> None:
    picture, out, (elman, lstm) = tmp_path / "g.svg", tmp_path / "g.jsonl", (networks["elman"], networks["lstm"])
    ran = run("diagnose", elman, lstm, "we love cats", "--svg", picture, "--out", out)
    assert (ran.code, ran.err) == (0, "")
    assert f"{elman}:" in ran.out and f"{lstm}:" in ran.out and "c, layer 0 by gates alone" in ran.out
    content = picture.read_text(encoding="utf-8")
    assert f"{elman}: h, layer 1</text>" in content and f"{lstm}: c, layer 0</text>" in content
    assert {strict_json(line)["model"] for line in out.read_text().splitlines()} == {str(elman), str(lstm)}
    assert "is a folder: the last argument is the TEXT" in fails("diagnose", elman, lstm)
    assert run("diagnose", elman, lstm, "--prompt", "we love").code == 0
    assert "g.svg exists" in fails("diagnose", elman, "we love cats", "--svg", picture)


def test_a_recurrent_matrix_is_scaled(run: Run, fails: Fails, networks: dict[str, Path]) -> None:
    records = [
        strict_json(line)
        for line in run(
            "diagnose", networks["elman"], "we love cats", "--scale-recurrent", 0.5, "--json"
        ).out.splitlines()
    ]
    alone = [one["value"] for one in records if one["what"] == "gradient_norm_alone" and one["layer"] == 1]
    assert 0 < alone[0] <= 0.5 * alone[1] <= 0.25 * alone[2]
    assert "no recurrent matrix" in fails("diagnose", networks["transformer"], "we love", "--scale-recurrent", 0.5)


def test_notes_say_what_was_left_out(run: Run, networks: dict[str, Path]) -> None:
    ran = run("diagnose", networks["elman"], "we love cats\nzebras chase zebras", "--longest", 2)
    assert ran.err.splitlines() == [
        "note: the model knows single lines: only the last one is read",
        "note: of 3 tokens the last 2 are read, as if the text began there",
        "note: 1 of 2 tokens are unknown to the model",
    ]
    ran = run("diagnose", networks["transformer"], "we love cats we love cats we love cats")
    assert "of 9 tokens the last 6 are read" in ran.err


def test_what_cannot_be_looked_into(fails: Fails, model: Path, networks: dict[str, Path], tmp_path: Path) -> None:
    assert (
        "a model of the kind ngram has nothing to differentiate; the kinds that have are feedforward, bagofwords"
        in fails("diagnose", model, "we love cats")
    )
    elman = networks["elman"]
    assert "no token to predict" in fails("diagnose", elman, "")
    assert "there is none with the number 4" in fails("diagnose", elman, "we love cats", "--token", 4)
    assert "--prompt" in fails("diagnose", elman)
    (tmp_path / "mine").write_text("precious", encoding="utf-8")
    assert "mine exists" in fails("diagnose", elman, "we", "--out", tmp_path / "mine")
    assert (tmp_path / "mine").read_text(encoding="utf-8") == "precious"


def test_an_ngram_model_is_refused_without_torch(model: Path) -> None:
    done = without_torch(["diagnose", model, "we love cats"])
    assert (done.returncode, "nothing to differentiate" in done.stderr) == (2, True)


def test_torch_is_not_imported(networks: dict[str, Path]) -> None:
    """Even though it is installed, and the folders say engine=torch."""
    assert {cr.load(folder).settings.engine for folder in networks.values()} == {"torch"}
    verbs = [[verb, folder, "we love cats"] for folder in networks.values() for verb in ("diagnose", "explain")]
    done = without_torch(*verbs, is_installed=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_heat_lines() -> None:
    assert heat_line([0.0, 0.5, 1.0, None], 10) == "▁▅█·"
    # two and two share a column: means of 0.25 and 1, and the 0.5 is alone
    assert heat_line([0.5, 0.0, 1.0, None, 0.5, 0.5], 3) == "▃█▅"
    assert heat_line([0.5], -3) == "▅"
