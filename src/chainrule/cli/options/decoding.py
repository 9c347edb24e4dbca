"""How the next token is chosen: the options of verbs that generate text."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from chainrule.cli.options.declaring import Command
from chainrule.cli.options.declaring import options as declare

if TYPE_CHECKING:
    from chainrule.decode.strategies import Beam, Strategy


def strategy_options(
    default: Literal["sample", "beam"], beams: int, ending: Literal["any", "best"]
) -> Callable[[Command], Command]:
    """Declare --strategy and the options that belong to it, which `chosen_strategy` reads."""
    return declare(f"""
        --strategy [greedy|sample|beam] = {default}
            The most likely token, a random one, or a search for the most likely text. Options that go with one of
            them choose it.
        --temperature T : float        Below 1 sharpens the choice, above 1 flattens it.
        --top-k K : int                Only the K most likely tokens.
        --top-p P : float              Only the most likely tokens that make up P.
        --min-p P : float              Only tokens at least P times as likely as the best.
        --repetition-penalty R : float
            Tokens that occurred: logits / R, or * R below 0, as in transformers; without logits, p to the power of
            R.
        --presence-penalty A : float   Tokens that occurred: ln p less A.
        --frequency-penalty A : float  Tokens that occurred n times: ln p less n A.
        --beams B : int                Hypotheses of the beam search. [default: {beams}]
        --ending [any|best]
            When a hypothesis may end: at any step, or if that is among the best B steps. [default: {ending}]
        --length-power X : float
            Beam search ranks hypotheses by ln p / length^X: 0 takes the sum, which favours short texts, 1 the mean.
            [default: 1]
    """)


def chosen_strategy(options: Mapping[str, Any], usual: Beam | None = None) -> Strategy | Beam:
    """Return the strategy that the options of `strategy_options` choose.

    `usual` is the search by default. Where --strategy is not given, options of a search or of sampling choose it.
    """
    from chainrule.decode import strategies

    strategy = options["strategy"]
    of_beam = {"width": "beams", "ending": "ending", "length_power": "length_power"}
    chosen: Any = {field: options[name] for field, name in of_beam.items() if options[name] is not None}
    given = {name: options[name] for name in strategies.SAMPLING if options[name] is not None}
    if click.get_current_context().get_parameter_source("strategy") is ParameterSource.DEFAULT:
        if chosen:
            strategy = "beam"
        elif given:
            strategy = "sample"
    if strategy != "beam" and chosen:
        raise click.UsageError(f"--{of_beam[next(iter(chosen))].replace('_', '-')} needs --strategy beam")
    if strategy == "beam":
        if given:
            raise click.UsageError("a beam search does not sample: leave out --temperature, --top-k and the like")
        return replace(usual or strategies.Beam(), **chosen)
    if strategy == "greedy":
        if any(not name.endswith("_penalty") for name in given):
            raise click.UsageError(
                "greedy takes the most likely token: leave out --temperature, --top-k and the like"
            )
        return strategies.sampling(**given) | strategies.Greedy()
    return strategies.sampling(**given)
