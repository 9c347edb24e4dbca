"""Back-translation: new sources for the same targets."""

from __future__ import annotations

from typing import Any

import pytest

import chainrule as cr
from chainrule.seq2seq import back_translation
from chainrule.seq2seq.back_translation import back_translated, turned
from chainrule.seq2seq.translate import Translation

from .toys import pairs_of, trained


def test_pairs_are_turned() -> None:
    assert turned([("a cat", "eine Katze"), ("b", "c")]) == [("eine Katze", "a cat"), ("c", "b")]


def test_every_target_gets_sources_of_its_own() -> None:
    pairs = pairs_of("copy", 40)
    reverse = trained(turned(pairs), cell="gru", steps=4)
    made = back_translated(reverse, pairs, cr.Temperature(1.0), each=3, seed=1)
    assert made == back_translated(reverse, pairs, cr.Temperature(1.0), each=3, seed=1)
    assert made != back_translated(reverse, pairs, cr.Temperature(1.0), each=3, seed=2)
    assert {target for _, target in made} <= {target for _, target in pairs}
    assert all(source.strip() for source, _ in made)


def test_what_is_unfinished_empty_or_the_same_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = [("a b", "x"), ("c", "y")]
    written = [
        [
            Translation("b  a", -1.0, (), True),
            Translation("b a", -1.0, (), True),
            Translation("d", -1.0, (), False),
        ],
        [Translation("", 0.0, (), True), Translation("e", -1.0, (), True)],
    ]
    given: list[Any] = []

    def translate(lm: Any, texts: Any, strategy: Any, **others: Any) -> Any:
        given.append((texts, others["best"]))
        return written

    reverse = trained(pairs * 20, cell="gru", steps=1)
    monkeypatch.setattr(back_translation, "translate_texts", translate)
    assert back_translated(reverse, pairs, cr.Greedy(), each=2) == [("b a", "x"), ("e", "y")]
    assert given == [(["x", "y"], 2)]
