"""Options that are declared as a text: what click is told of each."""

from __future__ import annotations

from typing import Any

import click
import pytest

from chainrule.cli.options.declaring import options


def declared(text: str, **details: Any) -> list[click.Parameter]:
    return click.command()(options(text, **details)(lambda **_: None)).params


def test_explanations_stand_beside_or_below() -> None:
    both = declared("""
        --near TOKEN  The nearest
            of all.
        --out DIR required
            A folder, [default: none]
            of two lines.
    """)
    assert [one.help for one in both] == ["The nearest of all.", "A folder, [default: none] of two lines."]
    assert [one.required for one in both] == [False, True]
    assert isinstance(both[1].type, click.Path)


def test_values_have_types_and_defaults() -> None:
    top, step, share, by, kinds, sizes, heal, mask = declared("""
        --top N : 1..9 = 3 as count  How many.
        --step X : float = 1e-6  How far.
        --share S : (0,1]  How much.
        --by [mean|total] = mean  By what.
        --kind KIND... as kinds  Some.
        --sizes LxW,...  A list is one value.
        --heal/--no-heal = yes  Either.
        --mask/--no-mask  Either, or neither.
    """)
    assert top.name == "count" and top.default == "3" and (top.type.min, top.type.max) == (1, 9)
    assert step.default == 1e-6 and step.type is click.FLOAT
    assert (share.type.min, share.type.max, share.type.min_open, share.type.max_open) == (0, 1, True, False)
    assert list(by.type.choices) == ["mean", "total"]
    assert kinds.multiple and not sizes.multiple
    assert heal.opts + heal.secondary_opts == ["--heal", "--no-heal"]
    assert mask.default is None


@pytest.mark.parametrize("words", [["--held-out", "a", "--valid", "b"], ["--valid", "a", "--valid", "b"]])
def test_an_option_has_its_former_name_and_details(words: list[str]) -> None:
    found: list[str] = []

    @click.command()
    @options("--held-out FILE... formerly --valid  A text.", held_out={"type": click.STRING})
    def verb(held_out: tuple[str, ...]) -> None:
        found.extend(held_out)

    verb.main(words, standalone_mode=False)
    assert found == ["a", "b"]
    assert "--valid" not in verb.get_help(click.Context(verb))
