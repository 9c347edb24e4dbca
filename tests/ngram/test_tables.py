"""Tables of n-grams: counts by hand, probabilities of the model, backoffs as in ARPA files."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import DamagedFileError, SettingsError, TokenizerError
from chainrule.ngram.ngram_model import NgramModel
from chainrule.ngram.settings import SMOOTHINGS

TOY = ["i love cats", "i love dogs", "cats chase mice", "i love cats"]


def trained(**settings: Any) -> NgramModel:
    lm = cr.train(
        "ngram", TOY, valid=TOY, **{"order": 3, "smoothing": "mle", "counts": True, **settings}, tokenizer="word"
    )
    assert isinstance(lm, NgramModel)
    return lm


def counted(lm: NgramModel, context: Any = "") -> dict[str, int]:
    found = lm.ngrams(context)
    assert found.counts is not None
    return dict(zip(found.tokens, found.counts.tolist(), strict=True))


def test_counts_by_hand() -> None:
    lm = trained()
    assert counted(lm, "love") == {"cats": 2, "dogs": 1}
    assert counted(lm, "i love") == {"cats": 2, "dogs": 1}
    assert counted(lm, ["<s>"]) == {"i": 3, "cats": 1}
    assert counted(lm, ["<s>", "i"]) == {"love": 3}
    assert counted(lm) == {"</s>": 4, "i": 3, "love": 3, "cats": 3, "dogs": 1, "chase": 1, "mice": 1, "<unk>": 0}
    assert counted(lm, "mice") == {"</s>": 1}
    assert counted(lm, "dogs love") == counted(lm, "zebras") == {}
    assert counted(lm, "chase i love") == counted(lm, "i love")  # of the context, the last N-1 words


@pytest.mark.parametrize("smoothing", [name for name in SMOOTHINGS if name != "infinite"])
def test_counts_are_those_of_the_text_whatever_the_method_makes_of_them(smoothing: str) -> None:
    assert counted(trained(smoothing=smoothing), "love") == {"cats": 2, "dogs": 1}
    assert counted(trained(smoothing=smoothing))["cats"] == 3


def test_probabilities_are_those_of_the_model() -> None:
    lm = trained(smoothing="modified-kneser-ney")
    found = lm.ngrams(["<s>", "i"])
    state = lm.extend(lm.start(1), lm.tokenizer.encode("i")[None])
    np.testing.assert_allclose(found.probability, np.exp(lm.next_log_probs(state)[0, found.ids]), rtol=1e-6)
    everything = lm.ngrams()
    assert math.isclose(everything.probability.sum(), 1, rel_tol=1e-5)
    assert (np.diff(everything.log10_prob) <= 0).all()  # the most likely first


def test_logarithms_are_those_of_an_arpa_file(tmp_path: Path) -> None:
    lm = trained(smoothing="modified-kneser-ney")
    cr.save_arpa(lm, tmp_path / "a.arpa")
    lines = {}
    for line in (tmp_path / "a.arpa").read_text().splitlines():
        fields = line.split("\t")
        if len(fields) > 1:
            lines[fields[1]] = [float(value) for value in (fields[0], *fields[2:])]
    for context in ("", "i", "i love"):
        found = lm.ngrams(context)
        for token, log_prob, backoff in zip(found.tokens, found.log10_prob, found.log10_backoff, strict=True):
            expected, *more = lines[f"{context} {token}".strip()]
            assert log_prob == pytest.approx(expected, abs=1e-5)
            assert (
                np.isnan(backoff) if context == "i love" else backoff == pytest.approx((more or [0])[0], abs=1e-5)
            )


def test_words_against_words() -> None:
    table = trained(order=2).bigrams(["<s>", "i", "love", "cats", "i"])
    assert table.words == ["<s>", "i", "love", "cats"]  # each once
    assert table.counts is not None
    assert table.counts.tolist() == [[0, 3, 0, 1], [0, 0, 3, 0], [0, 0, 0, 2], [0, 0, 0, 0]]
    expected = [[0, 3 / 4, 0, 1 / 4], [0, 0, 1, 0], [0, 0, 0, 2 / 3], [0, 0, 0, 0]]
    np.testing.assert_allclose(table.probabilities, expected, rtol=1e-6)
    # of a longer model, p(column | row) after the row alone, not after <s> and the row
    longer = trained(order=3).bigrams("i love")
    np.testing.assert_allclose(longer.probabilities, [[0, 1], [0, 0]], rtol=1e-6)


def test_without_counts_there_are_probabilities() -> None:
    lm = trained(counts=False)
    found, table = lm.ngrams("love"), lm.bigrams("i love")
    assert found.counts is None and table.counts is None
    np.testing.assert_allclose(found.probability, [2 / 3, 1 / 3], rtol=1e-6)
    assert repr(found) == "<2 continuations of love>"


@pytest.mark.parametrize("more", [{}, {"bits": 8}, {"index": "hash"}])
def test_counts_are_saved(more: dict[str, Any], tmp_path: Path) -> None:
    trained(**more).save(tmp_path / "model")
    lm = cr.load(tmp_path / "model")
    assert isinstance(lm, NgramModel)
    assert counted(lm, "love") == {"cats": 2, "dogs": 1}


def test_counts_survive_a_device(tmp_path: Path) -> None:
    elsewhere = trained()
    moved = NgramModel(elsewhere.automaton.to("cpu"), elsewhere.tokenizer, elsewhere.settings)
    assert counted(moved, "love") == {"cats": 2, "dogs": 1}
    moved.save(tmp_path / "model")
    assert np.array_equal(cr.load(tmp_path / "model").tensors()["counts"], elsewhere.tensors()["counts"])


def test_counts_of_another_size_are_damage(tmp_path: Path) -> None:
    lm = trained()
    object.__setattr__(lm.automaton, "counts", lm.tensors()["counts"][:-1])
    lm.save(tmp_path / "model")
    with pytest.raises(DamagedFileError, match="not those of an n-gram model"):
        cr.load(tmp_path / "model")


def test_what_makes_no_sense_is_refused() -> None:
    for pruned in ({"prune": "0,1"}, {"entropy": 1e-3, "smoothing": "witten-bell"}):
        with pytest.raises(SettingsError, match="does not go with prune and entropy"):
            trained(**pruned)
    with pytest.raises(TokenizerError, match="'i love' is 2 word tokens, not one"):
        trained().bigrams(["i love"])


def test_frames() -> None:
    pytest.importorskip("pandas")
    lm = trained(order=2)
    frame = lm.ngrams("love").to_frame()
    assert list(frame.columns) == ["token", "id", "count", "probability", "log10_prob", "log10_backoff"]
    assert "count" not in trained(counts=False).ngrams("love").to_frame().columns
    table = lm.bigrams("i love cats")
    assert table.to_frame(counts=True).loc["i", "love"] == 3
    assert table.to_frame().loc["love", "cats"] == pytest.approx(2 / 3)
    with pytest.raises(ValueError, match="counts=true"):
        trained(counts=False).bigrams("i love").to_frame(counts=True)


def test_the_table_of_all_contexts() -> None:
    """Context, next word, count, sum and p, with <s> <s>, as the lecture asks for."""
    rows = {(*row.context, row.token): (row.count, row.total, row.probability) for row in trained().context_rows()}
    assert rows == {
        ("<s>", "<s>", "i"): (3, 4, pytest.approx(0.75)),
        ("<s>", "<s>", "cats"): (1, 4, pytest.approx(0.25)),
        ("<s>", "i", "love"): (3, 3, 1.0),
        ("<s>", "cats", "chase"): (1, 1, 1.0),
        ("i", "love", "cats"): (2, 3, pytest.approx(2 / 3)),
        ("i", "love", "dogs"): (1, 3, pytest.approx(1 / 3)),
        ("cats", "chase", "mice"): (1, 1, 1.0),
        ("chase", "mice", "</s>"): (1, 1, 1.0),
        ("love", "cats", "</s>"): (2, 2, 1.0),
        ("love", "dogs", "</s>"): (1, 1, 1.0),
    }


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_rows_of_every_order_are_the_model_s_probabilities(order: int) -> None:
    lm = trained(order=order, smoothing="witten-bell")
    rows = list(lm.context_rows())
    assert sum(row.count or 0 for row in rows) == 16  # each token of the text is in one row
    for row in rows:
        assert len(row.context) == order - 1
        found = lm.ngrams([word for i, word in enumerate(row.context) if row.context[i + 1 : i + 2] != ("<s>",)])
        (place,) = (i for i, token in enumerate(found.tokens) if token == row.token)
        assert row.probability == pytest.approx(found.probability[place], rel=1e-6)
        assert found.counts is not None and row.total == found.counts.sum()
    without = next(iter(trained(order=order, counts=False).context_rows()))
    assert (without.count, without.total) == (None, None)


def test_lengths_of_the_longest_known_ngrams() -> None:
    lm = trained(order=3)
    ids = np.concatenate([lm.sequences(text)[0] for text in ("i love mice", "dogs love zebras")]).astype(np.int64)
    # <s> <s> i, <s> i love, mice, mice </s>; dogs, love, <unk>, </s>
    assert lm.ngram_lengths(ids, *lm.bounds(ids)).tolist() == [3, 3, 1, 2, 1, 1, 1, 1]
