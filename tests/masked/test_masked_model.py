"""The laws of masked models, what they fill in, and pseudo-log-likelihoods."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import numpy as np
import pytest
from tests.cli.running import Fails, Run
from tests.masked.conftest import SOUNDS, toy_lines

import chainrule as cr
from chainrule.arrays import PAD
from chainrule.contract import kinds
from chainrule.contract.lm import LanguageModel
from chainrule.errors import ModelError
from chainrule.evaluation.pseudo import evaluate_masked, pseudo_records
from chainrule.masked import pseudo
from chainrule.masked.encoder_model import EncoderModel
from chainrule.networks.transformer.stack import Encoder


def gapped(model: EncoderModel, text: str) -> np.ndarray:
    """The ids of a text of words, with gaps, and </s>."""
    words = [model.mask if word == "_" else int(model.tokenizer.encode(word)[0]) for word in text.split()]
    return np.asarray([*words, model.tokenizer.eos])


def test_it_sums_to_one_and_never_predicts_a_start_or_a_gap(toy: EncoderModel) -> None:
    log_probs_NV = toy.fill(gapped(toy, "the _ _ today")[None]).numpy()
    assert log_probs_NV.shape == (2, toy.tokenizer.vocab_size)
    np.testing.assert_allclose(np.exp(log_probs_NV).sum(axis=1), 1, atol=1e-5)
    assert (log_probs_NV[:, toy.tokenizer.bos] == -np.inf).all()


def test_batches_and_padding_change_nothing(toy: EncoderModel) -> None:
    texts = [gapped(toy, text) for text in ("the _ barks today", "_ cat", "the bird _ _")]
    alone = np.concatenate([toy.fill(ids[None]).numpy() for ids in texts])
    padded = np.full((3, 7), PAD)
    for row, ids in zip(padded, texts, strict=True):
        row[: len(ids)] = ids
    np.testing.assert_allclose(toy.fill(padded).numpy(), alone, atol=1e-5)


def test_a_folder_gives_the_same_model_with_an_encoder(toy: EncoderModel, tmp_path: Path) -> None:
    toy.save(tmp_path / "model")
    loaded = kinds.load(tmp_path / "model")
    assert isinstance(loaded, EncoderModel) and not isinstance(loaded, LanguageModel)
    assert isinstance(loaded.network.encoder, Encoder)
    assert loaded.tokenizer.words == toy.tokenizer.words
    ids = gapped(toy, "the _ barks today")[None]
    assert (loaded.fill(ids) == toy.fill(ids)).all()


def test_it_fills_in_the_obvious_word(toy: EncoderModel) -> None:
    for animal, sound in SOUNDS.items():
        found = cr.fill(toy, f"the {animal} [MASK] home", k=2)
        assert found.gaps[0][0].text == sound and found.gaps[0][0].probability > 0.5
        assert cr.fill(toy, f"the [MASK] {sound} home").gaps[0][0].text == animal
    together = cr.fill(toy, "the [MASK] [MASK] today", k=4)
    # each gap by itself does not know the other; together they agree
    assert len(together.gaps) == 2 and len(together.texts) == 4
    best = together.texts[0]
    assert SOUNDS[best.fillings[0]] == best.fillings[1]
    assert best.text == f"the {best.fillings[0]} {best.fillings[1]} today"
    probabilities = [text.probability for text in together.texts]
    assert probabilities == sorted(probabilities, reverse=True)


def test_a_beam_as_wide_as_the_vocabulary_finds_the_best(toy: EncoderModel) -> None:
    """By hand: p(a) p(b | a) for every a and b."""
    ids = gapped(toy, "the _ _ today")
    first_V = np.exp(toy.fill(ids[None]).numpy()[0])
    best = 0.0
    for token in range(toy.tokenizer.vocab_size):
        if toy.tokenizer.special(token) is None:
            filled = ids.copy()
            filled[1] = token
            second_V = np.exp(toy.fill(filled[None]).numpy()[0])
            second_V[[i for i in range(len(second_V)) if toy.tokenizer.special(i)]] = 0
            best = max(best, float(first_V[token] * second_V.max()))
    found = cr.fill(toy, "the [MASK] [MASK] today", k=toy.tokenizer.vocab_size)
    assert found.texts[0].probability == pytest.approx(best, rel=1e-4)


def test_pseudo_log_likelihoods_are_those_of_one_token_after_the_other(toy: EncoderModel) -> None:
    rows = [gapped(toy, text) for text in ("the cat meows today", "the cat", "fish swims outside the today")]
    rows.append(np.asarray([toy.tokenizer.eos]))  # an empty line
    found = pseudo.pseudo_log_likelihoods(toy, rows)
    assert [len(one) for one in found] == [4, 2, 5, 0]
    for row, one in zip(rows, found, strict=True):
        np.testing.assert_allclose(one, pseudo.one_by_one(toy, row), atol=1e-5)


def test_long_rows_are_scored_in_pieces(toy: EncoderModel) -> None:
    row = np.concatenate([gapped(toy, "the cat meows today")[:4]] * 12 + [[toy.tokenizer.eos]])
    (found,) = pseudo.pseudo_log_likelihoods(toy, [row])
    assert len(found) == 48 > toy.longest and (found < 0).all()


def test_likely_sentences_have_a_higher_pseudo_log_likelihood(toy: EncoderModel) -> None:
    right, wrong = pseudo_records(toy, ["the dog barks today", "the dog sings today"])
    assert right.pll > wrong.pll + 1
    measured = evaluate_masked(toy, toy_lines(20, seed=2))
    assert measured.tokens == 80
    assert measured.pseudo_perplexity == pytest.approx(np.exp(-measured.pll_per_token))


def test_subwords_are_filled_in_readably() -> None:
    lines = [line.replace("today", "today, they say") for line in toy_lines(200)]
    tokenizer = cr.train_tokenizer("bpe", lines)
    model = cr.train("masked", lines, tokenizer=tokenizer, steps=2, width=32, layers=1, heads=1, window=32)
    found = cr.fill(model, "[MASK] cat [MASK] home[MASK]", k=9)  # type: ignore[arg-type]
    for filling in [*found.gaps[0], *found.gaps[2]]:
        assert not tokenizer.decode([filling.id]).startswith(" ")
    for filling in found.gaps[1]:
        assert tokenizer.decode([filling.id]).startswith(" ") and filling.text == filling.text.strip() != ""
    assert all(" cat " in text.text and " home" in text.text for text in found.texts)


def test_bad_input_is_one_clear_line(toy: EncoderModel) -> None:
    with pytest.raises(ModelError, match=r"there is no \[MASK\] to fill in 'the cat'"):
        cr.fill(toy, "the cat")
    with pytest.raises(ModelError, match="the model reads 15 at once"):
        cr.fill(toy, "[MASK] " + "the cat " * 20)
    with pytest.raises(ModelError, match=r"kind ngram does not fill gaps: chainrule\.generate is for it"):
        cr.fill(cr.train("ngram", ["a b"], order=2, tokenizer="word"), "a [MASK]")  # type: ignore[arg-type]


def test_weights_that_are_not_a_number_are_an_error(
    toy: EncoderModel, tmp_path: Path, run: Run, fails: Fails
) -> None:
    broken = copy.copy(toy)
    broken.network = copy.deepcopy(toy.network)
    next(broken.network.parameters()).data[:] = float("nan")
    broken.save(tmp_path / "model")
    assert "the model gives NaN" in fails("fill", tmp_path / "model", "the [MASK] barks")
    with pytest.raises(ModelError, match="the model gives NaN"):
        pseudo.pseudo_log_likelihoods(broken, [gapped(toy, "the dog")])


def test_the_verbs(toy: EncoderModel, tmp_path: Path, run: Run, fails: Fails) -> None:
    folder, text = tmp_path / "model", tmp_path / "text.txt"
    toy.save(folder)
    text.write_text("the dog barks today\nthe dog sings today\n")
    filled = run("fill", folder, "the dog [MASK] home", "-k", "2")
    assert "barks" in filled.out and "the dog barks home" in filled.out
    described = json.loads(run("fill", folder, "the [MASK] [MASK] home", "--json").out)
    assert len(described["gaps"]) == 2 and len(described["texts"]) == 5
    scored = [json.loads(line) for line in run("score", folder, text, "--json").out.splitlines()]
    assert scored[0]["pll"] > scored[1]["pll"] and "perplexity" not in scored[0]
    _, worst = run("score", folder, text, "--worst", "1").out.splitlines()
    assert worst.startswith("2\t") and worst.endswith("the dog sings today")
    measured = json.loads(run("evaluate", folder, text, "--json").out)
    assert measured["tokens"] == 8 and "perplexity" not in measured
    assert "is no perplexity" in " ".join(run("evaluate", folder, text).out.split())
    assert "there is no [MASK] to fill" in fails("fill", folder, "the cat")
    cr.train("ngram", toy_lines(5), order=2, tokenizer="word").save(tmp_path / "ngram")
    assert "a model of the kind ngram predicts text: use chainrule generate" in fails(
        "fill", tmp_path / "ngram", "a [MASK]"
    )
    assert "are not measured together" in fails("evaluate", folder, tmp_path / "ngram", text)
