"""Comparison: many models on one text, one split and one scale.

In reading order:

    ladder.py              which models are compared, and how the time is shared among them
    ladders/               ladders with a name of their own: tables of the lectures
    measured_training.py   one model of a comparison: trained, measured, saved, and its costs
    compare.py             `compare`: all of them
    results.py             what a comparison found, in memory and in a file
    surprisals.py          the surprisal of every token of the held-out text, on disk
    advice.py              which model to take
    learning_curve.py      the same models on parts of the training text
    scaling/               scaling laws: a grid of networks, and the law fitted to their losses
"""
