"""Networks at work, once they are trained.

In reading order:

    model.py   any network as a language model: <s>, padding, sliding windows, probabilities
"""
