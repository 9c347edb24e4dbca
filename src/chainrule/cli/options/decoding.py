"""How the next token is chosen: the options of verbs that write text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import click
from click.core import ParameterSource

from chainrule.cli.options.declaring import Command, with_options

if TYPE_CHECKING:
    from chainrule.decode.strategies import Beam, Strategy


def strategy_options(
    default: Literal["sample", "beam"], beams: int, ending: Literal["any", "best"]
) -> Callable[[Command], Command]:
    """--strategy and what goes with it, which `chosen_strategy` reads."""

    def decorate(command: Command) -> Command:
        options = (
            click.option(
                "--strategy",
                type=click.Choice(["greedy", "sample", "beam"]),
                default=default,
                show_default=True,
                help="The most likely token, a random one, or a search for the most likely text. Options that go "
                "with one of them choose it.",
            ),
            click.option(
                "--temperature", type=float, metavar="T", help="Below 1 sharpens the choice, above 1 flattens it."
            ),
            click.option("--top-k", type=int, metavar="K", help="Only the K most likely tokens."),
            click.option("--top-p", type=float, metavar="P", help="Only the most likely tokens that make up P."),
            click.option(
                "--min-p", type=float, metavar="P", help="Only tokens at least P times as likely as the likeliest."
            ),
            click.option(
                "--repetition-penalty", type=float, metavar="R", help="Tokens that occurred: p to the power of R."
            ),
            click.option("--presence-penalty", type=float, metavar="A", help="Tokens that occurred: ln p less A."),
            click.option(
                "--frequency-penalty", type=float, metavar="A", help="Tokens that occurred n times: ln p less n A."
            ),
            click.option(
                "--beams", type=int, metavar="B", help=f"Hypotheses of the beam search. [default: {beams}]"
            ),
            click.option(
                "--ending",
                type=click.Choice(["any", "best"]),
                help="When a hypothesis may end: at any step, or if that is among the best B steps. "
                f"[default: {ending}]",
            ),
        )
        return with_options(command, options)

    return decorate


_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_FILTERS = ("temperature", "top_k", "top_p", "min_p")


def chosen_strategy(
    strategy: str,
    beams: int | None,
    ending: Any,
    *,
    usual: Beam | None = None,
    **values: Any,
) -> Strategy | Beam:
    """The strategy that the options choose; `values` are those of the options in _PENALTIES and _FILTERS.

    `usual` is the search by default. Where --strategy is not given, options of a search or of sampling choose it.
    """
    from chainrule.decode import strategies

    given = [name for name in (*_PENALTIES, *_FILTERS) if values[name] is not None]
    if click.get_current_context().get_parameter_source("strategy") is ParameterSource.DEFAULT:
        if beams is not None or ending is not None:
            strategy = "beam"
        elif given:
            strategy = "sample"
    if strategy != "beam" and (beams is not None or ending is not None):
        raise click.UsageError(f"--{'ending' if beams is None else 'beams'} needs --strategy beam")
    if strategy == "beam":
        if given:
            raise click.UsageError("a beam search does not sample: leave out --temperature, --top-k and the like")
        usual = usual or strategies.Beam()
        return replace(usual, width=usual.width if beams is None else beams, ending=ending or usual.ending)
    kinds: dict[str, Any] = {
        "repetition_penalty": strategies.RepetitionPenalty,
        "presence_penalty": strategies.PresencePenalty,
        "frequency_penalty": strategies.FrequencyPenalty,
        "temperature": strategies.Temperature,
        "top_k": strategies.TopK,
        "top_p": strategies.TopP,
        "min_p": strategies.MinP,
    }
    chain: list[Strategy] = [kinds[name](values[name]) for name in given]
    if strategy == "greedy":
        if any(name in _FILTERS for name in given):
            raise click.UsageError(
                "greedy takes the likeliest token: leave out --temperature, --top-k and the like"
            )
        chain.append(strategies.Greedy())
    return strategies.Chain(tuple(chain))
