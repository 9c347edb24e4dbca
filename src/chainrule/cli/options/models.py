"""A model that is used: its folder, where and how exactly it computes, and its prompt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from chainrule.cli.options.declaring import Command, RenamedOption

if TYPE_CHECKING:
    from chainrule.contract.lm import LanguageModel


def model_argument(command: Command) -> Command:
    """DIR: a model folder."""
    return click.argument("folder", metavar="DIR", type=click.Path())(command)


def device_option(command: Command) -> Command:
    """--device: where to compute."""
    return click.option(
        "--device",
        default="cpu",
        show_default=True,
        metavar="NAME",
        help="Where to compute: cpu, cuda (or cuda:1, mps, ... as torch names it), or auto.",
    )(command)


def precision_option(command: Command) -> Command:
    """--dtype: in which precision a network computes."""
    return click.option(
        "--dtype",
        type=click.Choice(["float32", "bfloat16"]),
        default="float32",
        show_default=True,
        help="The precision in which a network computes: bfloat16 is faster on a GPU, and a little less exact.",
    )(command)


def note_slow_precision(dtype: str, *models: LanguageModel) -> None:
    """Tell the user if --dtype bfloat16, which is meant to be faster, is slower on this CPU."""
    from chainrule.system.devices import has_fast_bfloat16

    on_cpu = any(lm.device == "cpu" and lm.dtype == "bfloat16" for lm in models)
    if dtype == "bfloat16" and on_cpu and not has_fast_bfloat16():
        from chainrule.cli.output.progress import terminal_progress

        terminal_progress().note("this CPU is slow in bfloat16: without --dtype it would be faster")


def read_prompt_option(command: Command) -> Command:
    """--prompt, for verbs that look at how a network reads; --text, its earlier name, works in 0.2 too."""
    return click.option(
        "--prompt",
        "--text",
        "prompt",
        cls=RenamedOption,
        required=True,
        help="What the network reads; its last token is predicted.",
    )(command)


def heal_option(command: Command) -> Command:
    """--heal: whether a prompt may stop inside a word."""
    return click.option(
        "--heal/--no-heal",
        default=True,
        show_default=True,
        help="A prompt is text that may stop inside a word, or its tokens are complete.",
    )(command)


def note_unknown_prompt(lm: LanguageModel, prompt: str, heal: bool = True) -> None:
    """Tell the user if some of the prompt is unknown to the model."""
    from chainrule.cli.output.progress import terminal_progress
    from chainrule.decode.generate import context_of
    from chainrule.decode.healing import find_openings

    _, (openings,) = find_openings(lm, [context_of(lm, prompt)], heal=heal)
    if lm.tokenizer.unk in openings.settled:
        terminal_progress().note("some of the prompt is unknown to the model, and tells it nothing")
