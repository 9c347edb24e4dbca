"""Tables of probabilities: those of the lectures, entered, scored, sampled and saved."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import chainrule as cr
from chainrule.errors import ChainruleError, ForeignFileError, ModelError, SettingsError

FISH = {"fish": 0.7, "memories": 0.1, "support": 0.05, "help": 0.05, "love": 0.04, "time": 0.02, "work": 0.02}
FISH["fun"] = 0.01
COWS: dict[str, dict[str, Any]] = {
    "<s> <s>": {"cows": 1},
    "<s> cows": {"eat": 1},
    "cows eat": {"corn": "4/11", "grass": "3/11", "hay": "2/11", "if": "1/11", "which": "1/11"},
    "": {"</s>": 1},
}


def probability(lm: cr.LanguageModel, prompt: str, word: str) -> float:
    state = lm.extend(lm.start(1), lm.tokenizer.encode(prompt)[None])
    (token,) = lm.tokenizer.encode(word)
    return float(math.exp(cr.to_numpy(lm.next_log_probs(state))[0, token]))


def test_the_lecture_s_table() -> None:
    lm = cr.Table({"thanks for all the": FISH})
    assert probability(lm, "so long and thanks for all the", "fish") == pytest.approx(0.7)
    assert probability(lm, "thanks for all the", "nonsense") == pytest.approx(0.01)  # <unk>: what the row leaves
    assert lm.metrics["left for <unk>"] == {"thanks for all the": 0.01}
    assert [one.word for one in cr.suggest(lm, "thanks for all the ", 3)] == ["fish", "memories", "support"]


def test_a_text_is_scored_and_sampled_by_the_chain_rule() -> None:
    lm = cr.Table(COWS)
    assert math.exp(lm.log_prob("cows eat hay")) == pytest.approx(2 / 11)
    assert lm.perplexity("cows eat hay") == pytest.approx((11 / 2) ** (1 / 4))
    assert cr.generate(lm, "", cr.Greedy()) == "cows eat corn"
    assert cr.evaluate(lm, ["cows eat corn", "cows eat grass"]).tokens == 8
    assert math.exp(cr.Table({"with": {"rice": 1e-100}}, unseen="uniform").log_prob("with rice")) > 0


def test_texts_of_a_batch_end_at_different_steps() -> None:
    lm = cr.Table({"<s>": {"cats": 1}, "cats": {"chase": 0.5, "</s>": 0.5}, "chase": {"cats": 1}})
    texts = {found.text for found in cr.generate_many(lm, [""], n=20)}
    assert {"cats", "cats chase cats"} <= texts


def test_a_context_without_a_row_is_an_error_or_uniform() -> None:
    rows = {"i love": {"cats": 0.5, "dogs": 0.5}}
    with pytest.raises(ModelError, match=r"no row for the context '<s>': add one, .* unseen=\"uniform\""):
        cr.Table(rows).log_prob("i love cats")
    lm = cr.Table(rows, unseen="uniform")
    # <unk>, </s>, i, love, cats, dogs: 1/6 for each of i, love and </s>
    assert math.exp(lm.log_prob("i love cats")) == pytest.approx(0.5 / 6**3)


@pytest.mark.parametrize("unseen", ["error", "uniform"])
def test_a_folder_and_a_file_are_the_same_model(tmp_path: Path, unseen: Any) -> None:
    lm = cr.Table(COWS, unseen=unseen)
    lm.save(tmp_path / "folder")
    (tmp_path / "table.json").write_text(json.dumps({"unseen": unseen, **COWS}))
    for name in ("folder", "table.json"):
        loaded = cr.load(tmp_path / name)
        assert loaded.log_prob("cows eat hay") == lm.log_prob("cows eat hay")
        assert (loaded.settings, loaded.metrics) == (lm.settings, lm.metrics)


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({}, "expected a row for each context"),
        ({"i": {}}, "expected a row for each context"),
        ({"i": {"love": 0.7, "hate": 0.4}}, "after 'i' sum to 1.1, which is more than 1"),
        ({"i": {"love": -0.1}}, r"p\(love \| i\) should be a number from 0 to 1, not -0.1"),
        ({"i": {"love": "half"}}, "not 'half'"),
        ({"i": {"<s>": 0.5}}, "<s> is never predicted"),
        ({"i <s>": {"love": 0.5}}, "has <s> inside"),
        ({"i": {"fried rice": 0.5}}, "'fried rice' is 2 word tokens, not one"),
        ({"i": {"love": 1}, " i ": {"love": 1}}, "the same context"),
    ],
)
def test_a_wrong_table_is_refused(rows: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ChainruleError, match=said):
        cr.Table(rows)
    (tmp_path / "table.json").write_text(json.dumps(rows))
    with pytest.raises(ForeignFileError, match=rf"table\.json: .*{said}"):
        cr.load(tmp_path / "table.json")


def test_other_files_are_refused(tmp_path: Path) -> None:
    for text, said in (
        ("[1, 2]", "expected an object of rows"),
        ("i love", "not JSON"),
        ('{"order": 3}', "unknown"),
    ):
        (tmp_path / "table.json").write_text(text)
        with pytest.raises(ForeignFileError, match=said):
            cr.load(tmp_path / "table.json")
    with pytest.raises(SettingsError, match="written and not trained"):
        cr.train("table", "i love cats")
