"""Notes to the user about a run that is allowed but probably not intended."""

from __future__ import annotations

import math

from chainrule.designs.training import TrainingSettings
from chainrule.lm import Context

FEW = 20
"""A run that is limited by minutes to fewer steps than this gets a note."""


def before_training(
    settings: TrainingSettings, total: int, length: int, context: Context, window: int | None
) -> list[str]:
    """The notes for a run of `total` steps, in rows of at most `length` tokens, of a network with this window."""
    notes = (
        few_steps(settings, total),
        long_rows(settings, length, context),
        compiled_lines(settings, window, context),
    )
    return [note for note in notes if note is not None]


def few_steps(settings: TrainingSettings, total: int) -> str | None:
    """A note if so few steps fit into the minutes that little can be learned, otherwise None."""
    if settings.minutes is None or total >= FEW or total == settings.steps:
        return None
    steps = "step fits" if total == 1 else "steps fit"
    return (
        f"only {total} {steps} into {settings.minutes:g} minutes, in which little is learned: "
        f"give it more, or set a smaller batch than {settings.batch:,} tokens"
    )


def long_rows(settings: TrainingSettings, length: int, context: Context) -> str | None:
    """A note if a single row, and so a step, has more tokens than the batch that was set, otherwise None."""
    if context == "line" or length <= settings.batch:
        return None
    return (
        f"a step is one row of {length:,} tokens, more than the batch of {settings.batch:,}: "
        f"set length={settings.batch} for steps as small as that"
    )


def compiled_lines(settings: TrainingSettings, window: int | None, context: Context) -> str | None:
    """A note if compiled code has to serve more shapes than torch compiles, otherwise None."""
    if settings.compile != "yes" or window is not None or context != "line":
        return None
    return (
        "compile=yes with --context line: torch compiles a recurrent network for some lengths of lines only, so "
        "that a run that is resumed may differ from one that is not in the last digits"
    )


def worse_than_guessing(loss: float | None, vocab_size: int, rate: float) -> str | None:
    """A note if the best loss is above ln V, the loss where all tokens are equally likely, otherwise None."""
    if loss is None or loss <= math.log(vocab_size):
        return None
    return (
        f"it learned nothing: {loss:.4g} nats a token, where guessing among {vocab_size:,} tokens gives "
        f"{math.log(vocab_size):.4g}; train longer, or with a lower learning_rate than {rate:g}"
    )
