"""Training of networks: one loop for all of them, whichever engine computes the gradients.

In reading order:

    train.py          the training of a network, from its beginning or a checkpoint to its best weights
    loop.py           the training loop: steps, validations, checkpoints
    job.py            what does not change during a run, such as its texts, cut into batches
    run_state.py      the state of a run, and the decisions made before its first step
    objectives.py     what a network is trained to predict: from stretches of text to inputs and targets
    examples.py       what a network learns from: a text, or sources and their targets
    batches/          how a text is cut into batches, and how these are gathered
    engines/          what computes the steps: torch or the tape
    team.py           the processes that train one network together, as the other files see them
    parallel.py       training on many processes, as torchrun starts them
    optim/            the learning-rate schedule, and the optimisers and averaged weights of torch networks
    planning/         what is decided before the first step: settings left open, modes, how long a run is
    tracking/         figures of a run: written while it goes on, for other programs too, and read as curves
    checkpoints/      the run folder, and checkpoints from which a run is resumed bit for bit
    backends/         networks of each engine as language models
    kinds.py          the kinds of network that can be trained, and how to add one
"""

from __future__ import annotations

from chainrule.training.tracking.curves import curves

__all__ = ["curves"]
