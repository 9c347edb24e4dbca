"""Keystrokes saved: as defined, key by key; and a model that remembers answers as the model itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import chainrule as cr
from chainrule.errors import CorpusError, DecodingError
from chainrule.tasks import prediction
from chainrule.tasks.prediction import Remembered, keystrokes
from chainrule.text.corpus import Corpus

TEXT = "i love cats\ni love dogs\ncats chase mice\nthe catalogue, i love\n"
LINES = ["i love the catalogue, mice chase zebras", "cats", "dogs. i love", "  the   cats  "]


def trained(tokenizer: str, context: str = "line") -> cr.LanguageModel:
    return cr.train(
        "ngram", Corpus.from_text(TEXT), order=3, smoothing="laplace", tokenizer=tokenizer, context=context
    )


MODELS = {tokenizer: trained(tokenizer) for tokenizer in ("word", "char", "bpe")}


def keys_slowly(lm: cr.LanguageModel, line: str, k: int) -> int:
    """The keys that type a line, as the definition says, asking the model itself each time."""
    keys, place = 0, 0
    while place < len(line):
        best = ""
        for suggestion in cr.suggest(lm, line[:place], k):
            added = suggestion.completion
            follows = line[place + len(added) :]
            is_word = not (added[-1].isalnum() and follows[:1].isalnum())
            if line[place:].startswith(added) and added.strip() and is_word:
                added += " " if follows.startswith(" ") else ""
                best = max(best, added, key=len)
        place += max(len(best), 1)
        keys += 1
    return keys + 1


@pytest.mark.parametrize("tokenizer", MODELS)
@pytest.mark.parametrize("k", [1, 3])
def test_keys_are_counted_as_defined(tokenizer: str, k: int) -> None:
    lm = MODELS[tokenizer]
    found = keystrokes(lm, LINES, k)
    lines = [line.strip() for line in LINES]
    assert found.keys == sum(keys_slowly(lm, line, k) for line in lines)
    assert found.characters == sum(len(line) + 1 for line in lines)
    assert (found.lines, found.words) == (4, 13)
    assert found.saved == pytest.approx(1 - found.keys / found.characters)
    assert found.least_keys <= found.keys <= found.characters
    assert keystrokes(lm, LINES, k, most_lines=2).keys == sum(keys_slowly(lm, line, k) for line in lines[:2])


def test_the_arithmetic_of_an_example() -> None:
    lm = cr.train("ngram", Corpus.from_text("i love cats\n"), order=2, smoothing="mle", tokenizer="word")
    found = keystrokes(lm, "i love cats", k=1)
    # i and its space would take one key or two: the suggestion; love and its space; cats; Enter
    assert (found.keys, found.least_keys, found.characters, found.taken) == (4, 4, 12, 3)
    # out of context only "i" is known, with which every line begins: the others are typed
    assert found.baseline_keys == 1 + 5 + 4 + 1


def test_the_right_word_is_taken_whole_with_its_punctuation() -> None:
    lm = MODELS["word"]
    # the upper limit: one key for "the ", one for "cat," and its space, one for "sat", one for Enter
    assert keystrokes(lm, "the cat, sat").least_keys == 4


@pytest.mark.parametrize("tokenizer", MODELS)
@given(st.lists(st.text("ilove catsdg,", max_size=12), min_size=1, max_size=4))
def test_a_model_that_remembers_suggests_the_same(tokenizer: str, texts: list[str]) -> None:
    lm = MODELS[tokenizer]
    remembered = Remembered(lm)
    for text in [*texts, *texts]:
        assert cr.suggest(remembered, text, 3) == cr.suggest(lm, text, 3)


def test_a_model_that_remembers_keeps_the_laws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where it can remember hardly anything."""
    lm = Remembered(MODELS["word"])
    rows = [lm.tokenizer.encode(text).astype(np.int64)[None] for text in ("i love", "i love cats", "cats chase")]
    expected = [
        MODELS["word"].next_log_probs(MODELS["word"].extend(MODELS["word"].start(1), row))[0] for row in rows
    ]
    for most in (1 << 28, 0):
        monkeypatch.setattr(prediction, "_MOST_BYTES", most)
        states = [lm.extend(lm.start(1), row) for row in rows]
        joined = states[0].join(states[1]).join(states[2]).select(np.asarray([2, 0, 1, 0]))
        np.testing.assert_array_equal(lm.next_log_probs(joined), np.stack([expected[i] for i in (2, 0, 1, 0)]))
        lm.forget()


def test_what_cannot_be_typed_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_text("\n \n")
    with pytest.raises(CorpusError, match="the text is empty"):
        keystrokes(MODELS["word"], tmp_path / "empty.txt")
    with pytest.raises(DecodingError, match="at least 1, not 0"):
        keystrokes(MODELS["word"], "i love", 0)
