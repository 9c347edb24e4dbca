"""Regularisation as it is needed: its strength follows how much the network overfits.

The settings say how strong regularisation is at most. With regularise=as-needed a run begins without any. At
intervals it measures the loss of the held-out text and that of a sample of the training text, both without dropout.
Their difference after the first epoch, when nothing is learned by heart yet, is that between the two texts. What
the difference grows by from then on is overfitting: the strength of regularisation is in proportion to it.

So a network that learns a rule from its text, such as how to reverse a word, is not regularised, however often it
reads the text.
"""

from __future__ import annotations

from dataclasses import dataclass

LITTLE, MUCH = 0.02, 0.1
"""Overfitting, in nats per token, up to which a network is not regularised, and from which on it is fully so."""

STRENGTHS = 4
"""The number of strengths above 0: with fewer changes, a captured step is captured again less often."""


@dataclass
class Overfitting:
    """The overfitting of a run so far; a checkpoint keeps it."""

    strength: float = 1.0
    """The strength of regularisation, from 0 to 1."""
    first_gap: float | None = None
    """The held-out loss less the training loss, when it was first measured; None before."""
    next_epoch: int = 1
    """The number of epochs after which the gap is measured next, apart from validations."""

    def measured(self, gap: float, epoch: int) -> float:
        """Take in a gap measured after `epoch` epochs; returns the strength from now on.

        >>> run = Overfitting(strength=0.0)
        >>> [run.measured(gap, epoch) for epoch, gap in enumerate([0.05, 0.06, 0.11, 0.4, 0.05, 0.05])]
        [0.0, 0.0, 0.5, 1.0, 0.75, 0.5]
        """
        self.next_epoch = max(2 * self.next_epoch, epoch + 1)
        if self.first_gap is None:
            self.first_gap = gap
        else:
            share = (gap - self.first_gap - LITTLE) / (MUCH - LITTLE)
            wanted = round(STRENGTHS * min(1.0, max(0.0, share))) / STRENGTHS
            # falling is slow: full strength soon closes the gap, and none soon opens it again
            self.strength = max(wanted, self.strength - 1 / STRENGTHS)
        return self.strength
