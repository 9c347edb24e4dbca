"""`chainrule generate`: text from a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.models import (
    device_option,
    heal_option,
    model_argument,
    note_slow_precision,
    note_unknown_prompt,
    precision_option,
)
from chainrule.cli.options.runs import json_option, seed_option
from chainrule.cli.screen.lines import echo, print_json

if TYPE_CHECKING:
    from chainrule.decode.strategies import Beam, Strategy
    from chainrule.lm import LanguageModel


@click.command()
@model_argument
@click.option("--prompt", default="", help="What the text begins with.")
@heal_option
@click.option(
    "--strategy",
    type=click.Choice(["greedy", "sample", "beam"]),
    default="sample",
    show_default=True,
    help="The most likely token, a random one, or a search for the most likely text.",
)
@click.option("--temperature", type=float, metavar="T", help="Below 1 sharpens the choice, above 1 flattens it.")
@click.option("--top-k", type=int, metavar="K", help="Only the K most likely tokens.")
@click.option("--top-p", type=float, metavar="P", help="Only the most likely tokens that make up P.")
@click.option("--min-p", type=float, metavar="P", help="Only tokens at least P times as likely as the likeliest.")
@click.option("--repetition-penalty", type=float, metavar="R", help="Tokens that occurred: p to the power of R.")
@click.option("--presence-penalty", type=float, metavar="A", help="Tokens that occurred: ln p less A.")
@click.option("--frequency-penalty", type=float, metavar="A", help="Tokens that occurred n times: ln p less n A.")
@click.option("--beams", type=int, metavar="B", help="Hypotheses of the beam search. [default: 4]")
@click.option(
    "--ending",
    type=click.Choice(["any", "best"]),
    help="When a hypothesis may end: at any step, or if that is among the best B steps. [default: any]",
)
@click.option(
    "--max-tokens", type=int, default=100, show_default=True, metavar="N", help="Maximum number of tokens."
)
@click.option("-n", "count", type=int, default=1, show_default=True, metavar="N", help="Number of texts.")
@device_option
@precision_option
@seed_option
@json_option
def generate(
    folder: str,
    prompt: str,
    heal: bool,
    max_tokens: int,
    count: int,
    device: str,
    dtype: str,
    seed: int,
    as_json: bool,
    **options: Any,
) -> None:
    """Write text with the model in DIR.

    The same seed and prompt give the same text. A model of lines writes one line; one whose context flows across
    lines writes --max-tokens tokens. What narrows the choice applies in the order: penalties, temperature, top-k,
    top-p, min-p.
    """
    from chainrule import parallel
    from chainrule.cli.progress import terminal_progress
    from chainrule.decode.generate import generate_many, stream_many
    from chainrule.decode.strategies import Beam
    from chainrule.kinds import load

    note = terminal_progress().note
    parallel.listeners.append(note)
    click.get_current_context().call_on_close(lambda: parallel.listeners.remove(note))
    strategy = _strategy(**options)
    if options["strategy"] == "greedy" and count > 1:
        raise click.UsageError("greedy always gives the same text: -n needs --strategy sample or beam")
    lm = load(folder, device=device, dtype=dtype)
    note_slow_precision(dtype, lm)
    note_unknown_prompt(lm, prompt, heal)
    if not as_json and not isinstance(strategy, Beam):
        pieces = stream_many(lm, prompt, strategy, n=count, max_tokens=max_tokens, seed=seed, heal=heal)
        _print_pieces(pieces, lm, prompt, count)
        return
    texts = generate_many(lm, [prompt], strategy, n=count, max_tokens=max_tokens, seed=seed, heal=heal)
    if as_json:
        print_json(
            [
                {
                    "text": t.text,
                    "prompt": t.prompt,
                    "tokens": t.tokens,
                    "log_prob": t.log_prob,
                    "finished": t.finished,
                }
                for t in texts
            ]
        )
    else:
        pieces = ((number, text.continuation) for number, text in enumerate(texts))
        _print_pieces(pieces, lm, prompt, count)


def _print_pieces(pieces: Iterator[tuple[int, str]], lm: LanguageModel, prompt: str, count: int) -> None:
    """Print texts as their pieces come, each after the prompt; each piece appears at once, in a pipe too."""
    last = -1
    for number, piece in pieces:
        if number > last:
            echo("\n" * (number > 0), nl=False)
            if count > 1 and lm.context == "stream":  # whose texts contain line ends
                echo(f"--- {number + 1}")
            echo(prompt, nl=False)
        echo(piece, nl=False)
        last = number
    echo()


_PENALTIES = ("repetition_penalty", "presence_penalty", "frequency_penalty")
_FILTERS = ("temperature", "top_k", "top_p", "min_p")


def _strategy(strategy: str, beams: int | None, ending: Any, **values: Any) -> Strategy | Beam:
    """The strategy that the options choose; `values` are those of the options in _PENALTIES and _FILTERS."""
    from chainrule.decode import strategies

    given = [name for name in (*_PENALTIES, *_FILTERS) if values[name] is not None]
    if strategy != "beam" and (beams is not None or ending is not None):
        raise click.UsageError(f"--{'ending' if beams is None else 'beams'} needs --strategy beam")
    if strategy == "beam":
        if given:
            raise click.UsageError("a beam search does not sample: leave out --temperature, --top-k and the like")
        return strategies.Beam(4 if beams is None else beams, ending=ending or strategies.Beam.ending)
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
