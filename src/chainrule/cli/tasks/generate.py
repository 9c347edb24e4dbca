"""`chainrule generate`: text from a model."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from chainrule.cli.options.decoding import chosen_strategy, strategy_options
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
    from chainrule.lm import LanguageModel


@click.command()
@model_argument
@click.option("--prompt", default="", help="What the text begins with.")
@heal_option
@strategy_options("sample", beams=4, ending="any")
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
    from chainrule.cli.progress import terminal_progress
    from chainrule.decode.generate import generate_many, stream_many
    from chainrule.decode.strategies import Beam
    from chainrule.kinds import load
    from chainrule.system import parallel

    note = terminal_progress().note
    parallel.listeners.append(note)
    click.get_current_context().call_on_close(lambda: parallel.listeners.remove(note))
    strategy = chosen_strategy(**options)
    if options["strategy"] == "greedy" and count > 1:
        raise click.UsageError("greedy always gives the same text: -n needs --strategy sample or beam")
    lm = load(folder, device=device, dtype=dtype, tasks=["language"])
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
