"""Many texts scored at once: the same figures as for each text by itself, as arrays."""

from __future__ import annotations

import builtins
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import chainrule as cr
from chainrule.errors import CorpusError, MissingExtraError, TokenizerError
from listening import Listening

TOY = ["i love cats", "i love dogs", "cats chase mice"]
TEXTS = ["i love mice", "", "cats\nchase zebras\n", "dogs\r\ni", "\n\n", "i love cats"]


def small(kind: str, context: Any) -> cr.LanguageModel:
    more: dict[str, Any] = (
        {"order": 3, "smoothing": "laplace"} if kind == "ngram" else {"engine": "tape", "steps": 1, "hidden": 4}
    )
    return cr.train(kind, TOY, valid=TOY, context=context, **more, tokenizer="word")


@pytest.fixture(params=[("ngram", "line"), ("ngram", "stream"), ("elman", "line"), ("elman", "stream")])
def lm(request: pytest.FixtureRequest) -> cr.LanguageModel:
    return small(*request.param)


def test_each_text_has_the_figures_that_it_has_alone(lm: cr.LanguageModel) -> None:
    scores = cr.score(lm, TEXTS)
    assert len(scores) == 6 and scores.texts == TEXTS
    assert scores.tokens.tolist() == [4, 1, 2 + 3, 2 + 2, 2, 4]  # words and line ends
    assert scores.bytes.tolist() == [11, 0, 18, 7, 2, 11]
    assert scores.unknown.tolist() == [0, 0, 1, 0, 0, 0]  # zebras
    np.testing.assert_allclose(scores.log_prob, [lm.log_prob(text) for text in TEXTS], rtol=1e-5)
    np.testing.assert_allclose(scores.perplexity, [lm.perplexity(text) for text in TEXTS], rtol=1e-5)
    np.testing.assert_allclose(scores.nats, -scores.log_prob / scores.tokens)
    assert math.isclose(scores.bits_per_byte[0], -scores.log_prob[0] / math.log(2) / 11)
    assert scores.bits_per_byte[1] == math.inf


def test_each_token_has_its_surprisal_and_its_text(lm: cr.LanguageModel) -> None:
    scores = cr.score(lm, TEXTS)
    np.testing.assert_allclose(scores.surprisals, lm.surprisals(TEXTS), rtol=1e-5)
    assert scores.offsets.tolist() == [0, 4, 5, 10, 14, 16, 20]
    assert scores.text_of.tolist() == [0] * 4 + [1] + [2] * 5 + [3] * 4 + [4] * 2 + [5] * 4
    first = scores[0]
    assert [lm.tokenizer.token(i) for i in first.ids] == ["i", "love", "mice", "</s>"]
    assert math.isclose(first.log_prob, scores.log_prob[0]) and math.isclose(first.perplexity, scores.perplexity[0])
    assert [one.text for one in scores[-2:]] == TEXTS[-2:] and scores[-1].text == "i love cats"
    with pytest.raises(IndexError):
        _ = scores[6]


def test_one_string_is_one_text(lm: cr.LanguageModel) -> None:
    text = "i love\ncats\n"
    assert len(cr.score(lm, text)) == 1
    assert math.isclose(cr.score(lm, text).log_prob[0], lm.log_prob(text), rel_tol=1e-5)
    assert cr.score(lm, "").tokens.tolist() == [1]  # an empty line has an end


def test_a_file_stands_for_its_lines(lm: cr.LanguageModel, tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("i love cats\n\ncats chase zebras", encoding="utf-8")
    scores = cr.score(lm, path)
    assert scores.texts == ["i love cats", "", "cats chase zebras"]
    assert math.isclose(scores.log_prob.sum(), lm.log_prob(path), rel_tol=1e-5)
    lines = list(cr.evaluation.score_lines(lm, path))
    assert [line.text for line in lines] == scores.texts
    assert [line.log_prob for line in lines] == pytest.approx(scores.log_prob.tolist())
    path.write_bytes(b"")
    with pytest.raises(CorpusError, match=r"text\.txt: the text is empty"):
        cr.score(lm, path)


def test_pieces_and_blocks_change_nothing(
    lm: cr.LanguageModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "text.txt"
    path.write_text("i love cats\ncats chase mice\n" * 20, encoding="utf-8")
    whole = [cr.score(lm, path).log_probs, cr.score(lm, TEXTS).log_probs]
    for name in (
        "chainrule.contract.lm._MOST_AT_ONCE",
        "chainrule.text.files.BLOCK_SIZE",
    ):
        monkeypatch.setattr(name, 5)
    for one, other in zip(whole, [cr.score(lm, path).log_probs, cr.score(lm, TEXTS).log_probs], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(st.lists(st.text(st.sampled_from("ab\n\r \u2028é"), max_size=8), min_size=1, max_size=6))
def test_texts_of_any_lines_are_scored_as_one_by_one(texts: list[str]) -> None:
    for lm in CHARACTERS:
        expected = [lm.log_prob(text) for text in texts]
        np.testing.assert_allclose(cr.score(lm, texts).log_prob, expected, rtol=1e-9)


CHARACTERS = [
    cr.train("ngram", ["ab ba", "a\u2028é"], tokenizer="char", order=3, smoothing="laplace", context=context)
    for context in ("line", "stream")
]


def test_the_impossible_is_infinite() -> None:
    scores = cr.score(
        cr.train("ngram", TOY, order=2, smoothing="mle", tokenizer="word"), ["i love mice", "i love cats"]
    )
    assert scores.log_prob[0] == -math.inf and scores.perplexity[0] == math.inf
    expected = math.log(2 / 3 * 1 / 2 * 1 / 2)  # cats ends a line once, and once it chases
    assert math.isclose(scores.log_prob[1], expected, rel_tol=1e-6)


def test_errors_name_the_text() -> None:
    lm = small("ngram", "line")
    with pytest.raises(TokenizerError, match="text 1: character 4 is a lone surrogate"):
        cr.score(lm, ["good", "caf\udce9"])
    with pytest.raises(CorpusError, match="the list of texts is empty"):
        cr.score(lm, [])
    with pytest.raises(CorpusError, match="decode"):
        cr.score(lm, b"bytes")  # type: ignore[arg-type]


def test_the_bar_covers_every_token(lm: cr.LanguageModel, monkeypatch: pytest.MonkeyPatch) -> None:
    progress, advances = Listening(), list[float]()
    monkeypatch.setattr(progress, "advance", advances.append)
    scores = cr.score(lm, TEXTS, progress=progress)
    assert sum(advances) == len(scores.ids)


def test_tables_of_texts_and_of_tokens() -> None:
    pytest.importorskip("pandas")
    scores = cr.score(small("ngram", "line"), ["i love mice", "zebras"])
    texts, tokens = scores.to_frame(), scores.token_frame()
    assert list(texts.columns) == [
        *("text", "tokens", "bytes", "log_prob", "nats", "perplexity", "bits_per_byte", "unknown")
    ]
    assert texts["text"].tolist() == ["i love mice", "zebras"] and texts["unknown"].tolist() == [0, 1]
    assert tokens["token"].tolist() == ["i", "love", "mice", "</s>", "<unk>", "</s>"]
    assert tokens["position"].tolist() == [0, 1, 2, 3, 0, 1]
    sums = tokens.groupby("text")["log_prob"].sum()
    np.testing.assert_allclose(sums.to_numpy(), texts["log_prob"].to_numpy())


def test_without_pandas_a_table_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    scores = cr.score(small("ngram", "line"), "i love mice")
    importing = builtins.__import__

    def without_pandas(name: str, *more: Any) -> Any:
        if name == "pandas":
            raise ImportError(name)
        return importing(name, *more)

    monkeypatch.setattr(builtins, "__import__", without_pandas)
    with pytest.raises(MissingExtraError, match=r"pip install 'chainrule\[tables\]'"):
        scores.to_frame()
