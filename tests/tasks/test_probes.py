"""Probes: the questions have one right answer, and figures are those of the model."""

from __future__ import annotations

import math

import numpy as np
import pytest

import chainrule as cr
from chainrule.errors import CorpusError, ModelError
from chainrule.tasks.probes import by_position, probe, with_window
from chainrule.text.builtin.probes import LINES, LONGEST, PROBES, builtin_lines, gaps_of, questions


@pytest.mark.parametrize("name", PROBES)
def test_made_texts_are_the_same_in_every_run(name: str) -> None:
    lines = builtin_lines(f"builtin:{name}")
    assert len(lines) == LINES and lines == builtin_lines(f"builtin:{name}")
    assert b"".join(cr.Corpus.open(f"builtin:{name}").documents()).decode().splitlines() == lines
    ends = [line.split()[-1] for line in lines]
    assert [ends.count(end) / LINES for end in set(ends)] == pytest.approx([0.5, 0.5], abs=0.03)


def test_the_word_that_decides_is_so_far_away() -> None:
    for gap in gaps_of("gaps"):
        for one in questions("gaps", gap):
            words = one.prompt.split()
            assert (one.right, words[1]) in (("cream", "strawberry"), ("clippers", "hair"))
            assert words.index("with") - 2 == gap == one.gap
    for one in questions("order", 4):
        words = one.prompt.split()
        cue = max(words.index("hair"), words.index("strawberry"))
        assert words[cue] == {"cream": "strawberry", "clippers": "hair"}[one.right]
        assert len(words) - 2 - cue == 4
    assert gaps_of("agreement") == [0, 3, 6, 9, 12]
    for one in questions("agreement", 6):
        words = one.prompt.split()
        assert (one.right == "breaks") == (not words[1].endswith("s"))
        assert len(words) == 2 + 6


def test_tasks_of_questions_are_in_no_sentence() -> None:
    def task(words: list[str]) -> frozenset[tuple[str, str]]:
        return frozenset(zip(words[::2], words[1::2], strict=True))

    tasks = {task(line.split()) for line in builtin_lines("builtin:shots")}
    for shots in (1, 4, 12):
        for one in questions("shots", shots):
            words = [*one.prompt.split(), one.right]
            assert len(words) == 2 * (shots + 1) and {one.right, one.wrong} == {"wug", "dax"}
            assert len(task(words)) == 1 or task(words) not in tasks
            assert len({animal for animal, _ in task(words)}) == len(task(words))  # an animal has one name


def test_an_ngram_knows_what_it_sees() -> None:
    """A trigram sees the noun and "with" if nothing is between, and guesses from a gap of one word on."""
    lm = cr.train("ngram", cr.Corpus.open("builtin:gaps"), order=3, smoothing="mle", tokenizer="word")
    found = probe(lm, "gaps", longest=2)
    assert [one.gap for one in found] == [0, 1, 2]
    assert (found[0].probability, found[0].accuracy) == (1, 1)
    assert [one.probability for one in found[1:]] == pytest.approx([0.5, 0.5], abs=0.08)


def test_a_model_of_another_text_is_refused() -> None:
    lm = cr.train("ngram", ["i love cats"] * 3, order=2, tokenizer="word")
    with pytest.raises(ModelError, match=r"does not know the word 'c.*': train it on builtin:gaps"):
        probe(lm, "gaps", longest=LONGEST)


@pytest.mark.parametrize("engine", ["tape", "torch"])
def test_perplexity_by_position_goes_past_the_window(engine: str) -> None:
    text = "".join(builtin_lines("builtin:gaps")[:40])
    sizes = {"layers": 1, "width": 8, "heads": 2, "window": 16, "positions": "alibi", "context": "stream"}
    lm = cr.train("transformer", [text], tokenizer="char", steps=2, engine=engine, **sizes)
    found = by_position(lm, text, 80)
    assert [(one.first, one.last) for one in found] == [(0, 31), (32, 63), (64, 79)]
    ids_BT = lm.tokenizer.encode(text)[: len(lm.tokenizer.encode(text)) // 80 * 80].reshape(-1, 80).astype(np.int64)
    whole = np.asarray(with_window(lm, 81).score(ids_BT))
    assert found[2].perplexity == pytest.approx(math.exp(-whole[:, 64:].mean()), rel=1e-6)
    assert with_window(lm, 8) is lm
    with pytest.raises(CorpusError, match="at least 1,000,000 are needed"):
        by_position(lm, text, 1_000_000)


def test_learned_positions_end_with_the_window() -> None:
    sizes = {"layers": 1, "width": 8, "heads": 2, "window": 16, "preset": "gpt2"}
    lm = cr.train("transformer", ["some text"] * 9, tokenizer="char", steps=1, engine="tape", **sizes)
    with pytest.raises(ModelError, match="learned the positions of 16 tokens and has none for 81"):
        by_position(lm, "x" * 200, 80)


def test_a_model_without_positions_is_measured_as_it_is() -> None:
    lm = cr.train("ngram", ["some text"] * 9, order=2, tokenizer="char")
    assert with_window(lm, 99) is lm
    assert len(by_position(lm, "some text " * 30, 64)) == 2
