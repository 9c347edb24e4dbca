"""What a user is told of a run that is allowed but not what was wanted."""

from __future__ import annotations

import math

from chainrule.lm import Context
from chainrule.training.plan import TrainingSettings

FEW = 20
"""Steps of a run in minutes; with fewer, a note is due."""


def before_training(settings: TrainingSettings, total: int, length: int, context: Context) -> list[str]:
    """What should be known of a run of `total` steps, in rows of at most `length`."""
    notes = few_steps(settings, total), long_rows(settings, length, context)
    return [note for note in notes if note is not None]


def few_steps(settings: TrainingSettings, total: int) -> str | None:
    """What to say where so few steps fit into the minutes that little can be learned; None where all is well."""
    if settings.minutes is None or total >= FEW or total == settings.steps:
        return None
    steps = "step fits" if total == 1 else "steps fit"
    return (
        f"only {total} {steps} into {settings.minutes:g} minutes, in which little is learned: "
        f"give it more, or set a smaller batch than {settings.batch:,} tokens"
    )


def long_rows(settings: TrainingSettings, length: int, context: Context) -> str | None:
    """What to say where a step has more tokens than it was told, since a row has as many; None: all is well."""
    if context == "line" or length <= settings.batch:
        return None
    return (
        f"a step is one row of {length:,} tokens, more than the batch of {settings.batch:,}: "
        f"set length={settings.batch} for steps as small as that"
    )


def worse_than_guessing(loss: float | None, vocab_size: int, rate: float) -> str | None:
    """What to say of a best loss above ln V, that of all tokens being equally likely; None: all is well."""
    if loss is None or loss <= math.log(vocab_size):
        return None
    return (
        f"it learned nothing: {loss:.4g} nats a token, where guessing among {vocab_size:,} tokens gives "
        f"{math.log(vocab_size):.4g}; train longer, or with a lower learning_rate than {rate:g}"
    )
