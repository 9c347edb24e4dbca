"""Dynamic evaluation: networks that learn from a text while it is scored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.declaring import Command, option, with_options

if TYPE_CHECKING:
    from chainrule.mixtures.dynamic import Dynamic


def dynamic_options(command: Command) -> Command:
    """Declare --dynamic and --dynamic-set, which `chosen_dynamic` reads."""
    options = (
        option(
            "--dynamic RATE",
            "Dynamic evaluation: networks learn from the text while it is scored, by steps of this size, "
            "such as 0.0001.",
            type=float,
            name="dynamic_rate",
        ),
        option(
            "--dynamic-set KEY=VALUE",
            "With --dynamic: decay (back to the trained weights), segment (tokens between steps), method "
            "(rms or sgd), epsilon.",
            multiple=True,
        ),
    )
    return with_options(command, options)


def chosen_dynamic(options: Mapping[str, Any]) -> Dynamic | None:
    """Return how networks learn by the options of `dynamic_options`; None if they stay as they are."""
    from chainrule.mixtures.dynamic import Dynamic
    from chainrule.settings import parse, split_words

    if options["dynamic_rate"] is None:
        if options["dynamic_set"]:
            raise click.UsageError("--dynamic-set goes with --dynamic RATE")
        return None
    return parse(Dynamic, {**split_words(options["dynamic_set"]), "rate": options["dynamic_rate"]})
