"""Dynamic evaluation: whether networks learn from a text while it is scored, and how."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import Command, with_options

if TYPE_CHECKING:
    from chainrule.mixtures.dynamic import Dynamic


def dynamic_options(command: Command) -> Command:
    """--dynamic and --dynamic-set, which `chosen_dynamic` reads."""
    options = (
        click.option(
            "--dynamic",
            "dynamic_rate",
            type=float,
            metavar="RATE",
            help="Dynamic evaluation: networks learn from the text while it is scored, by steps of this size, "
            "such as 0.0001.",
        ),
        click.option(
            "--dynamic-set",
            multiple=True,
            metavar="KEY=VALUE",
            help="With --dynamic: decay (back to the trained weights), segment (tokens between steps), method "
            "(rms or sgd), epsilon.",
        ),
    )
    return with_options(command, options)


def chosen_dynamic(options: Mapping[str, Any]) -> Dynamic | None:
    """What the options of `dynamic_options` say; None: networks stay as they are."""
    from chainrule.mixtures.dynamic import Dynamic
    from chainrule.settings import parse, split_words

    if options["dynamic_rate"] is None:
        if options["dynamic_set"]:
            raise click.UsageError("--dynamic-set goes with --dynamic RATE")
        return None
    return parse(Dynamic, {**split_words(options["dynamic_set"]), "rate": options["dynamic_rate"]})
