"""Training of networks: one loop for all of them, whichever engine computes the gradients.

In reading order:

    kinds.py          the kinds of network that can be trained, and how to add one
    loop.py           the training loop: steps, validations, checkpoints, from the beginning or a checkpoint
    regularisation.py how strong regularisation is, by the overfitting that a run measures
    run_state.py      the state of a run, and the decisions made before its first step
    examples.py       what a network learns from: a text, or sources and their targets
    redrawn.py        examples that are drawn anew for each epoch
    tuning.py         prompts and their replies, for a model that was trained on text before
    base.py           n-gram models that a network is trained on top of
    layouts.py        how a text is cut into rows, batches and epochs
    objectives.py     what a network is trained to predict: from rows of a text to inputs and targets
    shown_batch.py    one batch as tokens, to look at
    engines/          what builds networks and computes the steps: torch or the tape
    team.py           the processes that train one network together, as the other files see them
    parallel.py       training on many processes, as torchrun starts them
    schedule.py       the factor of the learning rate at each step
    optimisers.py     from gradients to weights: the optimisers, and averaged weights, of torch networks
    pretrained.py     the encoder of a masked model, from which networks of other tasks begin
    planning.py       what is decided before the first step: modes, how long a run is
    tracking.py       figures of a run, written while it goes on, for other programs too
    checkpoints/      the run folder with its curves, and checkpoints from which a run is resumed bit for bit
"""

from __future__ import annotations

from chainrule.training.checkpoints.run_folder import curves
from chainrule.training.shown_batch import ShownBatch, shown_batch

__all__ = ["ShownBatch", "curves", "shown_batch"]
