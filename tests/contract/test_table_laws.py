"""Tests of every law on tables of probabilities."""

from __future__ import annotations

import pytest

import chainrule as cr
from chainrule.testing.laws import LAWS

TABLES = {
    "uniform after unseen contexts": cr.Table(
        {"<s>": {"i": 0.5, "cats": 0.25}, "i love": {"cats": 0.5, "</s>": 0.5}}, unseen="uniform"
    ),
    "a row for all others": cr.Table(
        {"": {"cats": 0.5, "</s>": 0.3}, "chase": {"mice": 1.0}, "i love": {"cats": 1}}
    ),
    "no contexts": cr.Table({"": {"heads": 0.5, "tails": 0.4, "</s>": 0.1}}),
}


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("name", TABLES)
def test_law(name: str, law: str) -> None:
    LAWS[law](TABLES[name])
