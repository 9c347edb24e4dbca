"""Textbook cards: they show what chainrule computes, at every end of their sliders, to every kind of reader."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import chainrule as cr
from chainrule.course.lesson import Lesson, lesson_paths
from chainrule.course.markdown import parts_of
from chainrule.course.notebook import notebook
from chainrule.course.page import page_parts
from chainrule.errors import CourseError

CARDS = [
    (number, place)
    for number in lesson_paths()
    for place in range(1, 1 + lesson_paths()[number].read_text(encoding="utf-8").count("\n```card\n"))
]


def numbers(lesson: int, card: int, **values: float) -> dict[str, float]:
    found = cr.lesson(lesson).show_card(card, values)
    assert isinstance(found, dict)
    return found


def test_lectures_with_a_picture_have_one() -> None:
    titles = {card.title for number in lesson_paths() for card in cr.lesson(number).cards}
    assert titles >= {
        "The merges of BPE",
        "The tree of a beam search",
        "The tape fills, and is emptied",
        "The unrolled network",
        "Gradients by distance",
        "Attention of one token",
        "A ladder grows with its text",
    }


@pytest.mark.parametrize(("number", "place"), CARDS)
def test_a_card_shows_something_at_both_ends_of_its_sliders(number: int, place: int) -> None:
    one = cr.lesson(number)
    card, first = one.cards[place - 1], one.show_card(place)
    for slider in card.settings:
        ends = [one.show_card(place, {slider.name: end}) for end in (slider.low, slider.high)]
        assert ends != [first, first], slider.name
        for found in (first, *ends):
            assert type(found) is type(first)
            if isinstance(found, str):
                assert ElementTree.fromstring(found).tag.endswith("svg") and len(found) < 200_000
            else:
                assert found.keys() == first.keys()
    assert one.show_card(place) == first  # a run leaves nothing behind
    shown = " ".join([card.title, card.formula, *card.symbols, *card.symbols.values(), card.code])
    assert all(slider.name in shown for slider in card.settings) and card.symbols


def test_numbers_are_those_of_the_models() -> None:
    k = 0.5  # after "i love", seen twice, with 8 tokens that can come next
    assert numbers(4, 1, k=k)["cats"] == pytest.approx((1 + k) / (2 + 8 * k), rel=1e-5)
    assert numbers(4, 1, k=k)["mice"] == pytest.approx(k / (2 + 8 * k), rel=1e-5)
    assert numbers(5, 1, λ3=0.4, λ2=0.2)["cats"] == pytest.approx(0.4 / 2 + 0.2 / 2 + 0.4 / 6, rel=1e-5)
    assert numbers(6, 1, q=0.5)["KL(p ‖ q)"] == pytest.approx(0, abs=1e-9)
    assert numbers(7, 1, T=1, top_p=1)["be"] == pytest.approx(0.137, abs=0.0005)
    assert sum(numbers(7, 1, T=2, top_p=0.5).values()) == pytest.approx(1)
    assert list(numbers(7, 1, top_p=0.05).values())[:2] == [1, 0]


def test_pictures_are_drawn_from_values() -> None:
    def texts(lesson: int, card: int, **values: float) -> list[str]:
        found = cr.lesson(lesson).show_card(card, values)
        return [one.text or "" for one in ElementTree.fromstring(str(found)).iter() if one.tag.endswith("text")]

    assert {"low", "4×", "est", "3×"} <= {*texts(2, 1, merges=4)} and "low" not in texts(2, 1, merges=1)
    # the trap for greedy: with one hypothesis "a fish" is never begun
    assert "fish" not in texts(7, 2, B=1) and {"fish", "0.324"} <= {*texts(7, 2, B=2)}
    filled, emptied = texts(10, 1, step=5), texts(10, 1, step=6)
    assert filled[0] == "tape: Linear, Sigmoid, Linear, Softmax, CrossEntropy"
    assert emptied[0] == "tape: Linear, Sigmoid, Linear, Softmax" and texts(10, 1, step=10)[0] == "tape: empty"
    # dJ/dJ = 1 and ||dJ/dp|| = 6.49, as the lesson prints
    assert "6.5" in emptied and "6.5" not in filled
    assert "step 3" in texts(11, 1, steps=3) and "step 3" not in texts(11, 1, steps=2)


def test_readers_without_sliders_get_the_formula_and_the_code() -> None:
    one = cr.lesson(4)
    (card,) = one.cards
    for text in (one.markdown(), str(notebook(one)["cells"])):
        assert (
            card.formula in text and "def card(k=1.0):" in text and "smoothing=" in text and "```card" not in text
        )
    drawn = one.markdown(drawn=True)
    assert "| mice | 0.1 |" in drawn and "| mice |" not in one.markdown()
    assert re.search(
        r'<img alt="The merges of BPE" src="data:image/svg\+xml;base64,[\w+/=]+">',
        cr.lesson(2).markdown(drawn=True),
    )
    (part,) = (part for part in page_parts(one) if "card" in part)
    assert part["sliders"] == [{"name": "k", "low": 0.01, "high": 2.0, "step": 0.01, "value": 1.0}]


@pytest.mark.parametrize("number", [7, 10, 11])
def test_a_card_is_a_function_that_takes_no_name_from_the_code_below_it(number: int) -> None:
    one = cr.lesson(number)
    names: dict[str, Any] = {}
    for part in one.parts:
        if getattr(part, "role", "") == "shared":
            exec(part.source, names)
    before = dict(names)
    for place, card in enumerate(one.cards, 1):
        exec(card.source, names)
        found = names.pop("card")(**{slider.name: slider.high for slider in card.settings})
        shown = one.show_card(place, {slider.name: slider.high for slider in card.settings})
        assert shown == (found if isinstance(found, dict) else found._repr_svg_())
    assert names == before


@pytest.mark.parametrize(
    ("values", "said"),
    [({"k": 3.0}, "k should be from 0.01 to 2"), ({"x": 1.0}, "the card 'Add k' has no slider 'x'")],
)
def test_other_places_are_refused(values: dict[str, float], said: str) -> None:
    with pytest.raises(CourseError, match=said):
        cr.lesson(4).show_card(1, values)
    with pytest.raises(CourseError, match="lesson 4 has no card 2: the number of its cards is 1"):
        cr.lesson(4).show_card(2)


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('title = "a"', "missing 1 required keyword-only argument: 'code'"),
        ('title = "a"\ncode = "1"\ncolour = "b"', "unexpected keyword argument 'colour'"),
        ('title = "a"\ncode = "1"\nsliders = { k = [0, 1] }', "the slider k should be"),
        ('title = "a"\ncode = "1"\nsliders = { k = [0, 1, 1, 2] }', "k should be from 0 to 1"),
        ('title = "a"\ncode = "k = 1"', "the last line of code should be what the card shows"),
        ('title = "a"\ncode = "(1"', "code is not Python"),
    ],
)
def test_mistakes_in_a_card_are_told_with_their_line(table: str, said: str) -> None:
    with pytest.raises(CourseError, match=rf"x\.md, line 3: .*{said}"):
        parts_of(f"# X\n\n```card\n{table}\n```\n", "x.md")


def test_whole_numbers_stay_whole(tmp_path: Path) -> None:
    path = tmp_path / "01-x.md"
    head = "# Lesson 1: X\n\nTime: 1 minute.\n\n"
    path.write_text(
        head + '```card\ntitle = "t"\nsliders = { n = [0, 3, 1, 2] }\ncode = "{len(range(n)): n}"\n```\n', "utf-8"
    )
    assert Lesson(path).show_card(1, {"n": 3.0}) == {"3": 3.0}
