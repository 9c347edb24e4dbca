"""When a network would overtake a better model: its learning curve, continued.

Twice the time lowers the loss of a network by about what the second half of its training gained, and by less the
more often it has read its text:

    gain of a doubling = second half * min(1.2, 0.8 / epochs^0.45)

The numbers were fitted to LSTMs and Transformers on five texts, each trained for some lengths of time (the figures
are in benchmarks/results/comparison.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

MOST_TIMES = 8.0
"""The longest training, in times of the measured one, that a curve is continued to."""
OFF_BY = 1.5
"""Four of five predictions on other texts were wrong by less than this factor."""

_GAIN, _FALL, _MOST_GAIN = 0.8, 0.45, 1.2
_STEP = 1 / 32  # of a doubling


def second_half(history: Sequence[Mapping[str, Any]]) -> float | None:
    """Return by how much the validation loss fell over the second half of a training; None if that is not known.

    >>> second_half([{"step": step, "validation_loss": loss} for step, loss in ((10, 5.0), (20, 4.0), (40, 3.5))])
    0.5
    """
    points = [(one["step"], one["validation_loss"]) for one in history if one.get("validation_loss") is not None]
    if len(points) < 2:
        return None
    last, loss = points[-1]
    before = [point for point in points if point[0] <= last / 2]
    after = next(point for point in points if point[0] > last / 2)
    if not before:
        return None
    share = (last / 2 - before[-1][0]) / (after[0] - before[-1][0])
    return float(before[-1][1] + share * (after[1] - before[-1][1]) - loss)


def times_to_gain(gain: float, half: float, epochs: float) -> float | None:
    """Return how many times as long a network must train to lower its loss by `gain`; None: more than MOST_TIMES.

    `half` is what the second half of its training gained, and `epochs` how often it has read the text.

    >>> times_to_gain(0.0, half=0.3, epochs=1.0), times_to_gain(2.0, half=0.3, epochs=1.0)
    (1.0, None)
    >>> round(times_to_gain(0.2, half=0.3, epochs=1.0), 1)
    2.0
    """
    times, gained = 1.0, 0.0
    while gained < gain:
        gained += _STEP * half * min(_MOST_GAIN, _GAIN / max(epochs * times, 1e-9) ** _FALL)
        times *= 2**_STEP
        if times > MOST_TIMES or half <= 0:
            return None
    return times
