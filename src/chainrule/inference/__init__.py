"""Trained networks as language models.

In reading order:

    torch_model.py   models of torch: device and precision of their weights, networks loaded from stored arrays
    choice_plan.py   the choice of a token as operations that kernels and compiled loops know
    state.py         the memory of a network and the window of tokens that it reads, and how it slides
    neural_model.py  any network as a language model: <s>, padding, sliding windows, probabilities
    gpu/             sampling from a Transformer on a GPU by kernels and captured steps
"""
