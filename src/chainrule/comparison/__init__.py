"""Comparison: many models on one text, one split and one scale.

In reading order:

    ladder.py              which models are compared
    ladders/               ladders with a name of their own: tables of the lectures
    budget.py              how the time is shared among networks, or what each of them gets alike
    results.py             the record of a comparison: what each model gives and costs, and when it is continued
    advice.py              which model to take, by differences and costs, and when a network would overtake another
    surprisals.py          the surprisal of every token of the held-out text, on disk
    measured_training.py   one model of a comparison: trained, measured, saved, and its costs
    learning_curve.py      the same models on parts of the training text
    tables.py              the tables that the command line prints and a notebook shows
    compare.py             `compare`: all of them
    sweep.py               one kind with every combination of some settings
    scaling/               scaling laws: a grid of networks, and the law fitted to their losses
"""
