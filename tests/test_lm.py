"""Tests of the functions of the contract that its laws do not cover."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import chainrule as cr
from chainrule.arrays import Array, batches, check_ids, to_numpy
from chainrule.contract.chain import PrefixState
from chainrule.contract.lm import State, score_rows
from chainrule.decode.tree import beam_picture, grow_tree
from chainrule.errors import ModelError, TokenizerError
from chainrule.evaluation.measure import evaluate
from chainrule.tasks.games.shannon import guessing_game
from chainrule.tasks.probes import probe

TOY = cr.Corpus.from_text("i love cats\ni love dogs\ncats chase mice\n")


@pytest.fixture
def lm() -> cr.LanguageModel:
    return cr.train("ngram", TOY, order=2, smoothing="laplace", tokenizer="word")


@pytest.mark.parametrize("context", ["line", "stream"])
def test_a_text_is_encoded_as_one_where_context_flows(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    lm = cr.train("ngram", TOY, order=2, smoothing="laplace", tokenizer="word", context=context)
    ids = lm.tokenizer.encode_lines(b"cats love\ndogs\n")
    monkeypatch.setattr(type(lm.tokenizer), "encode_text", lambda self, block: self.encode_lines(block)[1:])
    found = np.concatenate(lm.sequences("cats love\ndogs\n"))
    np.testing.assert_array_equal(found, ids if context == "line" else ids[1:])


def _not_offered(*_: object) -> None:
    """A fast path that calls the plain way, in batches."""


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch, lm: cr.LanguageModel) -> cr.LanguageModel:
    """A model whose probabilities are NaN."""

    def score(ids_BT: Array, state: State | None = None) -> Array:
        return np.full(ids_BT.shape, np.nan)

    monkeypatch.setattr(lm, "score", score)
    monkeypatch.setattr(lm, "score_sequences", _not_offered)
    monkeypatch.setattr(lm, "write", _not_offered)
    monkeypatch.setattr(lm, "predictions", _not_offered)
    monkeypatch.setattr(lm, "next_log_probs", lambda state: np.full((len(state), 9), np.nan))
    return lm


def test_nan_is_an_error(broken: cr.LanguageModel) -> None:
    with pytest.raises(ModelError, match="NaN"):
        broken.perplexity("i love cats")
    with pytest.raises(ModelError, match="NaN"):
        evaluate(broken, TOY)
    with pytest.raises(ModelError, match="NaN"):
        cr.generate(broken, "i")
    with pytest.raises(ModelError, match="NaN"):
        cr.mix([broken, broken], TOY)
    with pytest.raises(ModelError, match="NaN"):
        probe(broken, "gaps", longest=1, count=2)
    with pytest.raises(ModelError, match="NaN"):
        guessing_game(broken, ["i love cats and i love dogs"], lambda _: None, lambda _: None)
    with pytest.raises(ModelError, match="NaN"):
        beam_picture(broken, "i", 2, 1)


def test_the_best_of_each_step_of_a_beam_are_kept(lm: cr.LanguageModel) -> None:
    *_, tree = grow_tree(lm, lm.extend(lm.start(1), lm.tokenizer.encode("i")[None]), [], width=2, steps=3)
    nodes = tree["nodes"]
    for step in range(3):
        of_step = sorted((node for node in nodes if node["step"] == step), key=lambda node: -node["log_prob"])
        assert [node["kept"] for node in of_step] == [True] * 2 + [False] * (len(of_step) - 2)
    assert not all(node["kept"] for node in nodes)


def test_the_ends_of_a_beam_are_ordered_by_their_mean_log_prob(lm: cr.LanguageModel) -> None:
    *_, tree = grow_tree(lm, lm.extend(lm.start(1), lm.tokenizer.encode("i")[None]), [], width=4, steps=3)
    best = [tree["nodes"][number] for number in tree["best"]]
    means = [node["log_prob"] / (node["step"] + 1) for node in best]
    assert means == sorted(means, reverse=True)
    products = [node["log_prob"] * (node["step"] + 1) for node in best]
    assert products != sorted(products, reverse=True)  # another order of ends after few and after many tokens


def test_padding_adds_nothing_to_a_prefix() -> None:
    state = PrefixState(((5,), ())).extended(np.asarray([[1, 2], [cr.PAD, 3]]))
    assert state.rows == ((5, 1, 2), (3,))


def test_bfloat16_comes_over_as_float32() -> None:
    array = to_numpy(torch.tensor([1.0, -2.5], dtype=torch.bfloat16))
    assert array.dtype == np.float32
    assert array.tolist() == [1.0, -2.5]


def test_line_ends_of_another_system_change_nothing(lm: cr.LanguageModel) -> None:
    assert lm.perplexity("i love cats\r\ni love dogs\r\n") == lm.perplexity("i love cats\ni love dogs\n")


def test_half_a_character_is_not_text(lm: cr.LanguageModel) -> None:
    for use in (lm.perplexity, lm.tokenizer.encode):
        with pytest.raises(
            TokenizerError,
            match="character 4 is a lone surrogate, which usually comes from bytes that are not UTF-8",
        ):
            use("caf\udce9")


@pytest.mark.parametrize("wrong", [b"bytes", ["a list"], 7, None])
def test_one_text_is_a_string(wrong: object, lm: cr.LanguageModel) -> None:
    with pytest.raises(TokenizerError, match=f"expected one text .str., found {type(wrong).__name__}"):
        lm.tokenizer.encode(wrong)  # type: ignore[arg-type]


def test_short_lines_are_not_padded_to_the_length_of_a_long_one(
    lm: cr.LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = 0
    right = lm.score

    def score(ids_BT: Array, state: State | None = None) -> Array:
        nonlocal largest
        largest = max(largest, ids_BT.size)
        return right(ids_BT, state)

    monkeypatch.setattr(lm, "score", score)
    monkeypatch.setattr(lm, "score_sequences", _not_offered)
    rows = [np.full(300_000, 3), *([np.asarray([4, 2])] * 300)]
    assert [len(scores) for scores in score_rows(lm, rows)] == [300_000, *([2] * 300)]
    assert largest == 300_000


def test_rows_keep_their_order(lm: cr.LanguageModel) -> None:
    rows = lm.sequences("i love cats\n\ncats chase mice i love\ni\n")
    for row, scores in zip(rows, score_rows(lm, rows), strict=True):
        np.testing.assert_allclose(scores, lm.score(row[None])[0])


def test_without_rows_there_are_no_batches() -> None:
    assert list(batches(np.zeros(0, dtype=np.int64))) == []


@pytest.mark.parametrize("ids", [np.asarray([1, 2]), torch.tensor([1, 2]), np.zeros((1, 1, 1), dtype=int)])
def test_a_batch_has_two_axes(ids: Array) -> None:
    with pytest.raises(ValueError, match=r"\[B, T\]"):
        check_ids(ids, 9)


def test_ids_of_this_vocabulary_pass() -> None:
    for good in (np.asarray([[0, 8, cr.PAD]]), torch.tensor([[0, 8]]), np.zeros((1, 0), dtype=int)):
        check_ids(good, 9)
    for wrong in (np.asarray([[9]]), torch.tensor([[-2]])):
        with pytest.raises(ValueError, match="ids go from 0 to 8"):
            check_ids(wrong, 9)


@pytest.mark.parametrize("kind", ["ngram", "feedforward", "lstm", "transformer"])
@pytest.mark.parametrize("engine", ["torch", "tape"])
def test_text_is_no_state(kind: str, engine: str) -> None:
    own: dict[str, object] = {} if kind == "ngram" else {"steps": 1, "engine": engine}
    lm = cr.train(kind, "i love cats\ni love dogs\n", **own, tokenizer="word")  # type: ignore[arg-type]
    for wrong in (lambda: lm.next_log_probs("i"), lambda: lm.extend("i", lm.tokenizer.encode("love")[None])):  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"expected a state of this model, as start.* found str"):
            wrong()


def test_a_tokenizer_says_what_it_is(lm: cr.LanguageModel) -> None:
    assert repr(lm.tokenizer) == f"<WordTokenizer word, {lm.tokenizer.vocab_size} tokens>"
