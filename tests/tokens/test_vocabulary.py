"""Which items a vocabulary holds: by count, by rank, by share."""

from __future__ import annotations

import pytest

from chainrule.errors import SettingsError
from chainrule.tokens.vocabulary import Limit, choose

COUNTS = {"the": 7, "cat": 3, "sat": 3, "mat": 3, "on": 2, "zoo": 1, "ant": 1, "bee": 1, "emu": 1, "gnu": 1}


def test_the_most_frequent_come_first_and_equals_in_alphabetical_order() -> None:
    assert choose(COUNTS, Limit()) == ["the", "cat", "mat", "sat", "on", "ant", "bee", "emu", "gnu", "zoo"]


def test_the_order_in_which_items_were_counted_does_not_matter() -> None:
    backwards = dict(reversed(COUNTS.items()))
    assert choose(backwards, Limit()) == choose(COUNTS, Limit())


@pytest.mark.parametrize(
    ("limit", "known"),
    [
        (Limit(min_count=2), ["the", "cat", "mat", "sat", "on"]),
        (Limit(min_count=3), ["the", "cat", "mat", "sat"]),
        (Limit(min_count=8), []),
        (Limit(top=3), ["the", "cat", "mat"]),  # the tie of cat, mat, sat is cut in alphabetical order
        (Limit(top=99), ["the", "cat", "mat", "sat", "on", "ant", "bee", "emu", "gnu", "zoo"]),
        (Limit(percent=40), ["the", "cat", "mat", "sat"]),  # 40 % of ten distinct items
        (Limit(percent=100), ["the", "cat", "mat", "sat", "on", "ant", "bee", "emu", "gnu", "zoo"]),
        (Limit(min_count=3, top=2), ["the", "cat"]),
        (Limit(min_count=3, percent=80), ["the", "cat", "mat", "sat"]),  # eight would fit, four are frequent enough
        (Limit(top=3, percent=20), ["the", "cat"]),
    ],
)
def test_limits(limit: Limit, known: list[str]) -> None:
    assert choose(COUNTS, limit) == known


def test_bytes_are_chosen_as_strings_are() -> None:
    counts = {word.encode(): count for word, count in COUNTS.items()}
    assert choose(counts, Limit(top=4)) == [b"the", b"cat", b"mat", b"sat"]


@pytest.mark.parametrize(
    ("size", "limit"),
    [
        (None, Limit(2)),
        ("8000", Limit(2, top=8000)),
        (8000, Limit(2, top=8000)),
        ("90%", Limit(2, percent=90)),
        (" 0.5% ", Limit(2, percent=0.5)),
        ("100%", Limit(2, percent=100)),
    ],
)
def test_a_size_is_a_number_or_a_share(size: str | int | None, limit: Limit) -> None:
    assert Limit.parse(size, min_count=2) == limit


@pytest.mark.parametrize("size", ["", "many", "0", "-5", "1.5", "0%", "101%", "-1%", "%", "nan%", "inf%"])
def test_other_sizes_are_errors_that_show_what_was_given(size: str) -> None:
    with pytest.raises(SettingsError, match="a number such as 8000, or a share such as 90%") as caught:
        Limit.parse(size)
    assert str(caught.value).endswith(f"not {size!r}")


def test_a_minimum_count_is_at_least_one() -> None:
    with pytest.raises(SettingsError, match="at least 1, not 0"):
        Limit.parse(None, min_count=0)
