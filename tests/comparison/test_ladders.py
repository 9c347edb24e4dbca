"""The ladders of the lectures: files of the package, found by name."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

import chainrule as cr
from chainrule.cli.verbs.compare import compare as verb
from chainrule.comparison.ladder import find_ladder, ladder_names
from chainrule.errors import ChainruleError
from chainrule.evaluation.measure import Measured

ROOT = Path(__file__).parents[2]


def test_the_lectures_tables_are_ladders(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lecture-ngrams").write_text("", encoding="utf-8")
    monkeypatch.chdir(tmp_path)  # a file of that name is found by its path only
    assert [(entry.name, entry.settings) for _, entry in find_ladder("lecture-ngrams")] == [
        ("unigram", {"order": 1}),
        ("bigram", {"order": 2}),
        ("trigram", {"order": 3}),
    ]
    with pytest.raises(ChainruleError, match="a ladder is a list"):
        find_ladder("./lecture-ngrams")
    networks = find_ladder("lecture-networks")
    assert [(kind.name, entry.share) for kind, entry in networks] == [
        ("ngram", 1.0),
        ("elman", 1.0),
        ("lstm", 2.0),
        ("transformer", 2.0),
    ]
    assert ["minutes" in entry.settings for _, entry in networks] == [False, True, True, True]
    with pytest.raises(ChainruleError, match="lecture-ngrams: the kind ngram is for another task"):
        find_ladder("lecture-ngrams", task="tagging")


def test_every_ladder_travels_with_the_package_and_is_named_in_the_help() -> None:
    packed = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "comparison/ladders/*" in packed["tool"]["setuptools"]["package-data"]["chainrule"]
    option = next(one for one in verb.params if one.name == "ladder")
    for name in ladder_names():
        assert find_ladder(name)
        assert name in str(option.to_info_dict()["help"])


def test_perplexity_falls_with_the_order_as_in_the_lectures(tmp_path: Path) -> None:
    documents = [document.decode() for document in cr.Corpus.open("builtin:python").documents()][:300]
    found = cr.compare(documents, tmp_path / "out", ladder="lecture-ngrams", tokenizer=cr.TokenizerChoice("word"))
    assert [one.name for one in found.results] == ["unigram", "bigram", "trigram"]
    perplexity = [one.test.perplexity for one in found.results if isinstance(one.test, Measured)]
    assert perplexity == sorted(perplexity, reverse=True) and perplexity[0] > 2 * perplexity[2]
