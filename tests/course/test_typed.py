"""Answers that are typed into a field: values are read, nothing is run."""

from __future__ import annotations

from pathlib import Path

import pytest

from chainrule.course.typed import typed_value
from chainrule.errors import CourseError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", ...),
        (" ... ", ...),
        ("1/3", 1 / 3),
        ("-(2 + 1) * 4 - 1", -13),
        ("20000**2 * 19999", 7_999_600_000_000),
        ("1e999", float("inf")),
        ("cats", "cats"),
        ("'cats'", "cats"),
        ("i love cats", "i love cats"),
        ("3-gram", "3-gram"),
        ("33%", "33%"),
        ("[cats, '</s>', 0.5]", ["cats", "</s>", 0.5]),
        ("(0.5, [1, 2])", (0.5, [1, 2])),
        ('{"chase": 1/2, "</s>": 0.5}', {"chase": 0.5, "</s>": 0.5}),
        ("(-8) ** 0.5", "(-8) ** 0.5"),
        ("'ab' * 999999999", "'ab' * 999999999"),
        ("{**x}", "{**x}"),
        ("{[1]: 2}", "{[1]: 2}"),
    ],
)
def test_a_text_is_read_as_a_value(text: str, value: object) -> None:
    found = typed_value(text)
    assert found == value and type(found) is type(value)


@pytest.mark.parametrize("text", ["1/0", "9" * 400, "9**9**9", "2**99999", "1e300**2", "0**-1"])
def test_a_number_that_there_is_not_is_an_error_of_one_line(text: str) -> None:
    with pytest.raises(CourseError, match=r"^[^\n]+$"):
        typed_value(text)


@pytest.mark.parametrize("text", ["-" * 1999 + "1", "[" * 1999, "+".join("1" * 999), "1if 1else " * 190 + "1"])
def test_deep_nesting_is_just_words(text: str) -> None:
    assert typed_value(text) == text or isinstance(typed_value(text), int)


def test_nothing_is_run(tmp_path: Path) -> None:
    text = f"__import__('pathlib').Path({str(tmp_path / 'made')!r}).touch()"
    assert typed_value(text) == text
    assert typed_value("[x for x in (1, 2)]") == "[x for x in (1, 2)]"
    assert not (tmp_path / "made").exists()
