"""Tests that recipes are complete: the kind knows their settings, their texts are found, and one runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import recipes
from recipes.__main__ import main

import chainrule as cr
from chainrule.errors import ChainruleError, SettingsError

TEXT = "the cat sees the dog\nthe dog runs\na cat runs to the tree\n" * 12
SMALL = ["layers=1", "width=16", "heads=2", "window=16", "batch=64", "steps=4", "validate_every=2"]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    (folder / "tinyshakespeare").mkdir(parents=True)
    (folder / "tinyshakespeare/input.txt").write_text(TEXT)
    return folder


@pytest.mark.parametrize("name", recipes.names())
def test_settings_are_those_of_the_kind(name: str) -> None:
    recipe = recipes.find(name)
    settings = recipe.check()
    for key, value in recipe.settings.items():
        assert getattr(settings, key) == value
    assert recipe.reaches
    with pytest.raises(SettingsError, match="unknown setting 'colour'"):
        recipe.check(colour="red")


def test_the_end_of_a_text_is_held_out(data: Path, tmp_path: Path) -> None:
    recipe = recipes.find("shakespeare_transformer")
    texts = recipe.texts(data, tmp_path)
    train, valid = texts.train.read_text(), texts.valid.read_text()
    assert train + valid == TEXT
    assert len(train) == int(0.9 * len(TEXT))
    assert texts.test == texts.valid


def test_texts_are_in_the_folder_of_the_data(tmp_path: Path) -> None:
    recipe = replace(recipes.find("wikitext2_lstm"), train="a", valid="b", test="c")
    for name in "abc":
        with pytest.raises(ChainruleError, match=f"/{name} is not there"):
            recipe.texts(tmp_path, tmp_path)
        (tmp_path / name).write_text("x\n")
    texts = recipe.texts(tmp_path, tmp_path)
    assert [path.name for path in (texts.train, texts.valid, texts.test)] == ["a", "b", "c"]


def test_a_recipe_is_trained_saved_and_measured(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    words = [word for setting in SMALL for word in ("--set", setting)]
    main(["shakespeare_transformer", "--data", str(data), "--out", str(out), "--device", "cpu", *words])
    lm = cr.load(out)
    assert "nats a token" in capsys.readouterr().out
    valid = TEXT[int(0.9 * len(TEXT)) :]
    assert lm.metrics["test"]["tokens"] == len(valid)
    assert lm.log_prob(valid) / len(valid) == pytest.approx(-lm.metrics["test"]["nats"], abs=1e-4)
    assert not (tmp_path / "model.run" / "checkpoints").exists()


def test_new_sources_are_written_for_the_targets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of the other direction is trained first; what it writes stands beside the true pairs."""
    folder = tmp_path / "multi30k"
    folder.mkdir()
    for part in ("train", "val", "test_2016_flickr"):
        (folder / f"{part}.en").write_text("the cat sees the dog\nthe dog runs\n" * 20)
        (folder / f"{part}.de").write_text("die Katze sieht den Hund\nder Hund läuft\n" * 20)
    recipe = recipes.find("multi30k_transformer")
    trained = []
    train = cr.train

    def noted(kind: str, pairs: Any, **others: Any) -> Any:
        trained.append(list(pairs))
        return train(kind, pairs, **others)

    monkeypatch.setattr(cr, "train", noted)
    few = {"layers": 1, "width": 16, "heads": 2, "batch": 256, "steps": 40, "validate_every": 20}
    _, measured = recipes.run(recipe, tmp_path, device="cpu", settings={**few, "dropout": 0, "token_dropout": 0})
    assert measured.bleu >= 0
    first, second = trained
    true = [(source, target) for target, source in first]
    assert second[: len(true)] == second[len(true) : 2 * len(true)] == true
    new = second[2 * len(true) :]
    assert {target for _, target in new} <= {target for _, target in true}
    with pytest.raises(ChainruleError, match="cannot be resumed"):
        recipes.run(recipe, tmp_path, device="cpu", resume=True)


def test_recipes_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    main([])
    assert [line.partition(":")[0] for line in capsys.readouterr().out.splitlines()] == recipes.names()


def test_wrong_arguments_are_reported(data: Path, tmp_path: Path) -> None:
    out = ["--data", str(data), "--out", str(tmp_path / "model"), "--device", "cpu"]
    for words in (["nothing", *out], ["nothing"]):
        with pytest.raises(SystemExit, match="there is no recipe 'nothing'"):
            main(words)
    with pytest.raises(SystemExit, match="unknown setting 'widht'; did you mean 'width'"):
        main(["shakespeare_transformer", *out, "--set", "widht=3"])
    with pytest.raises(SystemExit, match="is not there: name the folder"):
        main(["gpt2", *out])
    with pytest.raises(SystemExit):
        main(["gpt2"])
