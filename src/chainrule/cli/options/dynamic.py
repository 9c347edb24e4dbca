"""Dynamic evaluation: networks that learn from a text while it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

import chainrule as cr
from chainrule.cli.options.declaring import group, option

dynamic_options = group(
    option(
        "--dynamic RATE",
        "Dynamic evaluation: networks learn from the text while it is scored, by steps of this size, such as "
        "0.0001.",
        type=float,
        name="dynamic_rate",
    ),
    option(
        "--dynamic-set KEY=VALUE",
        "With --dynamic: decay (back to the trained weights), segment (tokens between steps), method (rms or sgd), "
        "epsilon.",
        multiple=True,
    ),
)
"""The options that `chosen_dynamic` reads."""


def chosen_dynamic(options: Mapping[str, Any]) -> cr.mixtures.Dynamic | None:
    """Return how networks learn by the options of `dynamic_options`; None if they stay as they are."""
    from chainrule.settings import parse, split_words

    if options["dynamic_rate"] is None:
        if options["dynamic_set"]:
            raise click.UsageError("--dynamic-set goes with --dynamic RATE")
        return None
    return parse(cr.mixtures.Dynamic, {**split_words(options["dynamic_set"]), "rate": options["dynamic_rate"]})
