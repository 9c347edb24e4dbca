"""Notes to the user about a run that is allowed but probably not intended."""

from __future__ import annotations

import math

from chainrule.contract.lm import Context
from chainrule.networks.defaults import Cost, RunEstimate
from chainrule.networks.training_settings import TrainingSettings

SUBWORDS = 8192
"""The usual size of a vocabulary of subwords."""
COSTLY = 0.8
"""The share of the cost of a token from which on the vocabulary is said to be costly."""
LONG_SECONDS = 3600.0
"""A run of steps or epochs that takes longer than this gets a note."""
FEW = 20
"""A run that is limited by minutes to fewer steps than this gets a note."""


def before_training(settings: TrainingSettings, length: int, context: Context, window: int | None) -> list[str]:
    """The notes for a run in rows of at most `length` tokens, of a network with this window."""
    notes = (long_rows(settings, length, context), compiled_lines(settings, window, context))
    return [note for note in notes if note is not None]


def after_training(settings: TrainingSettings, steps: int, loss: float | None, vocab_size: int) -> list[str]:
    """The notes for a run that has ended after so many steps with this loss on the held-out text."""
    notes = few_steps(settings, steps), worse_than_guessing(loss, vocab_size, settings.rate)
    return [note for note in notes if note is not None]


def few_steps(settings: TrainingSettings, steps: int) -> str | None:
    """A note if so few steps fitted into the minutes that little was learned, otherwise None."""
    if settings.minutes is None or steps >= FEW or steps == settings.steps:
        return None
    which = "step" if steps == 1 else "steps"
    return (
        f"only {steps} {which} fitted into {settings.minutes:g} minutes, in which little is learned: "
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


def costly_vocabulary(cost: Cost, prospect: RunEstimate, vocab_size: int, minutes: float) -> str | None:
    """A note if most of the time goes to a large vocabulary, and the text is not read even once, otherwise None."""
    share = cost.head / max(1, cost.head + cost.hidden)
    if vocab_size < 2 * SUBWORDS or share < COSTLY or prospect.epochs >= 1:
        return None
    faster = (cost.hidden + cost.head) / (cost.hidden + cost.head * SUBWORDS / vocab_size)
    return (
        f"a vocabulary of {vocab_size:,} takes {share:.0%} of the time, and {minutes:g} minutes are enough to read "
        f"{prospect.epochs:.1%} of the text: --tokenizer bpe is about {faster:.0f} times as fast a token, "
        f"--vocab-size {SUBWORDS} keeps the most frequent words, and --minutes {minutes / prospect.epochs:.0f} "
        "reads all of it"
    )


def long_run(seconds: float, minutes: float | None) -> str | None:
    """A note if a run will take hours that nobody asked for, otherwise None."""
    if minutes is not None or seconds < LONG_SECONDS:
        return None
    return (
        f"about {seconds / 3600:.1f} hours at this speed: with --minutes instead of steps or epochs, sizes are "
        "chosen for the time there is"
    )


def worse_than_guessing(loss: float | None, vocab_size: int, rate: float) -> str | None:
    """A note if the best loss is above ln V, the loss where all tokens are equally likely, otherwise None."""
    if loss is None or loss <= math.log(vocab_size):
        return None
    return (
        f"it learned nothing: {loss:.4g} nats a token, where guessing among {vocab_size:,} tokens gives "
        f"{math.log(vocab_size):.4g}; train longer, or with a lower learning_rate than {rate:g}"
    )
