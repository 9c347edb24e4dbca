"""Tests that folders of an earlier version still load and give the same scores and texts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.comparison.results import read_comparison
from chainrule.folder import read_folder, to_json
from manifests import read_manifest

FOLDERS = Path(__file__).parent / "data" / "folders"
EXPECTED = json.loads((FOLDERS / "expected.json").read_text())
RENAMED = {"InfiniteModel": "AnyLengthModel"}


@pytest.mark.parametrize("name", EXPECTED)
def test_an_old_folder_is_the_model_it_was(name: str, tmp_path: Path) -> None:
    expected = EXPECTED[name]
    lm = cr.load(FOLDERS / name)
    assert type(lm).__name__ == RENAMED.get(expected["type"], expected["type"])
    assert lm.log_prob("i love mice\ncats chase dogs\n") == pytest.approx(expected["log_prob"], rel=1e-5)
    assert cr.generate(lm, "i", cr.TopP(0.9), seed=3, max_tokens=12) == expected["text"]
    lm.save(tmp_path / name)
    assert read_folder(tmp_path / name).is_signed
    assert read_folder(FOLDERS / name).is_signed == (read_manifest(FOLDERS / name)["version"] > 1)
    again = cr.load(tmp_path / name)
    assert again.log_prob("i love mice\ncats chase dogs\n") == lm.log_prob("i love mice\ncats chase dogs\n")


def test_ngrams_of_any_length_become_a_kind_of_their_own(tmp_path: Path) -> None:
    cr.load(FOLDERS / "infinite").save(tmp_path / "m")
    assert json.loads((tmp_path / "m" / "manifest.json").read_text())["kind"] == "anygram"


def test_the_old_name_of_ngrams_of_any_length_still_trains() -> None:
    corpus = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")
    old, new = (
        cr.train("ngram", corpus, smoothing="infinite", tokenizer="word"),
        cr.train("anygram", corpus, tokenizer="word"),
    )
    assert type(old) is type(new)
    assert old.log_prob("i love mice") == new.log_prob("i love mice")


def test_an_old_comparison_is_read_with_all_its_figures() -> None:
    folder = FOLDERS.parent / "comparison"
    found = read_comparison(folder)
    assert found is not None
    now, then = json.loads(to_json(found.to_json())), json.loads((folder / "compare.json").read_text())
    assert [one | old for one, old in zip(now["results"], then["results"], strict=True)] == now.pop("results")
    del then["results"]
    assert now | then == now  # what it did not have yet is left open
    assert found.best is not None and found.best.name == "mixture"
    assert found.is_of_text and found.frontier("megabytes") == {"unigram, mle", "mixture"}
