"""Scaling laws: how the loss falls with the size of a network and the amount of text.

In reading order:

    law.py            L(N, D) = E + A/N^a + B/D^b: its fit, its intervals, its test, and the best size for a budget
    grid.py           `scale`: a grid of Transformers that fits the time, trained and measured, and the law of it
    large_models.py   published large models as data, with 6 N D and Chinchilla's rule
"""
