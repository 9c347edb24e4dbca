"""From gradients to weights: the learning-rate schedule, and the optimisers and averaged weights of torch networks.

In reading order:

    schedule.py          the factor of the learning rate at each step
    optimisers.py        optimisers by name, gradient clipping, and averaged weights
    muon.py              Muon: steps of matrices made orthogonal
"""
