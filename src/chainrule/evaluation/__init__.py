"""Evaluation: how good a model is, on one scale.

In reading order:

    metrics.py     entropy, cross-entropy, KL divergence, perplexity, bits per byte
    measure.py     `evaluate`: a model measured on a text
    surprisal.py   `score`: ln p of many texts and their tokens, as arrays
    pseudo.py      pseudo-log-likelihoods of texts under a masked model
    records.py     the surprisal of each record of a file, and the most surprising ones
    comparison.py  the results of a comparison, and the file that keeps them
    ladder.py      which models are compared, and how they share the time
    ladders/       ladders with a name of their own: tables of the lectures
    climb.py       one of them trained, measured and saved
    intervals.py   confidence intervals over documents
    curve.py       learning curves: models on parts of the training text
    choice.py      which model to take for what
    compare.py     `compare`: a ladder of models, trained and measured on one split
    scaling/       scaling laws: a grid of networks, and the law fitted to their losses
    surprisals_record.py  the surprisal of every token of a held-out text, on disk, with its place in bytes
"""
