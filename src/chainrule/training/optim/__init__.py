"""From gradients to weights: the learning-rate schedule, and the optimisers and averaged weights of torch networks.

In reading order:

    schedule.py          the factor of the learning rate at each step
    optimisers.py        optimisers by name, gradient clipping, and their state as plain tensors
    muon.py              Muon: steps of matrices made orthogonal
    weight_average.py    averages of the weights over the steps of a run
"""
